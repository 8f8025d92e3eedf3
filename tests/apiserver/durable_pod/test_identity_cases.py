# SPDX-License-Identifier: Apache-2.0
"""Which pod a try takes for its own: each case on the real API server, upstream's choice beside ours."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from airflow.exceptions import AirflowException

from tests.apiserver.durable_pod.one_process import Run
from tests.support.apiserver import api_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = [pytest.mark.airflow, pytest.mark.apiserver]

SIDECAR = "airflow_xcom_sidecar"
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    with api_server() as running:
        yield running


@pytest.fixture
def run(server: Any) -> Run:
    return Run(server.client(), str(server.kubeconfig), f"case-{next(_NUMBERS)}")


@pytest.fixture
def new_run(server: Any) -> Callable[..., Run]:
    return lambda **given: Run(server.client(), str(server.kubeconfig), f"case-{next(_NUMBERS)}", **given)


@pytest.fixture
def ours() -> type[Any]:
    """An operator with a task state store, whatever the installed Airflow has."""
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


def upstream_has_identity(stock: type[Any]) -> bool:
    """Whether this provider stores an identity at all (10.20 and newer)."""
    return hasattr(stock, "_get_pod_from_task_state_store")


# --- the stored value ---------------------------------------------------------------------------


def test_a_value_of_the_provider_is_taken_over_only_for_a_pod_that_says_it_is_ours(
    new_run: Callable[..., Run], ours: type[Any]
) -> None:
    run = new_run()
    mine = run.obtain(run.operator(ours))
    run.stored["pod_identifier"] = {"name": mine.metadata.name, "namespace": run.namespace}
    again = run.obtain(run.operator(ours), 2)
    assert again.metadata.uid == mine.metadata.uid
    assert run.stored["pod_identifier"]["uid"] == mine.metadata.uid
    other = new_run(ids={"run_id": "another"})
    stranger = run.twin(mine, "stranger", namespace=run.namespace, labels=None)
    other.stored["pod_identifier"] = {"name": "stranger", "namespace": run.namespace}
    context = other.context(2)
    operator = other.operator(ours)
    pod = operator.get_or_create_pod(operator.build_pod_request_obj(context), context)
    assert pod.metadata.uid != stranger.metadata.uid


def test_the_reused_name_of_a_gone_pod_leads_nobody_to_the_stranger(
    run: Run, ours: type[Any], stock: type[Any]
) -> None:
    for cls in (ours, stock):
        run.stored.clear()
        fixed: dict[str, Any] = {"name": "fixed", "random_name_suffix": False}
        mine = run.obtain(run.operator(cls, **fixed))
        run.remove(mine)
        stranger = run.twin(mine, "fixed", labels={**mine.metadata.labels, "run_id": "another"})
        if cls is ours:
            from airflow_steadfast.durable_pod.create import PodNameTakenError

            with pytest.raises(PodNameTakenError, match="neither adopted nor deleted"):
                run.obtain(run.operator(cls, **fixed), 2)
            assert run.pods()[0].metadata.uid == stranger.metadata.uid
        elif upstream_has_identity(stock):
            # Upstream follows whatever has the name.
            assert run.obtain(run.operator(cls, **fixed), 2).metadata.uid == stranger.metadata.uid
        run.remove(stranger)


def test_a_pod_in_another_cluster_is_told_from_one_that_is_gone_and_a_uid_match_is_never_blocked(
    run: Run, ours: type[Any]
) -> None:
    mine = run.obtain(run.operator(ours))
    run.stored["pod_identifier"]["cluster"] = "0123456789abcdef"
    assert run.obtain(run.operator(ours), 2).metadata.uid == mine.metadata.uid
    run.remove(mine)
    run.stored["pod_identifier"]["cluster"] = "0123456789abcdef"
    fresh = run.obtain(run.operator(ours), 3)
    assert fresh.metadata.uid != mine.metadata.uid
    assert "3.label_fallback.other" in run.events()


def test_a_terminating_pod_is_not_followed(run: Run, ours: type[Any], stock: type[Any]) -> None:
    old = run.obtain(run.operator(ours))
    run.hold_and_delete(old)
    native = dict(run.stored["pod_identifier"])
    assert run.obtain(run.operator(ours), 2).metadata.uid != old.metadata.uid
    if upstream_has_identity(stock):
        run.stored["pod_identifier"] = {"name": native["name"], "namespace": native["namespace"]}
        assert run.obtain(run.operator(stock), 2).metadata.uid == old.metadata.uid


def test_a_checked_pod_is_not_followed(run: Run, ours: type[Any]) -> None:
    operator = run.operator(ours)
    old = run.obtain(operator)
    operator.patch_already_checked(old, reraise=True)
    assert run.obtain(run.operator(ours), 2).metadata.uid != old.metadata.uid
    assert run.events() == []


def test_a_patch_that_is_switched_off_leaves_every_pod_to_be_found(
    run: Run, ours: type[Any], stock: type[Any]
) -> None:
    pod = run.obtain(run.operator(ours))
    assert run.obtain(run.operator(stock), 2).metadata.uid == pod.metadata.uid
    assert run.obtain(run.operator(ours), 3).metadata.uid == pod.metadata.uid


# --- the label search ---------------------------------------------------------------------------


def test_labels_that_the_user_has_changed_do_not_hide_the_pod(
    run: Run, ours: type[Any], stock: type[Any]
) -> None:
    old = run.obtain(run.operator(ours, labels={"stamp": "1"}))
    run.stored.clear()
    found = run.obtain(run.operator(ours, labels={"stamp": "2"}), 2)
    assert found.metadata.uid == old.metadata.uid
    run.stored.clear()
    assert run.obtain(run.operator(stock, labels={"stamp": "2"}), 2).metadata.uid != old.metadata.uid


def test_the_search_of_an_unmapped_task_finds_no_mapped_pod(run: Run, ours: type[Any]) -> None:
    run.ids["map_index"] = 0
    mapped = run.obtain(run.operator(ours))
    run.ids["map_index"] = -1
    run.stored.clear()
    assert run.obtain(run.operator(ours), 2).metadata.uid != mapped.metadata.uid


def test_two_airflows_in_one_namespace_keep_their_pods(
    run: Run, ours: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast import settings

    monkeypatch.setattr(settings, "current", lambda: settings.Settings(deployment="one"))
    theirs = run.obtain(run.operator(ours))
    run.stored.clear()
    monkeypatch.setattr(settings, "current", lambda: settings.Settings(deployment="two"))
    assert run.obtain(run.operator(ours), 2).metadata.uid != theirs.metadata.uid
    run.stored.clear()
    monkeypatch.setattr(settings, "current", lambda: settings.Settings(deployment="one"))
    assert run.obtain(run.operator(ours), 2).metadata.uid == theirs.metadata.uid


def test_ids_that_share_a_hashed_label_are_told_apart_by_the_annotation(run: Run, ours: type[Any]) -> None:
    run.ids["run_id"] = "r" * 240
    theirs = run.obtain(run.operator(ours))
    run.stored.clear()
    # The same label, made for another run: what a collision of the shortened hash would look like.
    annotations = {**theirs.metadata.annotations}
    annotations["steadfast/task"] = annotations["steadfast/task"].replace("r" * 240, "q" * 240)
    body = {"metadata": {"annotations": annotations}}
    run.api.patch_namespaced_pod(theirs.metadata.name, run.namespace, body)
    assert run.obtain(run.operator(ours), 2).metadata.uid != theirs.metadata.uid


def test_of_two_candidates_the_one_that_was_made_for_this_task_is_taken(
    run: Run, ours: type[Any], stock: type[Any]
) -> None:
    mine = run.obtain(run.operator(ours))
    run.twin(mine, "twin")
    run.stored.clear()
    assert run.obtain(run.operator(ours), 2).metadata.uid == mine.metadata.uid
    run.stored.clear()
    with pytest.raises(AirflowException, match="More than one pod running"):
        run.obtain(run.operator(stock), 2)


def test_after_the_identity_is_known_no_twin_is_ever_met(run: Run, ours: type[Any], stock: type[Any]) -> None:
    operator = run.operator(ours)
    mine = run.obtain(operator)
    run.twin(mine, "twin")
    assert operator.find_pod(run.namespace, run.context()).metadata.uid == mine.metadata.uid
    with pytest.raises(AirflowException, match="More than one pod running"):
        run.operator(stock).find_pod(run.namespace, run.context())


# --- cleared ------------------------------------------------------------------------------------


def test_a_clear_makes_a_fresh_pod_and_deletes_the_old_one(run: Run, ours: type[Any]) -> None:
    old = run.obtain(run.operator(ours))
    fresh = run.obtain(run.operator(ours), 2, max_tries=4)
    assert fresh.metadata.uid != old.metadata.uid
    assert run.names() == {fresh.metadata.name}
    assert run.events() == []


def test_upstream_follows_the_pod_of_before_the_clear(run: Run, stock: type[Any]) -> None:
    old = run.obtain(run.operator(stock))
    assert run.obtain(run.operator(stock), 2, max_tries=4).metadata.uid == old.metadata.uid


def test_a_clear_may_reattach_and_the_next_loss_is_no_clear(run: Run, ours: type[Any]) -> None:
    old = run.obtain(run.operator(ours, on_clear="reattach"))
    found = run.obtain(run.operator(ours, on_clear="reattach"), 2, max_tries=4)
    assert found.metadata.uid == old.metadata.uid
    assert run.stored["pod_identifier"]["max_tries"] == 4
    assert run.obtain(run.operator(ours), 3, max_tries=4).metadata.uid == old.metadata.uid


def test_a_clear_of_a_running_task_whose_worker_is_gone_is_seen_by_the_number_of_the_try(
    run: Run, ours: type[Any]
) -> None:
    """Airflow leaves max_tries as it is then; a try that the retries do not allow for is a clear's."""
    old = run.obtain(run.operator(ours), 1, max_tries=0)
    fresh = run.obtain(run.operator(ours), 2, max_tries=0)
    assert fresh.metadata.uid != old.metadata.uid
    assert run.names() == {fresh.metadata.name}


