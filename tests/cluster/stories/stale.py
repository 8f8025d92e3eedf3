# SPDX-License-Identifier: Apache-2.0
"""Story 1: work is cleared while it waits for a pod, and nothing is launched for what it was.

Twenty-four tasks are queued while a quota on the workers' priority class admits no pod. The run is
cleared, which gives each task instance a new identity, and the quota is raised. Every workload that
was queued for an old identity must be dropped, no worker pod may ever be created for one, and each
new one must get exactly one pod and run exactly once.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.cluster.stories.outcome import Outcome, StoryFailedError, wait_for
from tests.cluster.stories.pods import PodWatch
from tests.cluster.stories.stage import STALE_DAG, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

TASKS = 24
LEAST_DROPPED = 20
DROPPED = "steadfast_workloads_dropped_total"


def tell(stage: Stage, workers_at_once: int) -> Outcome:
    """Play the story and return its figures; raises StoryFailedError where it does not come out as told."""
    outcome = Outcome("story 1, stale launches")
    run_id = stage.new_run_id("stale")
    before = stage.metrics.settled()
    with PodWatch(stage.kubectl) as watch:
        old = _queue_without_room(stage, run_id)
        outcome.expect("tasks queued while the quota admits no pod", TASKS, len(old))
        outcome.expect("worker pods before the clear", 0, len(watch.workers(run_id)))

        stage.airflow.clear_run(STALE_DAG, run_id)
        cleared_at = time.time()
        stage.allow_workers(workers_at_once)
        new = _wait_for_success(stage, run_id)
        outcome.record("seconds from the clear to the end of the run", f"{time.time() - cleared_at:.0f}")

        outcome.expect("task instances that kept their identity", 0, len(old.keys() & new.keys()))
        after = stage.metrics.settled()
        watch.check()
        pods = watch.workers(run_id)
    launched = Counter(str(pod.task_instance["id"]) for pod in pods)
    if pods:
        first = min(pod.first_seen for pod in pods) - cleared_at
        outcome.record("seconds from the clear to the first pod", f"{first:.1f}")
    outcome.expect(
        "worker pods for superseded task instances", 0, sum(launched[identity] for identity in old)
    )
    outcome.expect("fresh task instances with exactly one pod", TASKS, sum(launched[i] == 1 for i in new))
    marks = Counter(mark["who"] for mark in stage.ledger.marks(run_id))
    outcome.expect("tasks that ran exactly once", TASKS, sum(count == 1 for count in marks.values()))
    outcome.expect("executions", TASKS, marks.total())
    dropped = dropped_between(before, after)
    outcome.record("reasons", ", ".join(f"{reason}={count:g}" for reason, count in dropped.items()))
    outcome.expect_at_least(
        "workloads dropped, as Prometheus has it", LEAST_DROPPED, int(sum(dropped.values()))
    )
    outcome.expect("workloads dropped = task instances superseded", len(old), int(sum(dropped.values())))
    for what, name, expected in (
        ("launches decided, once each", "steadfast_launches_decided_total", len(old) + len(new)),
        ("worker pods without the patch", "steadfast_worker_pods_unpatched_total", 0),
    ):
        outcome.expect(what, expected, int(after.get(name, 0) - before.get(name, 0)))
    return outcome


def _queue_without_room(stage: Stage, run_id: str) -> dict[str, str]:
    """Queue the run's tasks under a quota of 0; returns their identities with their states."""
    stage.allow_workers(0)
    stage.airflow.trigger(STALE_DAG, run_id)
    wait_for(
        "all tasks queued",
        lambda: Counter(_states(stage, run_id).values()),
        lambda states: states["queued"] >= TASKS,
        180,
        1.5,
    )
    # The rows say queued one scheduler loop before the executor holds the workloads.
    time.sleep(3)
    return _states(stage, run_id)


def _wait_for_success(stage: Stage, run_id: str) -> dict[str, str]:
    state = wait_for(
        "the run's end",
        lambda: stage.airflow.run_state(STALE_DAG, run_id),
        lambda state: state in ("success", "failed"),
        900,
        3,
    )
    states = _states(stage, run_id)
    if state != "success":
        raise StoryFailedError(
            f"story 1: expected the run to succeed, seen {state}: {Counter(states.values())}"
        )
    return states


def _states(stage: Stage, run_id: str) -> dict[str, str]:
    found = stage.airflow.task_instances(STALE_DAG, run_id)
    return {str(task["id"]): str(task["state"]) for task in found}


def dropped_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Give what was dropped in between, by reason."""
    prefix = f'{DROPPED}{{reason="'
    return {
        key.removeprefix(prefix).removesuffix('"}'): value - before.get(key, 0.0)
        for key, value in sorted(after.items())
        if key.startswith(prefix) and value != before.get(key, 0.0)
    }
