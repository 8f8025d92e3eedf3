# SPDX-License-Identifier: Apache-2.0
"""A task's life: stale among fresh, sent back to wait, mapped."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.faults import dags
from tests.faults.audit import workload_of
from tests.faults.outcome import Outcome
from tests.faults.spec import register
from tests.faults.stage import Want
from tests.faults.worker import deferral, reschedule
from tests.support.fault_proxy import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.faults.stage import Stage

TIMES = 3
KEPT = {"KUBERNETES_EXECUTOR__DELETE_WORKER_PODS": "False"}
EVERY_POD = f"{TIMES + 1} pods, one for each time; the task succeeds"


@register(
    holes="H15",
    title="one fresh task behind 500 stale ones, creation batch 1",
    expected="the fresh pod comes in the first loop, no stale one ever",
    size=501,
    trials=1,
    short=101,
    config={"KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE": "1"},
)
def behind_500_stale(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    last = list(scheduler.executor.queued_tasks)[-1].task_id
    rows = stage.rows()
    stage.table.execute(
        f"UPDATE task_instance SET state = 'success' WHERE dag_id = '{stage.dag_id}' AND task_id <> '{last}'"
    )
    loops = 0
    while not stage.audit.created() and loops < 2 * stage.size:
        scheduler.survives(scheduler.heartbeat)
        loops += 1
    for _ in range(3):
        scheduler.survives(scheduler.heartbeat)
    created = Counter(pod.task_id for pod in stage.audit.created())
    outcome = Outcome(exits=scheduler.exits)
    for row in rows:
        fresh = row.task_id == last
        outcome.count(
            f"{row.task_id}: {created[row.task_id]} pods after {loops} loops",
            lost=fresh and not created[row.task_id],
            doubled=created[row.task_id] > fresh,
            wrong=fresh and loops > 1,
        )
    outcome.note("loops until the fresh pod", loops)
    return outcome


@register(
    holes="H16",
    title="what the executor remembers of workloads that were refused with 429 and then dropped",
    expected="nothing",
    size=200,
    trials=1,
    config={"KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES": "-1"},
)
def memory_of_dropped(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    stage.proxy.add(refusal(429, retry_after=1))
    scheduler.heartbeat()
    stage.table.execute(f"UPDATE task_instance SET state = 'success' WHERE dag_id = '{stage.dag_id}'")
    stage.proxy.clear()
    time.sleep(1.1)  # the Retry-After of the 429 (1 s) that the executor waits out
    for _ in range(3):
        scheduler.heartbeat()
    executor = scheduler.executor
    books = {
        "running": set(executor.running),
        "pod_launch_attempts": set(executor.pod_launch_attempts),
        "task_publish_retries": set(executor.task_publish_retries),
        "event_buffer": set(executor.event_buffer),
    }
    kept = {key.task_id: name for name, keys in books.items() for key in keys}
    created = Counter(pod.task_id for pod in stage.audit.created())
    outcome = Outcome(exits=scheduler.exits)
    for row in stage.rows():
        outcome.count(
            f"{row.task_id}: in {kept.get(row.task_id, 'nothing')}",
            doubled=created[row.task_id] > 0,
            wrong=row.task_id in kept,
        )
    for name, keys in books.items():
        outcome.note(f"left in {name}", len(keys))
    return outcome


def _wait_often(stage: Stage, said: Callable[[], dict[str, Any]]) -> Callable[[], int]:
    """Workers that send their task back to wait the first times, and succeed then."""

    def play() -> int:
        stage.pods.reap()
        dags.fire_triggers(stage.dag_id)
        moved = 0
        for pod in stage.pods.pending():
            workload = workload_of(pod)
            assert workload is not None
            moved += 1
            if stage.workers.start(pod):
                again = stage.workers.ran[workload["ti"]["id"]] <= TIMES
                stage.workers.end(pod, **(said() if again else {}))
        return moved

    return play


def _waiting(stage: Stage, kind: dags.Kind, said: Callable[[], dict[str, Any]]) -> Outcome:
    stage.dag(kind)
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    stage.settle(quiet=10, play=_wait_often(stage, said))
    return stage.judge(Want(row, TIMES + 1) for row in rows)


@register(
    holes="H17, #15077",
    title="sensor rescheduled three times",
    expected=EVERY_POD,
    size=200,
    trials=1,
    short=10,
)
def rescheduled(stage: Stage) -> Outcome:
    return _waiting(stage, "sensor", reschedule)


@register(
    holes="H17",
    title="the same with kept pods (`delete_worker_pods = False`)",
    expected=EVERY_POD,
    size=200,
    trials=1,
    config=KEPT,
)
def rescheduled_kept(stage: Stage) -> Outcome:
    return _waiting(stage, "sensor", reschedule)


@register(holes="H17", title="task deferred three times", expected=EVERY_POD, size=200, trials=1)
def deferred(stage: Stage) -> Outcome:
    return _waiting(stage, "plain", deferral)


@register(
    holes="H17",
    title="task deferred, scheduler replaced, task resumed; kept pods",
    expected="two pods, the task succeeds",
    size=200,
    trials=1,
    config=KEPT,
)
def resumed_after_restart(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    scheduler.heartbeat()
    scheduler.events()
    rows = stage.rows()
    for pod in stage.pods.pending():
        if stage.workers.start(pod):
            stage.workers.end(pod, **deferral())
    scheduler.loop()
    scheduler.crash()
    stage.restart(scheduler)
    dags.fire_triggers(stage.dag_id)
    stage.settle(quiet=8)
    return stage.judge(Want(row, 2) for row in rows)


@register(
    holes="H18",
    title="task mapped over a list, a quarter of it cleared while queued",
    expected="one pod for each that was not cleared, and for each new try; none for the old ones",
    size=200,
    trials=1,
)
def mapped(stage: Stage) -> Outcome:
    stage.dag("mapped")
    scheduler = stage.scheduler()
    while len(stage.rows()) < stage.size or any(row.state != "queued" for row in stage.rows()):
        scheduler.schedule()
    old = [row for row in stage.rows() if row.map_index % 4 == 0]
    stage.clear_rows(old)
    stage.settle(quiet=8)
    moved = {row.ti_id for row in stage.rows()}
    assert not any(row.ti_id in moved for row in old), "a clear gave the rows no new ids"
    return stage.judge_now(old)
