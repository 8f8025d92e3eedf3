# SPDX-License-Identifier: Apache-2.0
"""Faults of the database."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.stage import Stage


@contextlib.contextmanager
def connection_closed_at(stage: Stage, *, seconds: float = 0.0, required: bool = True) -> Iterator[None]:
    """The first statement that reads task instances waits for a lock, and its connection is closed then.

    For ``seconds`` from then on the same happens to all that do. Raises AssertionError at its end where
    none did and one is ``required``.
    """
    import psycopg2

    where = stage.table.execute("SELECT current_database()")[0][0]
    address = {"host": "127.0.0.1", "port": stage.postgres.port, "user": "postgres", "dbname": where}
    locking, looking = psycopg2.connect(**address), psycopg2.connect(**address)
    looking.autocommit = True
    locking.cursor().execute("LOCK TABLE task_instance IN ACCESS EXCLUSIVE MODE")
    closed, over = threading.Event(), threading.Event()
    waiting = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ILIKE '%task_instance%'"
    )

    def close_them() -> None:
        cursor: Any = looking.cursor()
        until = math.inf
        while not over.is_set() and time.monotonic() < until:
            cursor.execute(waiting)
            if cursor.fetchall() and not closed.is_set():
                closed.set()
                until = time.monotonic() + seconds
            time.sleep(0.01)
        locking.rollback()

    thread = threading.Thread(target=close_them)
    thread.start()
    try:
        yield
        if closed.is_set():
            thread.join()
        assert closed.is_set() or not required, "no statement waited for the lock: the fault was not played"
    finally:
        over.set()
        thread.join()
        locking.close()
        looking.close()
