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


@register(
    holes="H4",
    title="the second workload is dropped while the first one's pod runs, whose worker then crashes",
    expected="the crash is noticed at once: the task is failed",
    size=100,
    trials=2,
    config={**FOREVER, "KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE": "100"},
)
def dropped_beside_running(stage: Stage) -> Outcome:
    stage.configure("worker_pods_creation_batch_size", str(stage.size))
    scheduler = queued_twice(stage)
    scheduler.heartbeat()
    for pod in stage.pods.pending():
        stage.workers.start(pod)
    for _ in range(3):
        scheduler.loop()
    for pod in stage.workers.running():
        stage.workers.exit(pod, 137, "OOMKilled")
    stage.settle(quiet=8, play=lambda: 0)
    return stage.judge(Want(row, 1, "failed") for row in stage.rows())
