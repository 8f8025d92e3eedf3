# SPDX-License-Identifier: Apache-2.0
"""What changes between the check and the create, and between the create and the check after it."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from tests.faults import dags
from tests.faults.audit import workload_of
from tests.faults.outcome import Outcome
from tests.faults.spec import register
from tests.faults.stage import RUN, Want
from tests.faults.worker import deferral
from tests.support.fault_proxy import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.scheduler import Scheduler
    from tests.faults.stage import Stage
    from tests.faults.table import Row

ASYNC = {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": "True"}
GONE = "the pod of the cleared task is gone after the same loop"


def _in_background(scheduler: Scheduler) -> threading.Thread:
    thread = threading.Thread(target=scheduler.survives, args=(scheduler.heartbeat,))
    thread.start()
    return thread


def _left_over(stage: Stage, rows: Sequence[Row]) -> Outcome:
    """Count each launch that moved on and whose pod is still there."""
    left = {
        workload["ti"]["id"]
        for pod in stage.pods.all()
        if "deletionTimestamp" not in pod["metadata"] and (workload := workload_of(pod))
    }
    made = {pod.ti_id for pod in stage.audit.created()}
    outcome = Outcome(exits=sum(one.exits for one in stage.schedulers))
    for row in rows:
        outcome.count(f"{row.task_id}: the stale pod is left", doubled=row.ti_id in left)
    outcome.note("stale pods created and removed", len(made - left))
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
    for _ in rows:
        seen = len(stage.proxy.log())
        barrier = stage.proxy.add(Fault("hold"))
        thread = _in_background(scheduler)
        stage.proxy.await_waiting(barrier, 1)
        held = next(one for one in stage.proxy.log(seen) if one.method == "POST")
        task_id = json.loads(held.body)["metadata"]["annotations"]["task_id"]
        dags.clear(stage.dag_id, RUN, [task_id])
        stage.proxy.remove(barrier)
        thread.join()
    return _left_over(stage, rows)


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
    scheduler.schedule()
    rows = stage.rows()
    barrier = stage.proxy.add(Fault("hold"))
    thread = _in_background(scheduler)
    stage.proxy.await_waiting(barrier, 1)
    dags.clear(stage.dag_id, RUN, [row.task_id for row in rows])
    stage.proxy.remove(barrier)
    thread.join()
    return _left_over(stage, rows)


@register(
    holes="H2",
    title="workers that start, end or defer before the executor has the create's reply",
    expected="no pod is deleted, every task succeeds with its pods",
    size=200,
    trials=1,
    config={**ASYNC, "KUBERNETES_EXECUTOR__POD_CREATION_MAX_CONCURRENCY": "50"},
)
def worker_first(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    deferred = set()
    barrier = stage.proxy.add(Fault("hold", forward=True, count=50))
    thread = _in_background(scheduler)
    stage.proxy.await_waiting(barrier, min(40, stage.size))
    for number, pod in enumerate(stage.pods.pending()):
        if not stage.workers.start(pod):
            continue
        workload = workload_of(pod)
        assert workload is not None
        if number % 3 == 1:
            stage.workers.end(pod)
        elif number % 3 == 2:
            stage.workers.end(pod, **deferral())
            deferred.add(workload["ti"]["id"])
    stage.proxy.remove(barrier)
    thread.join()
    dags.fire_triggers(stage.dag_id)
    stage.settle(quiet=8)
    return stage.judge(Want(row, 2 if row.ti_id in deferred else 1) for row in rows)
