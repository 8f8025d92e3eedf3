# SPDX-License-Identifier: Apache-2.0
"""What changes while creates are on the way: between a create and its reply, or because they are slow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import dags
from tests.faults.audit import workload_of
from tests.faults.spec import register
from tests.faults.stage import Want
from tests.faults.worker import deferral
from tests.support.fault_proxy import Fault

if TYPE_CHECKING:
    from tests.faults.outcome import Outcome
    from tests.faults.stage import Stage

ASYNC = {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": "True"}


@register(
    holes="H2",
    title="workers that start, end or defer before the executor has the create's reply",
    expected="no pod is deleted, every task succeeds with its pods",
    size=50,
    trials=4,
    config={**ASYNC, "KUBERNETES_EXECUTOR__POD_CREATION_MAX_CONCURRENCY": "50"},
)
def worker_first(stage: Stage) -> Outcome:
    assert stage.size <= 50, "more than are on the way at once: the rest would not meet the race"
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    deferred = set()
    barrier = stage.proxy.add(Fault("hold", forward=True))
    thread = scheduler.in_background()
    stage.proxy.await_waiting(barrier, stage.size)
    for number, pod in enumerate(stage.pods.pending()):
        assert stage.workers.start(pod), "a worker was refused before the executor had the reply"
        workload = workload_of(pod)
        assert workload is not None
        if number % 3 == 1:
            stage.workers.end(pod)
        elif number % 3 == 2:
            stage.workers.end(pod, **deferral())
            deferred.add(workload["ti"]["id"])
    assert stage.proxy.waiting(barrier) == stage.size, "a reply was not waited for"
    stage.proxy.remove(barrier)
    thread.join()
    dags.fire_triggers(stage.dag_id)
    stage.settle(quiet=8)
    outcome = stage.judge(Want(row, 2 if row.ti_id in deferred else 1) for row in rows)
    outcome.note("workers ahead of the reply", stage.size)
    return outcome


@register(
    holes="H2, H15",
    title="each create takes a fifth of a second; a quarter of the tasks is cleared meanwhile",
    expected="no pod is left of a cleared try after the loop or the next; one pod for each task",
    size=200,
    trials=1,
)
def slow_creates(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    cleared = rows[::4]
    slow = stage.proxy.add(Fault("delay", seconds=0.2))
    thread = scheduler.in_background()
    stage.until(lambda: len(stage.audit.created()) >= stage.size // 4, "the first quarter's pods")
    stage.clear_rows(cleared)
    early = {pod.ti_id for pod in stage.audit.created()}  # cleared with a pod: its worker is refused
    thread.join()
    assert stage.proxy.hits(slow) >= len(rows) - len(cleared), "the creates were not slow"
    stage.proxy.clear()
    scheduler.survives(scheduler.heartbeat)
    left = {
        workload["ti"]["id"]
        for pod in stage.pods.all()
        if "deletionTimestamp" not in pod["metadata"] and (workload := workload_of(pod))
    }
    stage.settle(quiet=8)
    wants = [
        Want(row, None, None, "its pod is left" if row.ti_id in left - early else "", "doubled")
        for row in cleared
    ]
    outcome = stage.judge([*map(Want, stage.rows()), *wants])
    outcome.note("cleared before their create", sum(row.ti_id not in early for row in cleared))
    return outcome
