# SPDX-License-Identifier: Apache-2.0
"""What the metadata database says about a batch of task instances, in one SELECT.

It has an engine of its own: the scheduler may hold an open transaction while its executor works, and
nothing here may commit, close or wait for that session.
"""

from __future__ import annotations

import math
import os
import time
import weakref
from typing import TYPE_CHECKING, Any

from airflow_steadfast.launch_guard.cut_off import CutOff
from airflow_steadfast.launch_guard.rows import by_key, query

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_steadfast.launch_guard.rows import Row

MAX_IDS = 1_000
"""Most ids of one SELECT; PostgreSQL's planner still looks each of them up in the primary key."""

_LIBPQ_SHORTEST_CONNECT_TIMEOUT = 2
_GRACE = 0.25
"""Seconds that the server has to say itself that the time is over, before its connection is cut."""


class SnapshotError(Exception):
    """The database gave no answer; ``reason`` is its value in the metrics."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Snapshot:
    """Reads rows of ``task_instance``; one connection, opened at the first read and kept.

    ``timeout`` bounds a read in seconds: connecting (2 s at least, libpq's shortest), the statement
    (by the server, ``SET LOCAL`` so that it survives a transaction-pooling pgbouncer), a peer that no
    longer acknowledges, and one that acknowledges and stays silent (its connection is cut from here).
    The bounds hold on PostgreSQL. Elsewhere only connecting (MySQL), waiting for a lock (SQLite) and, where
    the driver has a socket to cut, silence are bounded.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._engine: Any = None
        self._bound: CutOff | None = None

    def read(self, keys: Sequence[Any]) -> dict[Any, Row]:
        """Return the rows of at most 1,000 row keys by key; a missing row is a missing key.

        Raises ``SnapshotError``. A connection that was closed under it is opened again at once, once,
        while the time lasts.
        """
        if len(keys) > MAX_IDS:
            raise ValueError(f"at most {MAX_IDS} keys per read, got {len(keys)}")
        return dict(by_key(self.select(lambda: query(keys, array=self._is_postgresql()))))

    def select(self, statement: Callable[[], Any]) -> list[Any]:
        """Return the rows of a SELECT, which ``statement`` makes; bounds and errors as in ``read``."""
        try:
            # before the clock starts: the first one imports Airflow's models
            made, engine = statement(), self._get_engine()
        except Exception as error:
            raise SnapshotError("internal_error", f"{type(error).__name__}: {error}") from error
        deadline = time.monotonic() + self._timeout
        try:
            return self._select(engine, made, deadline)
        except Exception as error:
            if not getattr(error, "connection_invalidated", False) or time.monotonic() >= deadline:
                raise _as_snapshot_error(error) from error
        try:
            return self._select(engine, made, deadline)
        except Exception as error:
            raise _as_snapshot_error(error) from error

    def close(self) -> None:
        """Close the connection. Idempotent, never raises."""
        engine, self._engine = self._engine, None
        try:
            if engine is not None:
                engine.dispose()
        except Exception:  # noqa: S110 - the process is ending, and the socket with it
            pass

    def _get_engine(self) -> Any:
        if self._engine is None:
            from sqlalchemy import event

            self._engine = _create_engine(self._timeout)
            # ahead of the dialect's own listener, which asks the server about itself
            event.listen(self._engine, "connect", self._watch, insert=True)
            _forget_in_children(self._engine)
        return self._engine

    def _is_postgresql(self) -> bool:
        return bool(self._get_engine().dialect.name == "postgresql")

    def _watch(self, dbapi_connection: Any, _record: Any) -> None:
        if self._bound is not None:
            self._bound.watch(dbapi_connection)

    def _select(self, engine: Any, statement: Any, deadline: float) -> list[Any]:
        bound = self._bound = CutOff(max(0.0, deadline - time.monotonic()) + _GRACE)
        with bound, engine.connect() as connection:
            bound.watch(connection.connection.dbapi_connection)
            if connection.dialect.name == "postgresql":
                left = max(1, math.ceil((deadline - time.monotonic()) * 1000))
                # not text(): each new number would be compiled, and kept in the engine's cache
                connection.exec_driver_sql(f"SET LOCAL statement_timeout = {left:d}")
            return list(connection.execute(statement))


def _create_engine(timeout: float) -> Any:
    """Make an engine with one connection, by Airflow's own factory where a site may have replaced it."""
    from airflow import settings as airflow_settings
    from airflow.configuration import conf
    from sqlalchemy import create_engine
    from sqlalchemy.engine import make_url
    from sqlalchemy.pool import QueuePool

    url = conf.get("database", "sql_alchemy_conn")
    connect_args: dict[str, Any] = {}
    if conf.has_option("database", "sql_alchemy_connect_args"):
        connect_args.update(conf.getimport("database", "sql_alchemy_connect_args"))
    backend = make_url(url).get_backend_name()
    if backend == "sqlite":
        connect_args["timeout"] = timeout
    elif backend == "mysql":
        connect_args["connect_timeout"] = math.ceil(timeout)
    elif backend == "postgresql":
        connect_args["connect_timeout"] = max(_LIBPQ_SHORTEST_CONNECT_TIMEOUT, math.ceil(timeout))
        connect_args["tcp_user_timeout"] = math.ceil(timeout * 1000)
    engine_args = {"poolclass": QueuePool, "pool_size": 1, "max_overflow": 0, "pool_timeout": timeout}
    factory = getattr(airflow_settings, "create_metadata_engine", None)
    if factory is not None:
        return factory(url, engine_args=engine_args, connect_args=connect_args)
    return create_engine(url, connect_args=connect_args, future=True, **engine_args)


def _forget_in_children(engine: Any) -> None:
    """A forked child (the watchers) must not end the parent's database session with its copy."""
    reference = weakref.ref(engine)

    def forget() -> None:
        inherited = reference()
        if inherited is not None:
            inherited.dispose(close=False)

    os.register_at_fork(after_in_child=forget)


def _as_snapshot_error(error: Exception) -> SnapshotError:
    original = getattr(error, "orig", None)
    code = getattr(original, "pgcode", None) or getattr(original, "sqlstate", None)
    text = str(original or error).strip().splitlines()
    first = text[0] if text else ""
    late = code == "57014" or "timeout" in first.lower() or "timed out" in first.lower()
    return SnapshotError("timeout" if late else "database_error", f"{type(error).__name__}: {first}")