def test_a_clear_without_a_record_is_seen_by_the_pods_annotation(run: Run, ours: type[Any]) -> None:
    old = run.obtain(run.operator(ours))
    run.stored.clear()
    fresh = run.obtain(run.operator(ours), 2, max_tries=4)
    assert fresh.metadata.uid != old.metadata.uid
    assert run.names() == {fresh.metadata.name}


# --- ended while nobody watched -----------------------------------------------------------------


def test_a_success_is_harvested_and_may_be_run_again_instead(run: Run, ours: type[Any]) -> None:
    done = run.obtain(run.operator(ours))
    run.play(done, "Succeeded", base=0)
    assert run.obtain(run.operator(ours), 2).metadata.uid == done.metadata.uid
    assert run.events() == ["2.attempt", "2.harvested", "2.identity_hit"]
    assert run.obtain(run.operator(ours, on_finished="rerun"), 3).metadata.uid != done.metadata.uid


def test_upstream_throws_a_success_away_and_runs_again(run: Run, stock: type[Any]) -> None:
    done = run.obtain(run.operator(stock))
    run.play(done, "Succeeded", base=0)
    assert run.obtain(run.operator(stock), 2).metadata.uid != done.metadata.uid


def test_a_result_whose_sidecar_still_serves_it_is_harvested(run: Run, ours: type[Any]) -> None:
    done = run.obtain(run.operator(ours, do_xcom_push=True))
    run.play(done, "Running", base=0, **{SIDECAR: None})
    assert run.obtain(run.operator(ours, do_xcom_push=True), 2).metadata.uid == done.metadata.uid
    assert "2.harvested" in run.events()


