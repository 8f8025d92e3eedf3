# SPDX-License-Identifier: Apache-2.0
"""The end of a worker that is not the end of its pod, on a real worker with real signals.

What upstream does stands beside ours where it differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.durable_pod.bench import Fault
from tests.apiserver.durable_pod.test_walk import fresh_pod, succeed

if TYPE_CHECKING:
    from tests.apiserver.durable_pod.bench import Bench, Try

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.apiserver]

HEARTBEAT = r"/heartbeat$"
STATES = r"/task-instances/states$"


def running(bench: Bench, run: str, task: str, *faults: Fault) -> tuple[Try, Any]:
    """A first try that follows its running pod."""
    bench.new_run(run)
    attempt = bench.start_try(run, task, *faults)
    (pod,) = bench.await_pods(run)
    if task.startswith("ours"):
        bench.await_known(run, attempt)
    bench.run_pod(run, pod.metadata.name)
    bench.until(lambda: "state to be completed" in attempt.text(), "the pod is followed", attempt)
    return attempt, pod


def is_left(bench: Bench, run: str, pod: Any) -> bool:
    """Whether the pod is there and nobody has asked for its deletion."""
    return [p.metadata.uid for p in bench.list(run) if p.metadata.deletion_timestamp is None] == [
        pod.metadata.uid
    ]


def test_a_graceful_end_of_the_worker_leaves_the_pod_and_the_retry_follows_it(bench: Bench) -> None:
    attempt, pod = running(bench, "graceful", "ours")
    attempt.terminate()
    log = attempt.finish()
    assert "is left to the next try" in log
    assert is_left(bench, "graceful", pod)
    assert bench.state("graceful", "ours") == "up_for_retry"
    bench.next_try("graceful", "ours")
    attempt = bench.start_try("graceful", "ours")
    bench.until(lambda: "2.identity_hit" in bench.events("graceful"), "the hit is counted", attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert (bench.created("graceful"), bench.lists("graceful")) == (1, 0)


def test_upstream_deletes_the_pod_of_a_worker_that_ends_gracefully(bench: Bench) -> None:
    attempt, _pod = running(bench, "graceful-stock", "stock")
    attempt.terminate()
    attempt.finish()
    assert bench.list("graceful-stock") == []


def test_a_graceful_end_in_the_last_try_leaves_no_orphan_and_no_success(bench: Bench) -> None:
    attempt, _pod = running(bench, "graceful-last", "ours_last")
    attempt.terminate()
    log = attempt.finish()
    assert "this was the last try" in log
    assert bench.list("graceful-last") == []
    assert bench.state("graceful-last", "ours_last") == "failed"


def test_an_airflow_that_cannot_be_reached_leaves_the_pod(bench: Bench) -> None:
    attempt, pod = running(
        bench, "unreachable", "ours", Fault("PUT", HEARTBEAT, 500), Fault("GET", STATES, 500)
    )
    log = attempt.finish()
    assert "is left to the next try" in log
    assert is_left(bench, "unreachable", pod)
    assert bench.state("unreachable", "ours") == "up_for_retry"


def test_upstream_deletes_the_pod_when_airflow_cannot_be_reached(bench: Bench) -> None:
    attempt, _pod = running(bench, "unreachable-stock", "stock", Fault("PUT", HEARTBEAT, 500))
    attempt.finish()
    assert bench.list("unreachable-stock") == []


@pytest.mark.parametrize("state", ["failed", "success"])
def test_a_task_that_a_user_has_marked_loses_its_pod_and_keeps_its_state(bench: Bench, state: str) -> None:
    run = f"marked-{state}"
    attempt, _pod = running(bench, run, "ours")
    bench.mark(run, "ours", state)
    log = attempt.finish()
    assert f"Airflow has the task instance as {state}" in log
    assert bench.list(run) == []
    assert bench.state(run, "ours") == state


def test_a_running_task_that_a_user_clears_starts_anew(bench: Bench) -> None:
    attempt, old = running(bench, "cleared-running", "ours")
    bench.clear("cleared-running", "ours")
    log = attempt.finish()
    assert "Airflow has the task instance as restarting" in log
    attempt = bench.start_try("cleared-running", "ours")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.created("cleared-running") == 2
    assert bench.list("cleared-running") == []


def test_a_deleted_dag_run_takes_its_pod_along(bench: Bench) -> None:
    attempt, _pod = running(bench, "run-deleted", "ours")
    bench.delete_run("run-deleted")
    log = attempt.finish()
    assert "Airflow no longer has the task instance" in log
    assert bench.list("run-deleted") == []


def test_a_task_that_the_scheduler_has_given_up_for_retry_leaves_its_pod(bench: Bench) -> None:
    attempt, pod = running(bench, "given-up", "ours")
    bench.next_try("given-up", "ours")
    log = attempt.finish()
    assert "is left to the next try" in log
    assert is_left(bench, "given-up", pod)
    attempt = bench.start_try("given-up", "ours")
    bench.until(lambda: "2.identity_hit" in bench.events("given-up"), "the hit is counted", attempt)
    succeed(bench, attempt, pod.metadata.name)
    assert bench.created("given-up") == 1


def test_a_pod_past_its_execution_timeout_is_deleted_and_never_followed_again(bench: Bench) -> None:
    attempt, old = running(bench, "timeout", "ours_timeout")
    log = attempt.finish()
    assert "execution timeout has passed" in log
    assert bench.list("timeout") == []
    assert bench.state("timeout", "ours_timeout") == "up_for_retry"
    assert (bench.record("timeout") or {})["state"] == "finished"
    bench.next_try("timeout", "ours_timeout")
    attempt = bench.start_try("timeout", "ours_timeout")
    succeed(bench, attempt, fresh_pod(bench, attempt, old.metadata.name))
    assert bench.events("timeout") == []


def test_upstream_leaves_a_pod_past_its_execution_timeout_running(bench: Bench) -> None:
    attempt, pod = running(bench, "timeout-stock", "stock_timeout")
    attempt.finish()
    assert is_left(bench, "timeout-stock", pod)


def test_a_signal_between_two_answers_of_the_supervisor_disturbs_neither(bench: Bench) -> None:
    """The task is told to stop while it waits for the store: it leaves when the answer is there."""
    bench.new_run("talking")
    attempt = bench.start_try("talking", "ours", Fault("PUT", "pod_identifier", first=1, pause=3.0))
    (pod,) = bench.await_pods("talking")
    bench.until(attempt.is_held, "the uid is being written", attempt)
    attempt.terminate()
    log = attempt.finish()
    assert "is left to the next try" in log
    assert is_left(bench, "talking", pod)
    assert bench.state("talking", "ours") == "up_for_retry"
    assert (bench.record("talking") or {})["uid"] == pod.metadata.uid
