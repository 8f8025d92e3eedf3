# SPDX-License-Identifier: Apache-2.0
"""What stories 2 and 3 share: a KubernetesPodOperator task whose worker is killed while its pod runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.cluster.stories.metrics import series
from tests.cluster.stories.outcome import Outcome, StoryFailedError, wait_for
from tests.cluster.stories.pods import PodWatch, SeenPod
from tests.cluster.stories.stage import DURABLE_DAG, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ATTEMPTS = "steadfast_reattach_attempts_total"
HITS = "steadfast_reattach_identity_hits_total"
FALLBACKS = "steadfast_reattach_label_fallbacks_total"
HARVESTED = "steadfast_pods_harvested_total"


def tell(
    stage: Stage,
    outcome: Outcome,
    run_id: str,
    expected: Mapping[str, int],
    while_down: Callable[[Stage, str, Outcome], None] | None = None,
) -> Outcome:
    """Run the task, SIGKILL its worker, call ``while_down``, let the retry finish, and check the counts.

    ``expected`` maps written series to their increase; every other reattach series must stay where it was.
    Raises StoryFailedError where the story does not come out as told.
    """
    before = stage.metrics.settled()
    with PodWatch(stage.kubectl) as watch:
        try:
            worker = _start(stage, watch, run_id)
            stage.kill_main_process(worker.name, "base")
            killed_at = time.time()
            if while_down is not None:
                while_down(stage, run_id, outcome)
            wait_for("the killed worker's end", lambda: worker.finished, bool, 120)
            retry = wait_for(
                "the retry's worker",
                lambda: [pod for pod in watch.workers(run_id) if pod.uid != worker.uid],
                bool,
                300,
            )
            outcome.record("seconds from the kill to the retry's worker", f"{time.time() - killed_at:.0f}")
            _wait_for_the_count(stage, before, expected)
            outcome.record("seconds from the kill to the reattach", f"{time.time() - killed_at:.0f}")
        finally:
            stage.ledger.release(run_id)
        state = wait_for(
            "the run's end",
            lambda: stage.airflow.run_state(DURABLE_DAG, run_id),
            lambda state: state in ("success", "failed"),
            300,
            2,
        )
        after = stage.metrics.settled()
        watch.check()
        pods = watch.operator_pods(run_id)
    outcome.expect("state of the run", "success", state)
    outcome.expect("workers used (the killed one and its retry)", 2, 1 + len(retry))
    outcome.expect("pods that the operator made", 1, len(pods))
    outcome.expect("executions of the pod", 1, len(stage.ledger.marks(run_id, "start")))
    outcome.expect("executions that came to their end", 1, len(stage.ledger.marks(run_id, "end")))
    for name in (ATTEMPTS, HITS, FALLBACKS, HARVESTED):
        for key in sorted(key for key in {*before, *after, *expected} if key.split("{")[0] == name):
            grown = int(after.get(key, 0) - before.get(key, 0))
            if grown or key in expected or name != FALLBACKS:
                outcome.expect(f"increase of {key}", expected.get(key, 0), grown)
    return outcome


def _start(stage: Stage, watch: PodWatch, run_id: str) -> SeenPod:
    """Trigger the run; returns its worker when the pod runs and its identity is on record."""
    stage.airflow.trigger(DURABLE_DAG, run_id)
    wait_for("the operator's pod at work", lambda: stage.ledger.marks(run_id), bool, 300)
    wait_for(
        "the pod's uid on record", lambda: recorded_identity(stage, run_id), lambda it: '"uid"' in it, 30
    )
    workers = watch.workers(run_id)
    if len(workers) != 1:
        raise StoryFailedError(f"expected one worker before the kill, seen {[pod.name for pod in workers]}")
    return workers[0]


def recorded_identity(stage: Stage, run_id: str) -> str:
    """Return the stored identity of the task's pod as JSON text, empty where there is none."""
    rows = stage.sql(
        "SELECT s.value FROM task_state_store s JOIN dag_run r ON r.id = s.dag_run_id "
        f"WHERE r.run_id = '{run_id}' AND s.key = 'pod_identifier'"
    )
    return "|".join(rows[0]) if rows else ""


def remove_identity(stage: Stage, run_id: str) -> int:
    """Delete the stored identity; returns the number of rows deleted."""
    statement = (
        "DELETE FROM task_state_store WHERE key = 'pod_identifier' AND dag_run_id IN "
        f"(SELECT id FROM dag_run WHERE run_id = '{run_id}') RETURNING key"
    )
    return len(stage.sql(statement))


def _wait_for_the_count(stage: Stage, before: Mapping[str, float], expected: Mapping[str, int]) -> None:
    """Return when Prometheus shows the expected increase while the pod runs; raises on another one."""

    def increases() -> dict[str, int]:
        now = stage.metrics.totals()
        return {
            key: int(value - before.get(key, 0.0))
            for key, value in now.items()
            if key.split("{")[0] in (HITS, FALLBACKS) and value != before.get(key, 0.0)
        }

    wanted = {
        key: count for key, count in expected.items() if key.split("{")[0] in (HITS, FALLBACKS) and count
    }
    seen = wait_for("an identity hit or a label fallback in Prometheus", increases, bool, 300, 2)
    if seen != wanted:
        raise StoryFailedError(f"expected the increase {wanted}, seen {seen}")


def fallback_series(reason: str) -> str:
    return series(FALLBACKS, {"reason": reason})
