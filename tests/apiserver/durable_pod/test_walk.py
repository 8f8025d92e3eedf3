# SPDX-License-Identifier: Apache-2.0
"""Tries of a real task against a real API server: what is found, what is created, what is counted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.durable_pod.bench import STATE_KEY

if TYPE_CHECKING:
    from tests.apiserver.durable_pod.bench import Bench, Try

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.apiserver]


def lose_the_worker(bench: Bench, run: str, task: str = "ours") -> Any:
    """A first try whose worker is killed while its pod runs; return the pod."""
    bench.new_run(run)
    attempt = bench.start_try(run, task)
    (pod,) = bench.await_pods(run)
    bench.until(lambda: bench.record(run), "the identity is stored", attempt)
    if task.startswith("ours"):
        bench.await_known(run, attempt)
    bench.run_pod(run, pod.metadata.name)
    attempt.kill()
    bench.next_try(run, task)
    return pod


def succeed(bench: Bench, attempt: Try, name: str) -> None:
    """Let the pod run and end well once the try follows it, and expect the task's success."""
    bench.run_pod(attempt.run_id, name)
    bench.end_pod(attempt.run_id, name)
    attempt.finish()
    assert bench.state(attempt.run_id, attempt.task_id) == "success", attempt.text()


def fresh_pod(bench: Bench, attempt: Try, *olds: str) -> str:
    """Wait for a pod that was not there before and return its name."""

    def new() -> str | None:
        names = (pod.metadata.name for pod in bench.list(attempt.run_id))
        return next((name for name in names if name not in olds), None)

    return bench.until(new, "a fresh pod", attempt)


def test_a_plain_first_try_stores_intent_then_uid_and_reports_nothing(bench: Bench) -> None:
    bench.new_run("first")
    attempt = bench.start_try("first", "ours")
    (pod,) = bench.await_pods("first")
    record = bench.await_known("first", attempt)
    assert record["uid"] == pod.metadata.uid
    assert record["launch"] == pod.metadata.annotations["steadfast/launch"]
    succeed(bench, attempt, pod.metadata.name)
    assert attempt.calls() == [f"GET {STATE_KEY} 404", f"PUT {STATE_KEY} 204", f"PUT {STATE_KEY} 204"]
    assert bench.events("first") == []
    assert (bench.created("first"), bench.lists("first")) == (1, 0)
    assert bench.list("first") == []


def test_a_plain_first_try_asks_the_api_server_less_than_upstream_does(bench: Bench) -> None:
    asked = {}
    for task in ("ours", "stock"):
        run = f"calls-{task}"
        bench.new_run(run)
        attempt = bench.start_try(run, task)
        (pod,) = bench.await_pods(run)
        succeed(bench, attempt, pod.metadata.name)
        # How often a running pod is read is a matter of time; all else is not.
        asked[task] = [r.verb for r in bench.requests(run) if r.verb != "get"]
        assert len(attempt.calls()) == (3 if task == "ours" else 2), "one call of the store more"
    assert sorted(asked["ours"]) == ["create", "delete"]
    assert sorted(asked["stock"]) == ["create", "delete", "list", "list"]


