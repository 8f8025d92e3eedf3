# SPDX-License-Identifier: Apache-2.0
"""Connections to Airflow's metadata database: every form of URL that Airflow takes, every wait bounded."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import socket
import weakref
from typing import TYPE_CHECKING, Any

from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from steadfast_sidecar.sources.base import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import URL, Connection, Engine

CONNECT_SECONDS = 2

_FOR_THIS_TRANSACTION = text(
    "SELECT "
    + ", ".join(
        f"set_config('{name}', '{value}', true)"
        for name, value in {
            "statement_timeout": "5s",
            "idle_in_transaction_session_timeout": "15s",
            # Few rows are looked up in tables that may be large and, when new, have no statistics: the
            # planner would read a whole table, where the primary key answers in a probe per row.
            "enable_hashjoin": "off",
            "enable_mergejoin": "off",
            "enable_seqscan": "off",
        }.items()
    )
)

_LIBPQ = {
    "connect_timeout": CONNECT_SECONDS,
    "application_name": "steadfast-sidecar",
    # A peer that vanished without a word is noticed in seconds, not in the kernel's two hours.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10000,
}


def engine_of(url_text: str) -> Engine:
    """Return an engine with at most one connection; raises SourceError that never shows the password."""
    url = _parse(url_text)
    backend = url.get_backend_name()
    if backend == "sqlite":
        return create_engine(url, connect_args={"timeout": CONNECT_SECONDS})
    if backend != "postgresql":
        raise SourceError(
            "unsupported_database",
            f"the outbox is read from PostgreSQL or SQLite, not {backend}: events of workers are not counted",
        )
    url = url.set(drivername=f"postgresql+{_driver()}")
    arguments: dict[str, Any] = {key: value for key, value in _LIBPQ.items() if key not in url.query}
    if url.get_driver_name() == "psycopg":
        arguments["prepare_threshold"] = None  # prepared statements do not survive a pooler of transactions
    engine = create_engine(
        url, connect_args=arguments, pool_size=1, max_overflow=0, pool_pre_ping=True, pool_recycle=1800
    )
    event.listen(engine, "connect", lambda connection, _: _last_connection.update({engine: connection}))
    return engine


def cut(engine: Engine) -> None:
    """Shut the connection of an engine down, from another thread than the one that waits for it.

    Every limit above is kept by the server or by its kernel: of a server that is paused, or a pooler that
    waits for one, libpq waits for ever. The waiting thread then gets the error of a lost connection.
    Never raises; nothing happens while a connection is being made, or on SQLite.
    """
    with contextlib.suppress(Exception):
        # The duplicate stays ours when the driver closes its own.
        handle = socket.socket(fileno=os.dup(_last_connection[engine].fileno()))
        with handle:
            handle.shutdown(socket.SHUT_RDWR)


_last_connection: weakref.WeakKeyDictionary[Engine, Any] = weakref.WeakKeyDictionary()
"""By engine the one connection that its pool made last."""


@contextlib.contextmanager
def transaction(engine: Engine, *, lasting: bool = True) -> Iterator[Connection]:
    """Begin, yield, and commit or roll back; raises SourceError for what the database says.

    One that is not ``lasting`` is rolled back in any case. Limits and planner settings hold for this
    transaction alone, also behind a transaction pooler.
    """
    try:
        with engine.connect() as connection, connection.begin() as begun:
            if engine.dialect.name == "postgresql":
                connection.execute(_FOR_THIS_TRANSACTION)
            yield connection
            if not lasting:
                begun.rollback()
    except SQLAlchemyError as error:
        raise _as_source_error(error) from error


def shown(url_text: str) -> str:
    """Return the URL without its password, for people."""
    try:
        return str(_parse(url_text).render_as_string(hide_password=True))
    except SourceError:
        return "(not a database URL)"


def _parse(url_text: str) -> URL:
    # Airflow's own documents still show the old scheme, which SQLAlchemy dropped.
    fitted = re.sub(r"^postgres(?=(\+\w+)?://)", "postgresql", url_text)
    try:
        return make_url(fitted)
    except (ArgumentError, ValueError) as error:
        raise SourceError(
            "bad_url",
            "the database URL is not of the form postgresql://user:password@host:port/database: "
            "check STEADFAST_DATABASE_URL or AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        ) from error


def _driver() -> str:
    """Return the driver that is here: SQLAlchemy's own default differs between 2.0 and 2.1."""
    for module in ("psycopg2", "psycopg"):
        if importlib.util.find_spec(module):
            return module
    raise SourceError(
        "no_driver", "neither psycopg2 nor psycopg is installed: add psycopg2-binary to the image"
    )


def _as_source_error(error: SQLAlchemyError) -> SourceError:
    original = getattr(error, "orig", None)
    state = getattr(original, "sqlstate", None) or getattr(original, "pgcode", None)
    lines = str(original or error).strip().splitlines() or [type(error).__name__]
    code = f"database:{state}" if state else "database"
    return SourceError(code, f"{type(error).__name__}: {lines[0]}")
