# SPDX-License-Identifier: Apache-2.0
"""The metadata database fails under the check, or at a shutdown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.faults.outages import connection_closed_at
from tests.faults.spec import register
from tests.faults.stage import Want

if TYPE_CHECKING:
    from tests.faults.outcome import Outcome
    from tests.faults.stage import Stage

ASYNC = {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": "True"}
MAX_HOLD = 3
OUTAGE = 8
HELD = "launches wait for the database, each gets its one pod in this try; the scheduler goes on"


def _closed(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    # on Airflow 2 upstream has no check, and nothing else of its loop reads task instances
    with connection_closed_at(stage, required=stage.with_ids or stage.impl == "steadfast"):
        scheduler.survives(scheduler.heartbeat)
    stage.settle(quiet=15)
    return stage.judge(Want(row) for row in rows)


@register(holes="H1", title="one database connection closed under the check", expected=HELD, short=30)
def connection_closed(stage: Stage) -> Outcome:
    return _closed(stage)


@register(
    holes="H1",
    title="the same with `async_pod_creation`",
    expected=HELD,
    config=ASYNC,
)
def connection_closed_async(stage: Stage) -> Outcome:
    return _closed(stage)


@register(
    holes="H1", title="database stopped while the executor works, started again after it", expected=HELD
)
def database_stopped(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    stage.postgres.stop()
    try:
        scheduler.survives(scheduler.heartbeat)
    finally:
        stage.postgres.start()
    stage.settle(quiet=20)
    return stage.judge(Want(row) for row in rows)


@register(
    holes="H1",
    title=f"database stopped for {OUTAGE} s, `guard_max_hold = {MAX_HOLD}`; the API server works",
    expected="launched unchecked while the database is away, and not before; one pod each, the tasks succeed",
    size=200,
    trials=1,
    config={"STEADFAST__GUARD_MAX_HOLD": str(MAX_HOLD)},
)
def held_past_max_hold(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    stage.postgres.stop()
    began = time.monotonic()
    first = 0.0
    try:
        while time.monotonic() - began < OUTAGE:
            scheduler.survives(scheduler.heartbeat)
            if not first and stage.audit.created():
                first = time.monotonic() - began
            time.sleep(0.2)  # a scheduler's idle loops are a second apart, not as many as fit
        early = {pod.ti_id for pod in stage.audit.created()}
    finally:
        stage.postgres.start()
    stage.settle(quiet=20)
    flaw = f"launched before {MAX_HOLD} s" if first < MAX_HOLD else ""
    outcome = stage.judge(
        Want(row, flaw=flaw if row.ti_id in early else "not launched in the outage") for row in rows
    )
    outcome.note("launched unchecked", stage.total("launches_failed_open_total"))
    return outcome


@register(
    holes="H1",
    title="database stopped for long: the scheduler's own loop ends",
    expected="after its restart every task runs once; a try may be burned by core's reset",
    limit="core ends the scheduler and resets its queued tasks",
)
def database_stopped_for_long(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    stage.postgres.stop()
    try:
        scheduler.survives(scheduler.heartbeat)
        scheduler.loop()
    finally:
        stage.postgres.start()
    ended = scheduler.exits
    scheduler.exits = 0
    heir = stage.restart(scheduler)
    assert heir.alive
    stage.settle(quiet=20)
    outcome = stage.judge_now(rows)
    outcome.note("schedulers that ended in the outage", ended)
    return outcome


@register(
    holes="H21",
    title="scheduler shut down while the database is stopped (`async_pod_creation`)",
    expected="the shutdown ends without asking it; after the restart every task runs once",
    config=ASYNC,
    limit="core resets the queued tasks of a scheduler that is gone",
)
def shutdown_without_database(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    stage.postgres.stop()
    try:
        scheduler.survives(scheduler.heartbeat)
        scheduler.end()
    finally:
        stage.postgres.start()
    stage.restart(scheduler)
    stage.settle(quiet=20)
    outcome = stage.judge_now(rows)
    outcome.exits += sum(one.hung for one in stage.schedulers)
    return outcome


@register(
    holes="H11, #67813",
    title="executor heartbeat inside an open session with an uncommitted write",
    expected="the caller's transaction is neither committed nor closed",
    size=200,
    trials=1,
    config={"KUBERNETES_EXECUTOR__WORKER_PODS_CREATION_BATCH_SIZE": "1"},
    short=20,
)
def open_session(stage: Stage) -> Outcome:
    from airflow.utils.session import create_session
    from sqlalchemy import text

    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    written = []
    for number in range(len(rows)):
        with create_session() as session:
            session.execute(
                text(f"UPDATE dag SET description = 'mark-{number}' WHERE dag_id = '{stage.dag_id}'")
            )
            scheduler.executor.heartbeat()
            session.rollback()
        found = stage.table.execute(f"SELECT description FROM dag WHERE dag_id = '{stage.dag_id}'")
        written.append(found[0][0] == f"mark-{number}")
    return stage.judge(
        Want(row, 1, None, "foreign write committed" if committed else "")
        for row, committed in zip(rows, written, strict=True)
    )
