# SPDX-License-Identifier: Apache-2.0
"""Two workloads for one task instance in one scheduler."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.faults.spec import register
from tests.faults.stage import Want
from tests.support.fault_proxy import refusal

if TYPE_CHECKING:
    from tests.faults.outcome import Outcome
    from tests.faults.scheduler import Scheduler
    from tests.faults.stage import Stage

FOREVER = {"KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES": "-1"}


def queued_twice(stage: Stage) -> Scheduler:
    """The API server throttles; meanwhile core finds the tasks stuck in queued and queues them again."""
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    stage.proxy.add(refusal(429, retry_after=1))
    scheduler.heartbeat()
    scheduler.events()
    scheduler.stuck()
    scheduler.schedule()
    stage.proxy.clear()
    time.sleep(1.1)  # the Retry-After of the 429 (1 s) that the executor waits out
    return scheduler


@register(
    holes="H3, PR #69782",
    title="stuck-in-queued requeue by the same scheduler while the API server throttles",
    expected="one of the two workloads is launched: exactly one pod",
    size=200,
    trials=1,
    config=FOREVER,
    short=30,
)
def requeued_by_same_scheduler(stage: Stage) -> Outcome:
    queued_twice(stage)
    stage.settle(quiet=8)
    return stage.judge(Want(row) for row in stage.rows())


def _queue_again(stage: Stage, scheduler: Scheduler) -> None:
    """Have the scheduler queue tasks again whose pods are pending: the write of a core that races (#57618).

    The API server throttles, so the second workloads wait in the executor.
    """
    stage.table.change(stage.rows(), "state = 'scheduled'", "state = 'queued'")
    stage.proxy.add(refusal(429, retry_after=1))
    assert scheduler.schedule() == stage.size, "core did not queue the tasks again"
    scheduler.heartbeat()
    scheduler.events()
    assert len(scheduler.executor.running) == stage.size


@register(
    holes="H4, #57618",
    title="queued a second time beside its pod; the second workload is dropped while the pod runs, "
    "whose worker then crashes",
    expected="no second pod; the crash is noticed at once: the task is failed",
    size=200,
    trials=1,
    config=FOREVER,
    short=20,
)
def dropped_beside_running(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    scheduler.heartbeat()
    scheduler.events()
    pods = stage.pods.pending()
    assert len(pods) == stage.size
    _queue_again(stage, scheduler)
    for pod in pods:
        assert stage.workers.start(pod), "the first workload's worker was refused"
    stage.proxy.clear()
    time.sleep(1.1)  # the Retry-After of the 429 (1 s) that the executor waits out
    for _ in range(3):
        scheduler.loop()
    waiting = scheduler.executor.task_queue.qsize()
    assert not waiting, f"{waiting} second workloads were not dropped while the pods ran"
    for pod in stage.workers.running():
        stage.workers.exit(pod, 137, "OOMKilled")
    stage.settle(quiet=8, play=lambda: 0)
    return stage.judge(Want(row, 1, "failed") for row in stage.rows())
