# SPDX-License-Identifier: Apache-2.0
"""Pods that change their scheduler, or whose scheduler is gone when they appear."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.scenarios.cleanup import KEPT, is_there, is_unmarked, loop_until, settle_and_judge
from tests.faults.spec import register
from tests.faults.stage import Want
from tests.support.fault_proxy import Fault

if TYPE_CHECKING:
    from tests.faults.outcome import Outcome
    from tests.faults.stage import Stage
    from tests.faults.table import Row

LATE = {
    "KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": "True",
    "KUBERNETES_EXECUTOR__POD_CREATION_MAX_CONCURRENCY": "250",
    "KUBERNETES_EXECUTOR__KUBE_CLIENT_REQUEST_ARGS": '{"_request_timeout": 10}',
}


def _in_every_state(stage: Stage) -> list[Row]:
    """A third of the pods pending, a third running, a third completed; the scheduler knows of no end."""
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    scheduler.heartbeat()
    scheduler.events()
    for number, pod in enumerate(stage.pods.pending()):
        if number % 3 and stage.workers.start(pod) and number % 3 == 2:
            stage.workers.end(pod)
    return stage.rows()


@register(
    holes="H8, #26888, PR #35800, #28071",
    title="scheduler dies while its pods are pending, running and completed; another one adopts them",
    expected="no second pod; every task succeeds, every pod is deleted",
    size=200,
    trials=1,
)
def adopted_by_another(stage: Stage) -> Outcome:
    rows = _in_every_state(stage)
    stage.schedulers[0].crash()
    stage.restart(stage.schedulers[0])
    return settle_and_judge(stage, rows, is_there)


@register(
    holes="H8, #28071",
    title="the same with kept pods (`delete_worker_pods = False`)",
    expected="no second pod; every task succeeds, every pod is marked as done",
    size=200,
    trials=1,
    config=KEPT,
)
def adopted_by_another_kept(stage: Stage) -> Outcome:
    rows = _in_every_state(stage)
    stage.schedulers[0].crash()
    stage.restart(stage.schedulers[0])
    return settle_and_judge(stage, rows, is_unmarked)


@register(
    holes="#35675, #36478, #32928, PR #31274",
    title="scheduler A frozen, B adopts its pods in every state, A goes on before they end",
    expected="no task fails by its pod's new owner, no slot stays taken in A; one pod each, all succeed",
    size=200,
    trials=1,
)
def adopted_from_frozen(stage: Stage) -> Outcome:
    rows = _in_every_state(stage)
    frozen = stage.schedulers[0]
    stage.table.execute(
        f"UPDATE job SET latest_heartbeat = now() - interval '1 h' WHERE id = {frozen.job_id}"
    )
    other = stage.scheduler()
    other.adopt()
    other.beat()
    loop_until(stage, lambda: not frozen.executor.running)
    left = len(frozen.executor.running)
    outcome = settle_and_judge(stage, rows, is_there)
    outcome.note("slots still taken in A after the adoption", left)
    return outcome


@register(
    holes="H8",
    title="creates held past the client's time-out, scheduler dies; half of the pods appear before "
    "another one adopts, half after it (`async_pod_creation`)",
    expected="the early ones are adopted; the late ones' workers are refused, their tasks have one new pod",
    size=50,
    trials=4,
    config=LATE,
)
def late_create_after_restart(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    early = [row for row in rows if int(row.task_id[1:]) % 2 == 0]
    late = [row for row in rows if row not in early]
    holds = [
        stage.proxy.add(Fault("hold", body=f'"task_id": ?"t[0-9]*[{digits}]"'))
        for digits in ("02468", "13579")
    ]
    scheduler.survives(scheduler.heartbeat)
    held = sum(map(stage.proxy.waiting, holds))
    assert held == stage.size, f"{held} creates are held: the client has fewer connections"
    scheduler.crash()
    stage.proxy.remove(holds[0])
    stage.until(lambda: len(stage.audit.created()) == len(early), "the early pods")
    stage.restart(scheduler)
    stage.proxy.remove(holds[1])
    stage.until(lambda: len(stage.audit.created()) == len(rows), "the late pods")
    stage.settle(quiet=8)
    known = {row.ti_id for row in late}
    assert known.isdisjoint(row.ti_id for row in stage.rows()), "core gave the late ones no new ids"
    ran = {row.ti_id: "its late pod's worker ran" for row in late if stage.workers.ran[row.ti_id]}
    wants = [Want(row, 1, None, ran.get(row.ti_id, ""), "doubled") for row in late]
    return stage.judge([*map(Want, stage.rows()), *wants])
