# SPDX-License-Identifier: Apache-2.0
"""Without a task state store (Airflow below 3.3): the pod's name and annotations are the record.

Runs on every pair; on 3.3 the class is made as it is made below.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.exceptions import AirflowException

from tests.apiserver.durable_pod.one_process import Run
from tests.support.apiserver import api_server

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.airflow, pytest.mark.apiserver]

_NUMBERS = itertools.count()
FIXED: dict[str, Any] = {"name": "fixed", "random_name_suffix": False}


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with api_server() as running:
        yield running


@pytest.fixture
def run(server: Any) -> Run:
    return Run(server.client(), str(server.kubeconfig), f"exact-{next(_NUMBERS)}", has_store=False)


@pytest.fixture
def stock() -> type[Any]:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    return KubernetesPodOperator


def made(stock: type[Any], *, exact: bool) -> type[Any]:
    from airflow_steadfast import capabilities
    from airflow_steadfast.durable_pod import install

    cls = type("Ours", (stock,), {"__doc__": stock.__doc__})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(capabilities, "has_task_state_store", lambda _: False)
        mode = install.make_durable(cls, exact=exact)
    assert mode == ("exact_identity" if exact else "reattach_on_restart")
    return cls


@pytest.fixture
def ours(stock: type[Any]) -> type[Any]:
    return made(stock, exact=True)


def searches(server: Any, run: Run) -> int:
    return sum(r.verb == "list" and r.namespace == run.namespace for r in server.requests())


def test_a_retry_finds_its_pod_without_a_search_and_whatever_its_labels(
    run: Run, ours: type[Any], server: Any
) -> None:
    first = run.obtain(run.operator(ours, labels={"stamp": "1"}))
    run.twin(first, "twin")
    found = run.obtain(run.operator(ours, labels={"stamp": "2"}), 2)
    assert found.metadata.uid == first.metadata.uid
    assert searches(server, run) == 0


def test_the_stock_class_keeps_the_label_search_and_durable_switches_it(run: Run, stock: type[Any]) -> None:
    labels = made(stock, exact=False)
    first = run.obtain(run.operator(labels))
    assert run.obtain(run.operator(labels), 2).metadata.uid == first.metadata.uid
    assert run.obtain(run.operator(labels, durable=False), 2).metadata.uid != first.metadata.uid
    with pytest.raises(AirflowException, match="More than one pod running"):
        run.obtain(run.operator(labels), 3)


def test_the_explicit_operator_has_it_and_the_stock_class_by_a_setting(
    stock: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast import capabilities, settings
    from airflow_steadfast.durable_pod import install

    monkeypatch.setattr(capabilities, "has_task_state_store", lambda _: False)
    for switch, mode in ((False, "reattach_on_restart"), (True, "exact_identity")):
        monkeypatch.setattr(settings, "current", lambda on=switch: settings.Settings(exact_identity=on))
        fresh = type("Fresh", (stock,), {})
        install.install(SimpleNamespace(KubernetesPodOperator=fresh))
        assert getattr(fresh, install.MARK) == mode
    patched = made(stock, exact=False)
    explicit = type("Explicit", (patched,), {})
    assert install.make_durable(explicit) == "exact_identity"
    assert patched.find_pod is stock.find_pod


def test_names_keep_the_operators_part_and_the_length(run: Run, ours: type[Any]) -> None:
    pod = run.obtain(run.operator(ours, name="a-" + "very-" * 20 + "long-name"))
    assert pod.metadata.name.startswith("a-very-very-")
    assert len(pod.metadata.name) <= 63
    assert pod.metadata.annotations["steadfast/launch"].startswith("exact-")


def test_a_crash_right_after_the_create_leaves_a_name_to_look_up(run: Run, ours: type[Any]) -> None:
    operator = run.operator(ours)
    post = operator.pod_manager.run_pod_async

    def crash(*arguments: Any, **keywords: Any) -> Any:
        post(*arguments, **keywords)
        raise KeyboardInterrupt

    operator.pod_manager.run_pod_async = crash
    with pytest.raises(KeyboardInterrupt):
        run.obtain(operator)
    (pod,) = run.pods()
    assert run.obtain(run.operator(ours), 2).metadata.uid == pod.metadata.uid


def test_a_lost_reply_is_repeated_under_the_same_name(
    run: Run, ours: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from urllib3.exceptions import ProtocolError

    from airflow_steadfast.durable_pod import patience

    monkeypatch.setattr(patience.time, "sleep", lambda _: None)
    operator = run.operator(ours)
    post, calls = operator.pod_manager.run_pod_async, itertools.count()

    def lossy(*arguments: Any, **keywords: Any) -> Any:
        pod = post(*arguments, **keywords)
        if next(calls) == 0:
            raise ProtocolError("connection reset")
        return pod

    operator.pod_manager.run_pod_async = lossy
    pod = run.obtain(operator)
    assert run.names() == {pod.metadata.name}


def test_two_workers_at_once_make_one_pod(run: Run, ours: type[Any]) -> None:
    """A stale worker and the live one, both in their first try as far as they know."""
    first, second = run.obtain(run.operator(ours)), run.obtain(run.operator(ours))
    assert first.metadata.uid == second.metadata.uid


def test_a_dag_run_made_anew_under_an_old_name_does_its_work(run: Run, ours: type[Any]) -> None:
    for phase, code in (("Succeeded", 0), ("Running", None)):
        run.ids["id"] = f"old-{phase}"
        old = run.obtain(run.operator(ours))
        run.play(old, phase, base=code)
        run.ids["id"] = f"new-{phase}"
        assert run.obtain(run.operator(ours)).metadata.uid != old.metadata.uid
        for pod in run.pods():
            run.remove(pod)


def test_a_lost_reply_of_work_that_is_done_in_no_time_is_no_second_run(
    run: Run, ours: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from urllib3.exceptions import ProtocolError

    from airflow_steadfast.durable_pod import patience

    monkeypatch.setattr(patience.time, "sleep", lambda _: None)
    operator = run.operator(ours)
    post, calls = operator.pod_manager.run_pod_async, itertools.count()

    def lossy(*arguments: Any, **keywords: Any) -> Any:
        pod = post(*arguments, **keywords)
        if next(calls) == 0:
            run.play(pod, "Succeeded", base=0)
            raise ProtocolError("connection reset")
        return pod

    operator.pod_manager.run_pod_async = lossy
    pod = run.obtain(operator)
    assert run.names() == {pod.metadata.name}


def test_a_success_is_harvested_and_a_failure_gets_a_fresh_pod(run: Run, ours: type[Any]) -> None:
    keep = {"on_finish_action": "keep_pod"}
    old = run.obtain(run.operator(ours, **keep))
    run.play(old, "Failed", base=1)
    fresh = run.obtain(run.operator(ours, **keep), 2)
    assert fresh.metadata.uid != old.metadata.uid
    assert run.names() == {old.metadata.name, fresh.metadata.name}
    assert run.obtain(run.operator(ours, **keep), 3).metadata.uid == fresh.metadata.uid
    run.play(fresh, "Succeeded", base=0)
    assert run.obtain(run.operator(ours, **keep), 4).metadata.uid == fresh.metadata.uid


def test_a_successor_is_found_behind_a_name_that_has_become_free(run: Run, ours: type[Any]) -> None:
    old = run.obtain(run.operator(ours))
    run.hold_and_delete(old)
    successor = run.obtain(run.operator(ours), 2)
    assert successor.metadata.uid != old.metadata.uid
    body = {"metadata": {"finalizers": None}}
    run.api.patch_namespaced_pod(old.metadata.name, run.namespace, body)
    assert run.obtain(run.operator(ours), 3).metadata.uid == successor.metadata.uid


def test_a_clear_makes_a_fresh_pod_and_deletes_the_old_one(run: Run, ours: type[Any]) -> None:
    old = run.obtain(run.operator(ours))
    fresh = run.obtain(run.operator(ours), 2, max_tries=4)
    assert fresh.metadata.uid != old.metadata.uid
    assert old.metadata.uid not in {pod.metadata.uid for pod in run.pods()}


def test_a_clear_may_reattach(run: Run, ours: type[Any]) -> None:
    old = run.obtain(run.operator(ours))
    found = run.obtain(run.operator(ours, on_clear="reattach"), 2, max_tries=4)
    assert found.metadata.uid == old.metadata.uid


def test_a_stranger_under_our_name_is_neither_followed_nor_deleted(run: Run, ours: type[Any]) -> None:
    mine = run.obtain(run.operator(ours))
    run.remove(mine)
    stranger = run.twin(mine, mine.metadata.name)
    for number in (1, 2):
        pod = run.obtain(run.operator(ours), number)
        assert pod.metadata.uid != stranger.metadata.uid
    assert stranger.metadata.uid in {pod.metadata.uid for pod in run.pods()}
    assert len(run.pods()) == 2


def test_a_fixed_name_is_kept_and_fenced_by_the_annotation(run: Run, ours: type[Any]) -> None:
    from airflow_steadfast.durable_pod.create import PodNameTakenError

    first = run.obtain(run.operator(ours, **FIXED))
    assert first.metadata.name == "fixed"
    assert run.obtain(run.operator(ours, **FIXED), 2).metadata.uid == first.metadata.uid
    run.remove(first)
    run.twin(first, "fixed")
    with pytest.raises(PodNameTakenError):
        run.obtain(run.operator(ours, **FIXED), 3)


def test_two_airflows_and_two_runs_have_their_own_names(
    run: Run, ours: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast import settings

    one = run.obtain(run.operator(ours))
    monkeypatch.setattr(settings, "current", lambda: settings.Settings(deployment="another"))
    two = run.obtain(run.operator(ours), 2)
    run.ids["run_id"] = "another"
    three = run.obtain(run.operator(ours), 2)
    assert len({pod.metadata.name for pod in (one, two, three)}) == 3


def test_a_stop_leaves_the_pod_and_never_ends_as_a_success(run: Run, ours: type[Any]) -> None:
    from airflow_steadfast.durable_pod import termination

    operator = run.operator(ours)
    pod = run.obtain(operator)
    operator.pod_request_obj, operator.pod = pod, pod
    run.play(pod, "Running", base=None)
    calls = itertools.count()
    native = operator.await_pod_completion

    def interrupted(*arguments: Any, **keywords: Any) -> Any:
        if next(calls) == 0:
            operator.on_kill()
            if termination._CALLER_RAISES:
                raise termination.STOPS[1]("Task received SIGTERM signal")
        return native(*arguments, **keywords)

    operator.await_pod_completion = interrupted
    with pytest.raises((termination.TaskKilledError, *termination.STOPS)):
        operator.execute_sync(run.context())
    assert [p.metadata.uid for p in run.pods()] == [pod.metadata.uid]
    assert run.obtain(run.operator(ours), 2).metadata.uid == pod.metadata.uid
