# SPDX-License-Identifier: Apache-2.0
"""Pods after their task's end: to be deleted, or marked as done, by whoever has them then."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.faults import dags
from tests.faults.audit import workload_of
from tests.faults.spec import register
from tests.faults.stage import Want
from tests.support.fault_proxy import Fault, refusal
from tests.support.faults import POD

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tests.faults.outcome import Outcome
    from tests.faults.stage import Stage
    from tests.faults.table import Row

KEPT = {"KUBERNETES_EXECUTOR__DELETE_WORKER_PODS": "False"}
# as short as a scenario's patience: what completed without a task instance to adopt is looked for that often
LOOKING = {"SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "1"}
DONE = "airflow_executor_done"
PATIENCE = 15.0
REFUSED_SECONDS = 10.0


def _run_all(stage: Stage) -> list[Row]:
    """Let every task succeed; its pod has completed, and no executor has heard of it."""
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    scheduler.heartbeat()
    scheduler.events()
    while stage.workers.play():
        pass
    return rows


def loop_until(stage: Stage, is_so: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Loop the schedulers that are alive until something is so, ``seconds`` at most."""
    deadline = time.monotonic() + seconds
    while not is_so() and time.monotonic() < deadline:
        for scheduler in stage.schedulers:
            scheduler.survives(scheduler.work)
        stage.pods.reap()
        time.sleep(0.2)  # a scheduler's idle loops are a second apart, not as many as fit


def settle_and_judge(
    stage: Stage,
    rows: Sequence[Row],
    is_left: Callable[[dict[str, Any]], bool],
    flaws: Mapping[str, str] | None = None,
) -> Outcome:
    """One pod and success each, no pod ``is_left``, and none of the ``flaws``, which are by ``ti_id``."""
    stage.settle(quiet=8)
    left = {
        workload["ti"]["id"]: "its pod is left"
        for pod in stage.pods.all()
        if is_left(pod) and (workload := workload_of(pod))
    }
    found = {**left, **(flaws or {})}
    outcome = stage.judge(Want(row, flaw=found.get(row.ti_id, "")) for row in rows)
    outcome.note("pods left", len(left))
    return outcome


def is_there(_: dict[str, Any]) -> bool:
    """Whether a pod that should have been deleted is left."""
    return True


def is_unmarked(pod: dict[str, Any]) -> bool:
    """Whether no executor has said that it is done with the pod."""
    return str(pod["metadata"]["labels"].get(DONE)) != "True"


def _die_trying(stage: Stage, fault: Fault) -> None:
    """Let the scheduler die when it has met the fault as often as there are pods.

    The provider takes a result that failed from the queue again at once, so its loop does not return.
    """
    scheduler = stage.schedulers[0]
    number = stage.proxy.add(fault)
    scheduler.in_background(scheduler.work)
    stage.until(lambda: stage.proxy.hits(number) >= stage.size, "requests that meet the fault")
    scheduler.crash()
    scheduler.await_background()
    scheduler.exits = 0  # its death is the scenario's
    stage.proxy.clear()


@register(
    holes="#57553",
    title="deletes of finished pods refused with 500, once each",
    expected="every pod is deleted in the end; nothing stays in the executor's books",
    size=200,
    trials=1,
)
def cleanup_refused(stage: Stage) -> Outcome:
    rows = _run_all(stage)
    fault = stage.proxy.add(refusal(500, method="DELETE", path=POD, count=stage.size))
    loop_until(stage, lambda: stage.proxy.hits(fault) == stage.size and not stage.pods.all())
    hits = stage.proxy.hits(fault)
    assert hits == stage.size, f"{hits} deletes were refused: the fault was not played"
    return settle_and_judge(stage, rows, is_there)


