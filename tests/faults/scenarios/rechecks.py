# SPDX-License-Identifier: Apache-2.0
"""Work that moves on between the check and the create, and what keeps its pod from being removed again."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from tests.faults import dags
from tests.faults.audit import workload_of
from tests.faults.outages import connection_closed_at
from tests.faults.spec import register
from tests.faults.stage import RUN, Want
from tests.support.fault_proxy import Fault, refusal
from tests.support.faults import POD

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.outcome import Outcome
    from tests.faults.scheduler import Scheduler
    from tests.faults.stage import Stage
    from tests.faults.table import Row

ASYNC = {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": "True"}
GONE = "the old try's pod is gone, its slot free, after the loop or the next; the new try has one pod"
REFUSED_SECONDS = 10.0
CLOSED_SECONDS = 3.0
PATIENCE = 15.0
ALL_AT_ONCE = 250


def _left(stage: Stage, scheduler: Scheduler, rows: Sequence[Row]) -> set[str]:
    """The ids of ``rows`` that have a pod which is not being deleted, or a slot."""
    pods = {
        workload["ti"]["id"]
        for pod in stage.pods.all()
        if "deletionTimestamp" not in pod["metadata"] and (workload := workload_of(pod))
    }
    slots = {(key.run_id, key.task_id, key.map_index, key.try_number) for key in scheduler.executor.running}
    return {row.ti_id for row in rows if row.ti_id in pods or (*row.at, row.try_number) in slots}


def _verdict(stage: Stage, rows: Sequence[Row], left: set[str]) -> Outcome:
    """Let the new tries run, and count: the old tries that were left too long, and the new ones' pods."""
    stage.settle(quiet=8)
    made = {pod.ti_id for pod in stage.audit.created()}
    wants = [
        Want(row, None, None, "its pod or its slot is left" if row.ti_id in left else "", "doubled")
        for row in rows
    ]
    outcome = stage.judge([*map(Want, stage.rows()), *wants])
    outcome.note("stale pods created and removed", sum(row.ti_id in made - left for row in rows))
    return outcome


@register(
    holes="H2",
    title="task cleared between its check and its create",
    expected=GONE,
    size=200,
    trials=1,
    short=15,
    config={"KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE": "1"},
)
def cleared_before_create(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    by_task = {row.task_id: row for row in rows}
    cleared: list[Row] = []
    left: set[str] = set()
    for _ in rows:
        seen = len(stage.proxy.log())
        barrier = stage.proxy.add(Fault("hold"))
        thread = scheduler.in_background()
        stage.proxy.await_waiting(barrier, 1)
        held = next(one for one in stage.proxy.log(seen) if one.method == "POST")
        task_id = json.loads(held.body)["metadata"]["annotations"]["task_id"]
        dags.clear(stage.dag_id, RUN, [task_id])
        stage.proxy.remove(barrier)
        thread.join()
        left |= _left(stage, scheduler, cleared[-1:])  # the one before: this loop is the next one
        cleared.append(by_task[task_id])
    scheduler.survives(scheduler.heartbeat)
    left |= _left(stage, scheduler, rows)
    scheduler.executor.kube_config.worker_pods_creation_batch_size = ALL_AT_ONCE
    return _verdict(stage, rows, left)


def _clear_batch(stage: Stage, scheduler: Scheduler) -> tuple[list[Row], int]:
    """Clear all tasks while their creates are on the way, held by a fault whose number is returned too."""
    scheduler.schedule()
    rows = stage.rows()
    barrier = stage.proxy.add(Fault("hold"))
    scheduler.in_background()
    stage.proxy.await_waiting(barrier, 1)
    dags.clear(stage.dag_id, RUN, [row.task_id for row in rows])
    return rows, barrier


def _await_removal(stage: Stage, scheduler: Scheduler, rows: Sequence[Row], seconds: float) -> set[str]:
    """Loop without scheduling anew until nothing is left of ``rows``, ``seconds`` at most."""
    deadline = time.monotonic() + seconds
    while (left := _left(stage, scheduler, rows)) and time.monotonic() < deadline:
        scheduler.survives(scheduler.heartbeat)
        time.sleep(0.2)  # a scheduler's idle loops are a second apart, not as many as fit
    return left


@register(
    holes="H2",
    title="all tasks of a concurrent batch cleared while their creates are on the way",
    expected=GONE,
    size=200,
    trials=1,
    config=ASYNC,
)
def batch_cleared_before_create(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    rows, barrier = _clear_batch(stage, scheduler)
    stage.proxy.remove(barrier)
    scheduler.await_background()
    scheduler.survives(scheduler.heartbeat)
    return _verdict(stage, rows, _left(stage, scheduler, rows))


@register(
    holes="H2",
    title="the same; the pods' deletes are refused with 500 for 10 s",
    expected=f"gone within {PATIENCE:.0f} s after that; the new tries have one pod each",
    size=200,
    trials=1,
    config=ASYNC,
)
def recheck_delete_refused(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    rows, barrier = _clear_batch(stage, scheduler)
    refused = stage.proxy.add(refusal(500, method="DELETE", path=POD))
    stage.proxy.remove(barrier)
    scheduler.await_background()
    _await_removal(stage, scheduler, rows, REFUSED_SECONDS)
    hits = stage.proxy.hits(refused)
    stage.proxy.clear()
    assert hits or stage.impl == "upstream", "no delete was refused: the fault was not played"
    outcome = _verdict(stage, rows, _await_removal(stage, scheduler, rows, PATIENCE))
    outcome.note("deletes refused", hits)
    return outcome


@register(
    holes="H1, H2",
    title="the same; from the check after creation on, connections are closed for 3 s",
    expected=f"gone within {PATIENCE:.0f} s; the new tries have one pod each",
    size=50,
    trials=4,
    config=ASYNC,
)
def recheck_connection_closed(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    rows, barrier = _clear_batch(stage, scheduler)
    # upstream has no check there, and nothing else of its loop reads task instances
    with connection_closed_at(stage, seconds=CLOSED_SECONDS, required=stage.impl == "steadfast"):
        stage.proxy.remove(barrier)
        scheduler.await_background()
        deadline = time.monotonic() + CLOSED_SECONDS
        while time.monotonic() < deadline and stage.impl == "steadfast":
            scheduler.survives(scheduler.heartbeat)
            time.sleep(0.2)  # a scheduler's idle loops are a second apart, not as many as fit
    return _verdict(stage, rows, _await_removal(stage, scheduler, rows, PATIENCE))
