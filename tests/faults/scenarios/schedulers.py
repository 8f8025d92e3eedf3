# SPDX-License-Identifier: Apache-2.0
"""Several schedulers, several executors."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.faults.outcome import Outcome
from tests.faults.spec import register
from tests.faults.stage import Want
from tests.support.fault_proxy import refusal

if TYPE_CHECKING:
    from tests.faults.stage import Stage

FOREVER = {"KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES": "-1"}
_GAUGE_SECONDS = 45.0


@register(
    holes="H13, #69760",
    title="scheduler A frozen with queued workloads, B takes them over and runs them, A goes on",
    expected="A launches nothing; every task succeeds with B's one pod",
    size=200,
    trials=1,
    config=FOREVER,
    short=20,
)
def frozen_scheduler(stage: Stage) -> Outcome:
    stage.dag()
    frozen = stage.scheduler()
    frozen.schedule()
    old = stage.rows()
    stage.proxy.add(refusal(429, retry_after=1))
    frozen.heartbeat()
    frozen.events()
    stage.table.execute(
        f"UPDATE job SET latest_heartbeat = now() - interval '1 h' WHERE id = {frozen.job_id}"
    )
    other = stage.scheduler()
    other.adopt()
    stage.proxy.clear()
    time.sleep(1.1)  # the Retry-After of the 429 (1 s) that the executor waits out
    other.loop()
    for _ in range(3):  # A wakes while B's pods are there
        frozen.survives(frozen.work)
    stage.settle(quiet=8)
    return stage.judge_now(old)


@register(
    holes="H14",
    title="queued task whose owner is taken away: dropped, still QUEUED, nobody has it",
    expected="no pod; an operator is told how many (`steadfast_stranded_task_instances`)",
    size=200,
    trials=1,
    limit="core never looks at a QUEUED task without an owner",
)
def stranded(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    stage.table.execute(f"UPDATE task_instance SET queued_by_job_id = NULL WHERE dag_id = '{stage.dag_id}'")
    deadline = time.monotonic() + _GAUGE_SECONDS
    reported = 0.0
    while reported < len(rows) and time.monotonic() < deadline and stage.impl == "steadfast":
        scheduler.survives(scheduler.heartbeat)
        reported = stage.total("stranded_task_instances")
        time.sleep(0.2)
    scheduler.survives(scheduler.heartbeat)
    created = Counter(pod.ti_id for pod in stage.audit.created())
    outcome = Outcome(exits=scheduler.exits)
    for row in rows:
        outcome.count(
            f"{row.task_id}: {reported:g} of {len(rows)} reported",
            doubled=created[row.ti_id] > 0,
            wrong=reported != len(rows),
        )
    stage.count_unasked(outcome, rows)
    return outcome


@register(
    holes="H13, #57618, PR #59234",
    title="scheduler B queues tasks that A has queued already, whose workloads wait under 429",
    expected="A launches nothing; every task succeeds with B's one pod, in this try",
    size=200,
    trials=1,
    config=FOREVER,
)
def queued_by_two_schedulers(stage: Stage) -> Outcome:
    stage.dag()
    first = stage.scheduler()
    first.schedule()
    stage.proxy.add(refusal(429, retry_after=1))
    first.heartbeat()
    first.events()
    second = stage.scheduler()
    # what a scheduler without the state clause of #60330 writes, from a read before the first one's commit
    stage.table.change(stage.rows(), "state = 'scheduled'", "state = 'queued'")
    assert second.schedule() == stage.size
    second.heartbeat()
    second.events()
    stage.proxy.clear()
    time.sleep(1.1)  # the Retry-After of the 429 (1 s) that the executor waits out
    for scheduler in (first, second, first):
        scheduler.survives(scheduler.work)
    stage.settle(quiet=8)
    return stage.judge(map(Want, stage.rows()))


@register(
    holes="H19",
    title="two executors in one scheduler, half of each one's queued tasks stale",
    expected="one pod for each fresh task, none for a stale one",
    size=200,
    trials=1,
)
def two_executors(stage: Stage) -> Outcome:
    aliases = ("KubernetesExecutor", "second")
    stage.dag(executors=aliases)
    scheduler = stage.scheduler(aliases=aliases)
    scheduler.schedule()
    rows = stage.rows()
    stale = [row for number, row in enumerate(rows) if number // 2 % 2]
    stage.table.change(stale, "state = 'success'")
    stage.settle(quiet=8)
    gone = {row.ti_id for row in stale}
    return stage.judge(Want(row, int(row.ti_id not in gone), "success") for row in rows)