@pytest.mark.parametrize(("phase", "sidecar"), [("Succeeded", 0), ("Failed", 137)])
def test_a_lost_result_is_made_again_or_an_explicit_error(
    new_run: Callable[..., Run], ours: type[Any], phase: str, sidecar: int
) -> None:
    from airflow_steadfast.durable_pod.leftovers import LostResultError

    run = new_run()
    done = run.obtain(run.operator(ours, do_xcom_push=True))
    run.play(done, phase, base=0, **{SIDECAR: sidecar})
    strict = run.operator(ours, do_xcom_push=True, on_lost_xcom="fail")
    with pytest.raises(LostResultError, match="its XCom cannot be had any more"):
        run.obtain(strict, 2)
    assert run.names() == {done.metadata.name}
    assert run.obtain(run.operator(ours, do_xcom_push=True), 2).metadata.uid != done.metadata.uid


def test_an_exit_code_that_means_skip_is_a_result(run: Run, ours: type[Any]) -> None:
    done = run.obtain(run.operator(ours, skip_on_exit_code=99))
    run.play(done, "Failed", base=99)
    assert run.obtain(run.operator(ours, skip_on_exit_code=99), 2).metadata.uid == done.metadata.uid


@pytest.mark.parametrize("action", ["keep_pod", "delete_succeeded_pod", "delete_pod"])
def test_a_failure_counts_as_the_earlier_attempts_and_a_fresh_pod_is_made(
    run: Run, ours: type[Any], stock: type[Any], action: str
) -> None:
    for cls in (ours, stock):
        run.stored.clear()
        old = run.obtain(run.operator(cls, on_finish_action=action))
        run.play(old, "Failed", base=1)
        found = run.obtain(run.operator(cls, on_finish_action=action), 2)
        returned_the_dead_one = cls is stock and action != "delete_pod"
        assert (found.metadata.uid == old.metadata.uid) is returned_the_dead_one
        for pod in run.pods():
            run.remove(pod)


def test_an_evicted_pod_is_a_failed_one(run: Run, ours: type[Any]) -> None:
    old = run.obtain(run.operator(ours))
    run.api.patch_namespaced_pod_status(
        old.metadata.name, run.namespace, {"status": {"phase": "Failed", "reason": "Evicted"}}
    )
    assert run.obtain(run.operator(ours), 2).metadata.uid != old.metadata.uid


def test_a_base_container_that_failed_beside_a_living_sidecar_is_a_failure(run: Run, ours: type[Any]) -> None:
    old = run.obtain(run.operator(ours, do_xcom_push=True))
    run.play(old, "Running", base=1, **{SIDECAR: None})
    assert run.obtain(run.operator(ours, do_xcom_push=True), 2).metadata.uid != old.metadata.uid
