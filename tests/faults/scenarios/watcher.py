# SPDX-License-Identifier: Apache-2.0
"""What the watcher tells of pods: of older ones, late, or before their task began."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults import dags
from tests.faults.spec import register
from tests.faults.stage import RUN, Want
from tests.faults.worker import deferral
from tests.support.fault_proxy import Fault

if TYPE_CHECKING:
    from tests.faults.outcome import Outcome
    from tests.faults.scheduler import Scheduler
    from tests.faults.stage import Stage


@register(
    holes="H5, #67287",
    title="run deleted and triggered again under its run id; the old pods end while the new ones wait",
    expected="the old pods' end says nothing about the new tasks, which all succeed",
    size=200,
    trials=1,
    short=20,
)
def old_pods_end(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    scheduler.heartbeat()
    scheduler.events()
    old, old_rows = stage.pods.pending(), stage.rows()
    dags.delete_run(stage.dag_id, RUN)
    dags.trigger(stage.dag_id, RUN)
    scheduler.schedule()
    scheduler.heartbeat()
    for pod in old:
        stage.workers.start(pod)  # its task instance is gone: it is refused and fails
    stage.until(
        lambda: scheduler.executor.kube_scheduler.watcher_queue.qsize() >= len(old), "the old pods' events"
    )
    for _ in range(3):
        scheduler.survives(scheduler.work)
    stage.settle(quiet=8)
    return stage.judge([*map(Want, stage.rows()), *(Want(row, 1, None) for row in old_rows)])


def _deferred(stage: Stage) -> tuple[Scheduler, int]:
    """All tasks deferred, their first pods still there, the watch stalled."""
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    scheduler.heartbeat()
    scheduler.events()
    for pod in stage.pods.pending():
        if stage.workers.start(pod):
            stage.workers.report(pod, deferral())
    scheduler.heartbeat()
    return scheduler, stage.proxy.add(Fault("stall", method="GET", query="watch="))


def _await_events(stage: Stage, scheduler: Scheduler) -> None:
    stage.until(
        lambda: scheduler.executor.kube_scheduler.watcher_queue.qsize() >= stage.size,
        "the first pods' events",
    )


@register(
    holes="H6",
    title="worker killed after it deferred; the task is queued to resume when the pod's end is seen",
    expected="one pod for the resume; the old pod's end is not taken for a failed start",
    size=200,
    trials=1,
)
def deferred_worker_killed(stage: Stage) -> Outcome:
    scheduler, stall = _deferred(stage)
    for pod in stage.workers.running():
        stage.workers.exit(pod, 137, "OOMKilled")
    dags.fire_triggers(stage.dag_id)
    scheduler.schedule()
    rows = stage.rows()
    stage.proxy.remove(stall)
    _await_events(stage, scheduler)
    for _ in range(3):
        scheduler.survives(scheduler.work)
    stage.settle(quiet=8)
    return stage.judge(Want(row, 2) for row in rows)


@register(
    holes="H5, PR #73546, #66374",
    title="end of the deferring worker seen only when the resumed one runs, which then crashes",
    expected="the crash is noticed at once: the task is failed",
    size=200,
    trials=1,
)
def older_success_late(stage: Stage) -> Outcome:
    scheduler, stall = _deferred(stage)
    for pod in stage.workers.running():
        stage.workers.exit(pod, 0)
    dags.fire_triggers(stage.dag_id)
    scheduler.schedule()
    rows = stage.rows()
    scheduler.heartbeat()
    scheduler.events()
    for pod in stage.pods.pending():
        stage.workers.start(pod)
    stage.proxy.remove(stall)
    _await_events(stage, scheduler)
    for _ in range(3):
        scheduler.survives(scheduler.work)
    for pod in stage.workers.running():
        stage.workers.exit(pod, 137, "OOMKilled")
    stage.settle(quiet=8, play=lambda: 0)
    return stage.judge(Want(row, 2, "failed") for row in rows)


@register(
    holes="H6, #69052",
    title="pod evicted before its worker started",
    expected="launched again without burning a try: two pods, one after the other",
    size=200,
    trials=1,
)
def evicted_before_start(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    scheduler.heartbeat()
    rows = stage.rows()
    for pod in stage.pods.pending():
        stage.pods.bind(pod)
        stage.pods.evict(pod)
    stage.settle(quiet=8)
    return stage.judge(Want(row, 2) for row in rows)