@register(
    holes="#57553, #33402",
    title="deletes of finished pods refused with 500 until the scheduler dies; another one takes its place",
    expected="the other one deletes every pod; nothing stays in its books",
    size=200,
    trials=1,
    config=LOOKING,
)
def cleanup_refused_restart(stage: Stage) -> Outcome:
    rows = _run_all(stage)
    _die_trying(stage, refusal(500, method="DELETE", path=POD))
    assert len(stage.pods.all()) == stage.size
    stage.restart(stage.schedulers[0])
    loop_until(stage, lambda: not stage.pods.all())
    return settle_and_judge(stage, rows, is_there)


@register(
    holes="#57553",
    title="deletes of finished pods refused with 500 for 10 s while other tasks are queued",
    expected="the scheduler's loop goes on: the others have their pods meanwhile; every pod is deleted",
    size=100,
    trials=2,
)
def cleanup_refused_for_long(stage: Stage) -> Outcome:
    _run_all(stage)
    scheduler = stage.schedulers[0]
    dags.trigger(stage.dag_id, "second")
    assert scheduler.schedule() == stage.size
    stage.proxy.add(refusal(500, method="DELETE", path=POD))
    deadline = time.monotonic() + REFUSED_SECONDS

    def loops() -> None:
        while time.monotonic() < deadline:
            scheduler.work()
            time.sleep(0.2)  # a scheduler's idle loops are a second apart, not as many as fit

    scheduler.in_background(loops)
    time.sleep(REFUSED_SECONDS)  # how long the fault lasts
    early = {pod.ti_id for pod in stage.audit.created()}
    stage.proxy.clear()
    scheduler.await_background()
    rows = stage.rows()
    flaws = {row.ti_id: "no pod while deletes were refused" for row in rows if row.ti_id not in early}
    return settle_and_judge(stage, rows, is_there, flaws)


def _lose_marks(stage: Stage) -> None:
    """The first PATCH of half of the pods is not seen by the server, the reply of the others' is lost."""
    half = stage.size // 2
    faults = [
        stage.proxy.add(Fault("reset", method="PATCH", path=POD, count=half)),
        stage.proxy.add(Fault("drop_reply", method="PATCH", path=POD, forward=True, count=stage.size - half)),
    ]

    def hits() -> int:
        return sum(map(stage.proxy.hits, faults))

    loop_until(stage, lambda: hits() == stage.size)
    assert hits() == stage.size, f"{hits()} marks met the fault: it was not played"


@register(
    holes="PR #58033",
    title="PATCH that marks a kept pod as done: half of them reset, the reply of the others lost",
    expected="every task succeeds with its one pod, which is marked; nothing stays in the executor's books",
    size=200,
    trials=1,
    config=KEPT,
)
def done_mark_lost(stage: Stage) -> Outcome:
    rows = _run_all(stage)
    _lose_marks(stage)
    loop_until(stage, lambda: not any(map(is_unmarked, stage.pods.all())))
    return settle_and_judge(stage, rows, is_unmarked)


@register(
    holes="PR #58033, #57553",
    title="the same, and the scheduler dies before it tries again; another one takes its place",
    expected="the other one marks what is not marked; nothing stays in its books",
    size=200,
    trials=1,
    config={**KEPT, **LOOKING},
)
def done_mark_lost_restart(stage: Stage) -> Outcome:
    rows = _run_all(stage)
    _die_trying(stage, Fault("reset", method="PATCH", path=POD))
    assert all(map(is_unmarked, stage.pods.all()))
    stage.restart(stage.schedulers[0])
    loop_until(stage, lambda: not any(map(is_unmarked, stage.pods.all())))
    return settle_and_judge(stage, rows, is_unmarked)


@register(
    holes="#17693, PR #18095",
    title="node removed: its running pods are deleted at once, their workers say nothing",
    expected="noticed at once: the task is failed, its slot is free",
    size=200,
    trials=1,
)
def node_removed(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    scheduler.heartbeat()
    scheduler.events()
    for pod in stage.pods.pending():
        assert stage.workers.start(pod)
    scheduler.loop()
    stage.pods.delete_all()
    stage.settle(quiet=8, play=lambda: 0)
    return stage.judge(Want(row, 1, "failed") for row in rows)
