# SPDX-License-Identifier: Apache-2.0
"""The metadata database fails under the check, or at a shutdown."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.faults.outcome import Outcome
from tests.faults.spec import register
from tests.faults.stage import Want

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.stage import Stage

ASYNC = {"KUBERNETES_EXECUTOR__ASYNC_POD_CREATION": "True"}
HELD = "launches wait for the database, each gets its one pod in this try; the scheduler goes on"


@contextlib.contextmanager
def _closed_under_the_check(stage: Stage) -> Iterator[None]:
    """The first statement that reads task instances waits for a lock, and its connection is closed then."""
    import psycopg2

    where = stage.table.execute("SELECT current_database()")[0][0]
    address = {"host": "127.0.0.1", "port": stage.postgres.port, "user": "postgres", "dbname": where}
    locking, looking = psycopg2.connect(**address), psycopg2.connect(**address)
    looking.autocommit = True
    locking.cursor().execute("LOCK TABLE task_instance IN ACCESS EXCLUSIVE MODE")
    closed = threading.Event()
    waiting = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ILIKE '%task_instance%'"
    )

    def close_the_first() -> None:
        cursor: Any = looking.cursor()
        while not closed.is_set():
            cursor.execute(waiting)
            if cursor.fetchall():
                closed.set()
            time.sleep(0.01)
        locking.rollback()

    thread = threading.Thread(target=close_the_first)
    thread.start()
    try:
        yield
        assert closed.is_set(), "no statement waited for the lock: the fault was not played"
    finally:
        closed.set()
        thread.join()
        locking.close()
        looking.close()


def _closed(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    rows = stage.rows()
    with _closed_under_the_check(stage):
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
            scheduler.heartbeat()
            session.rollback()
        found = stage.table.execute(f"SELECT description FROM dag WHERE dag_id = '{stage.dag_id}'")
        written.append(found[0][0] == f"mark-{number}")
    created = Counter(pod.ti_id for pod in stage.audit.created())
    outcome = Outcome()
    for row, committed in zip(rows, written, strict=True):
        pods = created[row.ti_id]
        outcome.count(
            f"{row.task_id}: {pods} pods, foreign write {'committed' if committed else 'rolled back'}",
            lost=pods < 1,
            doubled=pods > 1,
            wrong=committed,
        )
    stage.count_unasked(outcome, rows)
    return outcome