def test_the_retry_after_a_sigkill_finds_its_pod_by_identity_without_a_search(bench: Bench) -> None:
    pod = lose_the_worker(bench, "hit")
    attempt = bench.start_try("hit", "ours")
    bench.until(lambda: "2.identity_hit" in bench.events("hit"), "the hit is counted", attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert bench.events("hit") == ["2.attempt", "2.identity_hit"]
    assert (bench.created("hit"), bench.lists("hit")) == (1, 0)


def test_a_task_that_lost_its_supervisor_leaves_its_pod_to_the_next_try(bench: Bench) -> None:
    bench.new_run("orphaned")
    attempt = bench.start_try("orphaned", "ours")
    (pod,) = bench.await_pods("orphaned")
    bench.await_known("orphaned", attempt)
    orphans = attempt.kill_supervisor_only()
    bench.run_pod("orphaned", pod.metadata.name)
    attempt.await_end(orphans)
    assert [p.metadata.uid for p in bench.list("orphaned")] == [pod.metadata.uid]
    assert (bench.record("orphaned") or {})["state"] == "created"
    bench.next_try("orphaned", "ours")
    attempt = bench.start_try("orphaned", "ours")
    bench.until(lambda: "2.identity_hit" in bench.events("orphaned"), "the hit is counted", attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert (bench.created("orphaned"), bench.lists("orphaned")) == (1, 0)


def test_a_label_twin_beside_the_stored_pod_does_not_matter(bench: Bench) -> None:
    pod = lose_the_worker(bench, "twin")
    twin(bench, "twin", pod)
    attempt = bench.start_try("twin", "ours")
    bench.until(lambda: "2.identity_hit" in bench.events("twin"), "the hit is counted", attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert (bench.created("twin"), bench.lists("twin")) == (1, 0)
    assert [p.metadata.name for p in bench.list("twin")] == ["the-twin"]


def test_upstream_in_the_same_scenario_fails_the_task(bench: Bench) -> None:
    pod = lose_the_worker(bench, "twin-stock", "stock")
    twin(bench, "twin-stock", pod)
    attempt = bench.start_try("twin-stock", "stock")
    log = attempt.finish()
    assert "FoundMoreThanOnePodFailure" in log
    assert bench.state("twin-stock", "stock") != "success"


def test_the_patch_switched_on_between_two_tries_rescues_the_same_scenario(bench: Bench) -> None:
    pod = lose_the_worker(bench, "twin-upgraded", "stock")
    assert set(bench.record("twin-upgraded") or {}) == {"name", "namespace"}
    twin(bench, "twin-upgraded", pod)
    attempt = bench.start_try("twin-upgraded", "stock", patched=True)
    assert bench.await_known("twin-upgraded", attempt)["uid"] == pod.metadata.uid
    succeed(bench, attempt, pod.metadata.name)
    assert bench.events("twin-upgraded") == ["2.attempt", "2.identity_hit"]
    assert [p.metadata.name for p in bench.list("twin-upgraded")] == ["the-twin"]


def twin(bench: Bench, run: str, pod: Any) -> None:
    from kubernetes import client

    bench.pods.create_namespaced_pod(
        run,
        client.V1Pod(
            metadata=client.V1ObjectMeta(name="the-twin", labels=pod.metadata.labels),
            spec=client.V1PodSpec(containers=[client.V1Container(name="base", image="i")]),
        ),
    )
    bench.run_pod(run, "the-twin")


def test_without_a_record_the_labels_are_searched_once_and_the_identity_is_stored(bench: Bench) -> None:
    pod = lose_the_worker(bench, "lost")
    bench.delete_record("lost")
    attempt = bench.start_try("lost", "ours")
    record = bench.await_known("lost", attempt)
    assert record["uid"] == pod.metadata.uid
    attempt.kill()
    bench.next_try("lost", "ours")
    attempt = bench.start_try("lost", "ours")
    bench.until(lambda: "3.identity_hit" in bench.events("lost"), "the hit is counted", attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert bench.events("lost") == [
        "2.attempt",
        "2.label_fallback.no_record",
        "3.attempt",
        "3.identity_hit",
    ]
    assert (bench.created("lost"), bench.lists("lost")) == (1, 1)


@pytest.mark.parametrize(
    ("run", "value"),
    [("malformed-name", {"name": 7, "namespace": "x"}), ("malformed-kind", ["what", "is", "this"])],
)
def test_a_malformed_record_is_a_label_fallback(bench: Bench, run: str, value: Any) -> None:
    pod = lose_the_worker(bench, run)
    bench.set_record(run, value)
    attempt = bench.start_try(run, "ours")
    bench.await_known(run, attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert bench.events(run) == ["2.attempt", "2.label_fallback.malformed"]
    assert bench.created(run) == 1


def test_a_record_of_the_provider_is_taken_over_with_the_uid(bench: Bench) -> None:
    pod = lose_the_worker(bench, "takeover")
    bench.set_record("takeover", {"name": pod.metadata.name, "namespace": "takeover"})
    attempt = bench.start_try("takeover", "ours")
    record = bench.await_known("takeover", attempt)
    assert record["uid"] == pod.metadata.uid
    succeed(bench, attempt, pod.metadata.name)
    assert bench.events("takeover") == ["2.attempt", "2.identity_hit"]
    assert (bench.created("takeover"), bench.lists("takeover")) == (1, 0)


def test_a_pod_that_is_gone_is_searched_for_and_made_anew(bench: Bench) -> None:
    old = lose_the_worker(bench, "gone")
    bench.remove_pod("gone", old.metadata.name)
    attempt = bench.start_try("gone", "ours")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.events("gone") == ["2.attempt", "2.label_fallback.pod_gone"]
    assert (bench.created("gone"), bench.lists("gone")) == (2, 1)


def test_a_namesake_is_not_followed_and_not_deleted(bench: Bench) -> None:
    from kubernetes import client

    old = lose_the_worker(bench, "namesake")
    bench.remove_pod("namesake", old.metadata.name)
    other = client.V1Pod(
        metadata=client.V1ObjectMeta(name=old.metadata.name),
        spec=client.V1PodSpec(containers=[client.V1Container(name="base", image="i")]),
    )
    bench.pods.create_namespaced_pod("namesake", other)
    attempt = bench.start_try("namesake", "ours")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.events("namesake") == ["2.attempt", "2.label_fallback.uid_mismatch"]
    assert [p.metadata.name for p in bench.list("namesake")] == [old.metadata.name]


def test_a_terminating_pod_is_never_reattached(bench: Bench) -> None:
    old = lose_the_worker(bench, "terminating")
    bench.pods.patch_namespaced_pod(
        old.metadata.name, "terminating", {"metadata": {"finalizers": ["steadfast.test/hold"]}}
    )
    bench.pods.delete_namespaced_pod(old.metadata.name, "terminating", grace_period_seconds=0)
    attempt = bench.start_try("terminating", "ours")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.events("terminating") == ["2.attempt", "2.label_fallback.terminating"]
    assert bench.created("terminating") == 2
    bench.remove_finalizers("terminating", old.metadata.name)


def test_a_pod_that_succeeded_unwatched_is_harvested_not_run_again(bench: Bench) -> None:
    pod = lose_the_worker(bench, "harvest")
    bench.end_pod("harvest", pod.metadata.name)
    attempt = bench.start_try("harvest", "ours")
    attempt.finish()
    assert bench.state("harvest", "ours") == "success"
    assert bench.events("harvest") == ["2.attempt", "2.harvested", "2.identity_hit"]
    assert (bench.created("harvest"), bench.lists("harvest")) == (1, 0)


def test_upstream_runs_a_pod_that_succeeded_unwatched_again(bench: Bench) -> None:
    pod = lose_the_worker(bench, "harvest-stock", "stock")
    bench.end_pod("harvest-stock", pod.metadata.name)
    attempt = bench.start_try("harvest-stock", "stock")
    name = fresh_pod(bench, attempt, pod.metadata.name)
    succeed(bench, attempt, name)
    assert bench.created("harvest-stock") == 2


def test_a_result_that_went_with_its_pod_is_made_again(bench: Bench) -> None:
    old = lose_the_worker(bench, "xcom", "ours_xcom")
    bench.end_pod("xcom", old.metadata.name)
    attempt = bench.start_try("xcom", "ours_xcom")
    fresh_pod(bench, attempt, old.metadata.name)
    assert bench.events("xcom") == []
    assert bench.created("xcom") == 2


def test_a_pod_that_failed_unwatched_gets_a_fresh_one_in_the_same_try(bench: Bench) -> None:
    old = lose_the_worker(bench, "failed")
    bench.end_pod("failed", old.metadata.name, exit_code=1)
    attempt = bench.start_try("failed", "ours")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.events("failed") == []
    assert (bench.created("failed"), bench.lists("failed")) == (2, 0)


@pytest.mark.parametrize("task", ["ours", "ours_kept"])
def test_a_retry_after_an_ordinary_failure_is_no_reattach(bench: Bench, task: str) -> None:
    run = f"ordinary-{task.replace('_', '-')}"
    bench.new_run(run)
    attempt = bench.start_try(run, task)
    (old,) = bench.await_pods(run)
    bench.run_pod(run, old.metadata.name)
    bench.end_pod(run, old.metadata.name, exit_code=1)
    attempt.finish()
    assert bench.state(run, task) in {"up_for_retry", "failed"}
    assert (bench.record(run) or {})["state"] == "finished"
    bench.next_try(run, task)
    attempt = bench.start_try(run, task)
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.events(run) == []
    assert (bench.created(run), bench.lists(run)) == (2, 0)


def test_a_cleared_task_runs_anew_though_its_kept_pod_is_there(bench: Bench) -> None:
    bench.new_run("cleared")
    attempt = bench.start_try("cleared", "ours_kept")
    (old,) = bench.await_pods("cleared")
    succeed(bench, attempt, old.metadata.name)
    bench.clear("cleared", "ours_kept")
    attempt = bench.start_try("cleared", "ours_kept")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.events("cleared") == []
    assert bench.created("cleared") == 2


def test_a_pod_that_still_runs_for_a_cleared_task_is_deleted(bench: Bench) -> None:
    old = lose_the_worker(bench, "cleared-live")
    bench.clear("cleared-live", "ours")
    attempt = bench.start_try("cleared-live", "ours")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.events("cleared-live") == []
    assert bench.list("cleared-live") == []


def test_not_durable_makes_a_fresh_pod_and_stores_nothing(bench: Bench) -> None:
    bench.new_run("opted-out")
    attempt = bench.start_try("opted-out", "ours_not_durable")
    (old,) = bench.await_pods("opted-out")
    bench.run_pod("opted-out", old.metadata.name)
    attempt.kill()
    # Upstream's search, in force without durability, fails on two pods of the same second (K1);
    # a real retry comes later than that.
    time.sleep(1.1)
    bench.next_try("opted-out", "ours_not_durable")
    attempt = bench.start_try("opted-out", "ours_not_durable")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.record("opted-out") is None
    assert bench.events("opted-out") == []
    assert attempt.calls() == []


def test_a_worker_that_may_not_read_pods_says_what_to_grant(bench: Bench) -> None:
    bench.new_run("powerless")
    attempt = bench.start_try("powerless", "ours_powerless")
    attempt.finish()
    bench.set_record("powerless", {"name": "some-pod", "namespace": "powerless", "uid": "u"})
    bench.next_try("powerless", "ours_powerless")
    attempt = bench.start_try("powerless", "ours_powerless")
    log = attempt.finish()
    assert 'Grant its ServiceAccount \\"get\\" on \\"pods\\" in namespace \'powerless\'' in log
