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
from airflow_steadfast.launch_guard.rows import array_text, by_key, query, row_texts

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
        self._deadline = 0.0
        self._text: str | None = None

    def read(self, keys: Sequence[Any]) -> dict[Any, Row]:
        """Return the rows of at most 1,000 row keys by key; a missing row is a missing key.

        Raises ``SnapshotError``. A connection that was closed under it is opened again at once, once,
        while the time lasts.
        """
        if len(keys) > MAX_IDS:
            raise ValueError(f"at most {MAX_IDS} keys per read, got {len(keys)}")
        return dict(by_key(self.select(lambda: self._question(keys))))

    def select(self, statement: Callable[[], Any]) -> list[Any]:
        """Return the rows of a SELECT, which ``statement`` makes; bounds and errors as in ``read``.

        It is SQLAlchemy's, or a pair of the driver's own text and parameters, whose values come as the driver
        gives them.
        """
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
            if _in_one_message(self._engine.dialect):
                event.listen(self._engine, "before_cursor_execute", self._with_limit, retval=True)
            _forget_in_children(self._engine)
        return self._engine

    def _question(self, keys: Sequence[Any]) -> Any:
        dialect = self._get_engine().dialect
        if not _in_one_message(dialect):
            return query(keys, array=dialect.name == "postgresql")
        if self._text is None:
            self._text = array_text(dialect)
        return (self._text, {"keys": row_texts(keys)}) if self._text else query(keys)

    def _watch(self, dbapi_connection: Any, _record: Any) -> None:
        if self._bound is not None:
            self._bound.watch(dbapi_connection)

    def _select(self, engine: Any, statement: Any, deadline: float) -> list[Any]:
        self._deadline = deadline
        bound = self._bound = CutOff(max(0.0, deadline - time.monotonic()) + _GRACE)
        with bound, engine.connect() as connection:
            bound.watch(connection.connection.dbapi_connection)
            if connection.dialect.name == "postgresql" and not _in_one_message(connection.dialect):
                # not text(): each new number would be compiled, and kept in the engine's cache
                connection.exec_driver_sql(self._limit())
            if isinstance(statement, tuple):
                return list(connection.exec_driver_sql(*statement))
            return list(connection.execute(statement))

    def _with_limit(self, _1: Any, _2: Any, statement: str, parameters: Any, *_: Any) -> tuple[str, Any]:
        return f"{self._limit()}; {statement}", parameters

    def _limit(self) -> str:
        left = max(1, math.ceil((self._deadline - time.monotonic()) * 1000))
        return f"SET LOCAL statement_timeout = {left:d}"


def _in_one_message(dialect: Any) -> bool:
    """Whether the driver sends several statements as one message, which the server takes as one transaction.

    It saves three of four round trips (BEGIN, SET, ROLLBACK), half of a check's time. psycopg 3 binds
    parameters on the server, and then sends one statement at a time.
    """
    return bool(dialect.driver == "psycopg2")


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
    engine_args: dict[str, Any] = {
        "poolclass": QueuePool,
        "pool_size": 1,
        "max_overflow": 0,
        "pool_timeout": timeout,
    }
    if _in_one_message(make_url(url).get_dialect()):
        # SQLAlchemy's BEGIN and ROLLBACK would be messages of their own
        engine_args["isolation_level"] = "AUTOCOMMIT"
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
