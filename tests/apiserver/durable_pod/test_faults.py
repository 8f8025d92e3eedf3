# SPDX-License-Identifier: Apache-2.0
"""The same with faults: a store that fails, a crash between create and uid, a lost reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.apiserver.durable_pod.bench import STATE_KEY, Fault
from tests.apiserver.durable_pod.test_walk import fresh_pod, succeed

if TYPE_CHECKING:
    from tests.apiserver.durable_pod.bench import Bench

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.apiserver]

NOT_FOUND = {"detail": {"reason": "not_found", "message": "Task Instance not found"}}


def test_a_superseded_worker_stops_before_it_creates(bench: Bench) -> None:
    bench.new_run("superseded")
    attempt = bench.start_try("superseded", "ours", Fault("PUT", STATE_KEY, 404, NOT_FOUND))
    log = attempt.finish()
    assert "no longer knows this task instance" in log
    assert bench.created("superseded") == 0


def test_a_forbidden_store_fails_clearly_before_it_creates(bench: Bench) -> None:
    bench.new_run("forbidden")
    attempt = bench.start_try("forbidden", "ours", Fault("PUT", STATE_KEY, 403))
    log = attempt.finish()
    assert "may not write the task state store (403)" in log
    assert bench.created("forbidden") == 0


@pytest.mark.parametrize(("run", "status"), [("store-500", 500), ("store-old-server", 404)])
def test_a_store_without_an_answer_stops_nothing(bench: Bench, run: str, status: int) -> None:
    bench.new_run(run)
    attempt = bench.start_try(run, "ours", Fault("PUT", "/store/ti/", status))
    (pod,) = bench.await_pods(run)
    succeed(bench, attempt, pod.metadata.name)
    # One failed write, then the store is left alone; the last chance is the end of the try.
    assert attempt.calls() == [
        f"GET {STATE_KEY} 404",
        f"PUT {STATE_KEY} {status}",
        f"PUT steadfast.event.v1.1.record_error {status}",
    ]
    assert bench.created(run) == 1


def test_after_a_store_outage_the_pod_is_found_by_its_labels(bench: Bench) -> None:
    bench.new_run("outage")
    attempt = bench.start_try("outage", "ours", Fault("PUT", "/store/ti/", 500))
    (pod,) = bench.await_pods("outage")
    bench.run_pod("outage", pod.metadata.name)
    attempt.kill()
    bench.next_try("outage", "ours")
    attempt = bench.start_try("outage", "ours")
    bench.await_known("outage", attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert bench.events("outage") == ["2.attempt", "2.label_fallback.no_record"]
    assert bench.created("outage") == 1


def test_a_store_that_does_not_answer_a_retry_is_a_fallback_counted_at_the_end(bench: Bench) -> None:
    bench.new_run("unreadable")
    attempt = bench.start_try("unreadable", "ours")
    (pod,) = bench.await_pods("unreadable")
    bench.await_known("unreadable", attempt)
    bench.run_pod("unreadable", pod.metadata.name)
    attempt.kill()
    bench.next_try("unreadable", "ours")
    attempt = bench.start_try("unreadable", "ours", Fault("GET", STATE_KEY, 500))
    bench.until(lambda: bench.lists("unreadable") == 1, "the label search", attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert bench.events("unreadable") == [
        "2.attempt",
        "2.label_fallback.store_unavailable",
        "2.record_error",
    ]
    assert bench.created("unreadable") == 1


def test_a_failed_write_of_the_uid_leaves_the_intent_which_is_enough(bench: Bench) -> None:
    bench.new_run("intent")
    attempt = bench.start_try("intent", "ours", Fault("PUT", STATE_KEY, 500, first=1))
    (pod,) = bench.await_pods("intent")
    bench.run_pod("intent", pod.metadata.name)
    bench.until(lambda: len(attempt.calls()) == 3, "the uid's write has failed", attempt)
    attempt.kill()
    record = bench.record("intent") or {}
    assert record["state"] == "creating"
    assert "uid" not in record
    bench.next_try("intent", "ours")
    attempt = bench.start_try("intent", "ours")
    assert bench.await_known("intent", attempt)["uid"] == pod.metadata.uid
    succeed(bench, attempt, pod.metadata.name)
    assert bench.events("intent") == ["2.attempt", "2.identity_hit"]
    assert (bench.created("intent"), bench.lists("intent")) == (1, 0)


def test_upstream_loses_its_pod_in_the_same_scenario(bench: Bench) -> None:
    bench.new_run("intent-stock")
    attempt = bench.start_try("intent-stock", "stock", Fault("PUT", STATE_KEY, 500))
    (pod,) = bench.await_pods("intent-stock")
    log = attempt.finish()
    assert "API_SERVER_ERROR" in log or "AirflowRuntimeError" in log
    assert bench.state("intent-stock", "stock") != "success"
    assert [p.metadata.name for p in bench.list("intent-stock")] == [pod.metadata.name]


def test_an_intent_whose_create_never_arrived_is_created_under_its_name(bench: Bench) -> None:
    bench.new_run("unborn")
    attempt = bench.start_try("unborn", "ours")
    (pod,) = bench.await_pods("unborn")
    record = bench.await_known("unborn", attempt)
    attempt.kill()
    bench.remove_pod("unborn", pod.metadata.name)
    record.pop("uid")
    bench.set_record("unborn", {**record, "state": "creating"})
    bench.next_try("unborn", "ours")
    attempt = bench.start_try("unborn", "ours")
    name = fresh_pod(bench, attempt)
    assert name == pod.metadata.name
    succeed(bench, attempt, name)
    assert bench.events("unborn") == []
    assert bench.lists("unborn") == 0


def test_a_fixed_name_held_by_another_launch_fails_clearly(bench: Bench) -> None:
    from kubernetes import client

    bench.new_run("taken")
    other = client.V1Pod(
        metadata=client.V1ObjectMeta(name="fixed"),
        spec=client.V1PodSpec(containers=[client.V1Container(name="base", image="i")]),
    )
    uid = bench.pods.create_namespaced_pod("taken", other).metadata.uid
    attempt = bench.start_try("taken", "ours_fixed_name")
    log = attempt.finish()
    assert "the name of the pod to create is taken" in log
    assert [p.metadata.uid for p in bench.list("taken")] == [uid]


CRASH_POINTS = {
    "before-the-intent": (Fault("PUT", STATE_KEY, hold="before"), 0),
    "between-intent-and-create": (Fault("PUT", STATE_KEY, hold="after"), 0),
    "between-create-and-uid": (Fault("PUT", STATE_KEY, first=1, hold="before"), 1),
    "after-the-uid": (Fault("PUT", STATE_KEY, first=1, hold="after"), 1),
}


@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_at_any_point_of_the_writing_leads_to_one_pod(bench: Bench, point: str) -> None:
    fault, pods = CRASH_POINTS[point]
    bench.new_run(point)
    attempt = bench.start_try(point, "ours", fault)
    bench.until(attempt.is_held, "the worker is where it is to die", attempt)
    assert len(bench.list(point)) == pods
    for pod in bench.list(point):
        bench.run_pod(point, pod.metadata.name)
    attempt.kill()
    bench.next_try(point, "ours")
    attempt = bench.start_try(point, "ours")
    (pod,) = bench.await_pods(point)
    bench.await_known(point, attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert bench.created(point) == 1
    # Without an intent the store has nothing to say, and the search is the provider's last resort.
    assert bench.lists(point) == (1 if point == "before-the-intent" else 0)


def test_upstream_runs_twice_after_a_crash_with_a_slow_store_and_changed_labels(bench: Bench) -> None:
    """Between create and persist upstream has the labels only, and those hold what the user puts there."""
    bench.new_run("crash-stock")
    attempt = bench.start_try("crash-stock", "stock_labels", Fault("PUT", STATE_KEY, hold="before"))
    bench.until(attempt.is_held, "the worker is where it is to die", attempt)
    (old,) = bench.list("crash-stock")
    bench.run_pod("crash-stock", old.metadata.name)
    attempt.kill()
    bench.next_try("crash-stock", "stock_labels")
    attempt = bench.start_try("crash-stock", "stock_labels")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.created("crash-stock") == 2
