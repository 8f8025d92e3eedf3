# SPDX-License-Identifier: Apache-2.0
"""A deferred task: real operator, trigger and API server; the triggerer is an event loop of the test."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.durable_pod.one_process import Run
from tests.support.apiserver import api_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.airflow, pytest.mark.apiserver]

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with api_server() as running:
        yield running


@pytest.fixture
def run(server: Any) -> Run:
    return Run(server.client(), str(server.kubeconfig), f"deferred-{next(_NUMBERS)}")


@pytest.fixture
def ours() -> type[Any]:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    from airflow_steadfast import capabilities
    from airflow_steadfast.durable_pod import install

    made = type("Ours", (KubernetesPodOperator,), {"__doc__": KubernetesPodOperator.__doc__})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capabilities, "has_task_state_store", lambda _: True)
        install.make_durable(made)
    return made


@pytest.fixture
def stock() -> type[Any]:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    return KubernetesPodOperator


def deferred(run: Run, cls: type[Any], try_number: int = 1, **given: Any) -> tuple[str, dict[str, Any]]:
    """Let a try create its pod and defer; return the trigger as the database stores it."""
    from airflow_steadfast.durable_pod.termination import DEFERRALS

    operator = run.operator(cls, deferrable=True, **given)
    with pytest.raises(DEFERRALS) as caught:
        operator.execute_async(run.context(try_number))
    path, keywords = caught.value.trigger.serialize()
    return path, keywords


def trigger_of(stored: tuple[str, dict[str, Any]]) -> Any:
    """Make the trigger as a triggerer does, from what is stored: another triggerer makes the same."""
    import importlib

    path, keywords = stored
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)(**keywords)


def fired(trigger: Any) -> dict[str, Any]:
    async def first() -> Any:
        async for event in trigger.run():
            return event
        return None

    return dict(asyncio.run(asyncio.wait_for(first(), 60)).payload)


def resumed(run: Run, cls: type[Any], event: dict[str, Any], try_number: int = 1, **given: Any) -> Any:
    """Resume in a process that has nothing but the event."""
    operator = run.operator(cls, deferrable=True, **given)
    return operator.trigger_reentry(run.context(try_number), event)


def test_the_uid_travels_and_the_result_is_that_of_the_pod(run: Run, ours: type[Any]) -> None:
    stored = deferred(run, ours)
    (pod,) = run.pods()
    assert stored[0] == "airflow.providers.cncf.kubernetes.triggers.pod.KubernetesPodTrigger"
    assert stored[1]["trigger_kwargs"]["_pod_uid"] == pod.metadata.uid
    run.play(pod, "Succeeded", base=0)
    event = fired(trigger_of(stored))
    assert (event["status"], event["_pod_uid"]) == ("success", pod.metadata.uid)
    resumed(run, ours, event)
    assert run.pods() == []


def test_a_trigger_of_the_users_own_keywords_keeps_them(run: Run, ours: type[Any]) -> None:
    stored = deferred(run, ours, trigger_kwargs={"mine": 1})
    assert stored[1]["trigger_kwargs"]["mine"] == 1


def test_a_triggerer_that_dies_is_followed_by_one_that_knows_the_same(run: Run, ours: type[Any]) -> None:
    stored = deferred(run, ours)
    (pod,) = run.pods()
    run.play(pod, "Running", base=None)

    async def killed() -> None:
        task = asyncio.ensure_future(trigger_of(stored).run().__anext__())
        await asyncio.sleep(1.5)  # it has begun to watch the pod
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(killed())
    assert [p.metadata.uid for p in run.pods()] == [pod.metadata.uid]
    run.play(pod, "Succeeded", base=0)
    assert fired(trigger_of(stored))["status"] == "success"


def replaced(run: Run, cls: type[Any]) -> tuple[tuple[str, dict[str, Any]], Any]:
    """A deferred task whose pod is replaced by a namesake that succeeds."""
    stored = deferred(run, cls)
    (old,) = run.pods()
    run.remove(old)
    stranger = run.twin(old, old.metadata.name, labels=None)
    run.play(stranger, "Succeeded", base=0)
    return stored, stranger


def test_a_pod_that_was_replaced_during_the_deferral_fails_the_task_clearly(
    run: Run, ours: type[Any]
) -> None:
    from airflow_steadfast.durable_pod.termination import PodReplacedError

    stored, stranger = replaced(run, ours)
    event = fired(trigger_of(stored))
    assert event["status"] == "error"
    assert "another pod" in event["message"]
    with pytest.raises(PodReplacedError, match="has taken its name"):
        resumed(run, ours, event)
    assert [p.metadata.uid for p in run.pods()] == [stranger.metadata.uid]


def test_upstream_takes_the_strangers_success_for_its_own(run: Run, stock: type[Any]) -> None:
    stored, _stranger = replaced(run, stock)
    event = fired(trigger_of(stored))
    assert event["status"] == "success"
    resumed(run, stock, event)
    assert run.pods() == [], "it deletes the stranger, too"


def test_a_triggerer_without_the_patch_is_made_up_for_by_the_operator(run: Run, ours: type[Any]) -> None:
    from airflow_steadfast.durable_pod.termination import PodReplacedError

    stored, stranger = replaced(run, ours)
    event = {
        "status": "success",
        "name": stranger.metadata.name,
        "namespace": run.namespace,
        "message": "",
        **stored[1]["trigger_kwargs"],
    }
    with pytest.raises(PodReplacedError):
        resumed(run, ours, event)


def test_an_event_of_an_older_operator_gets_its_uid_from_the_record(run: Run, ours: type[Any]) -> None:
    from airflow_steadfast.durable_pod.termination import PodReplacedError

    _stored, stranger = replaced(run, ours)
    event = {"status": "success", "name": stranger.metadata.name, "namespace": run.namespace, "message": ""}
    with pytest.raises(PodReplacedError):
        resumed(run, ours, event)


@pytest.mark.parametrize("ending", ["on_kill", "cleanup"])
def test_what_the_trigger_deletes_is_its_own_pod_only(
    run: Run, ours: type[Any], ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.cncf.kubernetes.triggers import pod as triggers

    if not hasattr(triggers.KubernetesPodTrigger, ending):
        assert ending == "on_kill", "every trigger has a cleanup"
        return

    async def safe(_self: Any) -> bool:
        return True

    monkeypatch.setattr(triggers.KubernetesPodTrigger, "safe_to_cancel", safe, raising=False)
    stored = deferred(run, ours)
    (pod,) = run.pods()
    asyncio.run(getattr(trigger_of(stored), ending)())
    deletes = not run.pods()
    if deletes:
        stranger = run.twin(pod, pod.metadata.name)
        asyncio.run(getattr(trigger_of(stored), ending)())
        assert [p.metadata.uid for p in run.pods()] == [stranger.metadata.uid]
    else:
        assert ending == "cleanup", "a user's kill deletes the pod"


def test_a_success_whose_pod_is_gone_is_one_where_no_result_was_asked_for(run: Run, ours: type[Any]) -> None:
    stored = deferred(run, ours)
    (pod,) = run.pods()
    run.play(pod, "Succeeded", base=0)
    event = fired(trigger_of(stored))
    run.remove(pod)
    assert resumed(run, ours, event) is None


def test_a_result_that_went_with_its_pod_is_an_error_and_never_none(
    run: Run, ours: type[Any], stock: type[Any]
) -> None:
    from airflow_steadfast.durable_pod.leftovers import LostResultError
    from airflow_steadfast.durable_pod.resume import ResultGoneError

    stored = deferred(run, ours, do_xcom_push=True)
    (pod,) = run.pods()
    run.play(pod, "Succeeded", base=0, airflow_xcom_sidecar=0)
    event = fired(trigger_of(stored))
    run.remove(pod)
    with pytest.raises(ResultGoneError, match="on_lost_xcom=rerun"):
        resumed(run, ours, event, do_xcom_push=True)
    with pytest.raises(LostResultError):
        resumed(run, ours, event, do_xcom_push=True, on_lost_xcom="fail")
    if hasattr(stock, "MAX_REDEFER_ATTEMPTS"):
        # Upstream (10.17.1 and newer) hands over None as if it were the result.
        assert resumed(run, stock, event, do_xcom_push=True) is None


def test_a_pod_whose_time_is_up_is_deleted_and_never_followed_again(run: Run, ours: type[Any]) -> None:
    from airflow.exceptions import AirflowException

    stored = deferred(run, ours, on_finish_action="keep_pod")
    (pod,) = run.pods()
    run.play(pod, "Running", base=None)
    event = {
        "status": "timeout",
        "name": pod.metadata.name,
        "namespace": run.namespace,
        "message": "reached the execution_timeout deadline",
        **stored[1]["trigger_kwargs"],
        "_execution_deadline": int(time.time()) - 1,
    }
    with pytest.raises(AirflowException, match="execution_timeout"):
        resumed(run, ours, event, on_finish_action="keep_pod")
    assert run.pods() == []
    assert run.stored["pod_identifier"]["state"] == "finished"


def test_a_task_that_times_out_before_it_could_defer_leaves_no_pod(run: Run, ours: type[Any]) -> None:
    from airflow_steadfast.durable_pod.termination import TIMEOUTS

    operator = run.operator(ours, deferrable=True)

    def late(*_: Any, **__: Any) -> None:
        raise TIMEOUTS[0]("late")

    operator.convert_config_file_to_dict = late
    with pytest.raises(TIMEOUTS):
        operator.execute_async(run.context())
    assert run.pods() == []
    assert run.stored["pod_identifier"]["state"] == "finished"


def test_a_pod_whose_deferral_has_timed_out_is_deleted_and_never_followed_again(
    run: Run, ours: type[Any]
) -> None:
    deferred(run, ours)
    operator = run.operator(ours, deferrable=True)
    with pytest.raises(Exception, match="timeout"):
        operator.resume_execution("__fail__", {"error": "Trigger timeout"}, run.context())
    assert run.pods() == []
    assert run.stored["pod_identifier"]["state"] == "finished"


def test_a_trigger_that_failed_says_nothing_of_the_pod(run: Run, ours: type[Any]) -> None:
    deferred(run, ours)
    operator = run.operator(ours, deferrable=True)
    with pytest.raises(Exception, match="failure"):
        operator.resume_execution("__fail__", {"error": "Trigger failure"}, run.context())
    assert len(run.pods()) == 1
    stored = deferred(run, ours, 2)
    assert stored[1]["pod_name"] == run.pods()[0].metadata.name
    assert run.events() == ["2.attempt", "2.identity_hit"]


def test_a_pod_that_ended_while_nobody_watched_needs_no_trigger(run: Run, ours: type[Any]) -> None:
    from airflow_steadfast.durable_pod.termination import DEFERRALS

    deferred(run, ours)
    (pod,) = run.pods()
    run.play(pod, "Succeeded", base=0)
    operator = run.operator(ours, deferrable=True)
    try:
        operator.execute_async(run.context(2))
    except DEFERRALS as deferral:  # providers before 10.12.2 always defer
        resumed(run, ours, fired(deferral.trigger), 2)
    assert run.events() == ["2.attempt", "2.harvested", "2.identity_hit"]
    assert run.pods() == []
