# SPDX-License-Identifier: Apache-2.0
"""The sidecar's two tables, and what it needs of Airflow's.

``outbox_claims`` holds one row per counted event: whoever inserts it counts the event, for ever.
``outbox_tallies`` holds the sums of each sidecar. On PostgreSQL both are in the schema ``steadfast``;
SQLite has no schemas, so there the names carry the prefix ``steadfast_``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import inspect, text
from sqlalchemy.exc import NoSuchTableError

from steadfast_sidecar.sources.base import NO_STATE_STORE, SourceError
from steadfast_sidecar.sources.database import transaction

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection, Engine

SCHEMA = "steadfast"
STATE_STORE = "task_state_store"
NEEDED_COLUMNS = frozenset({"id", "dag_run_id", "task_id", "map_index", "key"})

_LOCK = 0x5354_4541_4446_5354  # "STEADFST": an advisory lock's number must be the same in every sidecar

_CLAIMS = """
CREATE TABLE IF NOT EXISTS {claims} (
    dag_run_id BIGINT NOT NULL,
    task_id VARCHAR(250) NOT NULL,
    map_index INTEGER NOT NULL,
    key VARCHAR(512) NOT NULL,
    consumer VARCHAR(253) NOT NULL,
    claimed_at {timestamp} NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (dag_run_id, task_id, map_index, key)
)
"""
_TALLIES = """
CREATE TABLE IF NOT EXISTS {tallies} (
    consumer VARCHAR(253) NOT NULL,
    metric VARCHAR(128) NOT NULL,
    labels VARCHAR(512) NOT NULL,
    value BIGINT NOT NULL,
    updated_at {timestamp} NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (consumer, metric, labels)
)
"""


@dataclass(frozen=True)
class Tables:
    """Names of the two tables, fit to be put into a statement."""

    claims: str
    tallies: str


def tables(engine: Engine) -> Tables:
    """Return the names for this kind of database."""
    mark = "." if engine.dialect.name == "postgresql" else "_"
    return Tables(f"{SCHEMA}{mark}outbox_claims", f"{SCHEMA}{mark}outbox_tallies")


def ensure_tables(engine: Engine) -> None:
    """Create what is missing; idempotent, and safe beside other sidecars that do the same.

    Nothing is executed where both tables exist, so a role without CREATE suffices then. Raises
    SourceError that names the way out where the role may not create them.
    """
    with transaction(engine) as connection:
        if _exist(connection, engine):
            return
    try:
        with transaction(engine) as connection:
            _create(connection, engine)
    except SourceError as error:
        if error.reason.code != "database:42501":  # insufficient_privilege
            raise
        raise SourceError(
            "no_tables",
            f"schema {SCHEMA} with its tables is missing and this role may not create it: "
            "run `python -m steadfast_sidecar init-db` once with a role that may, then grant it to this one",
        ) from error


def check_state_store(engine: Engine) -> None:
    """Raise SourceError where Airflow's task state store is missing or has another shape."""
    with transaction(engine) as connection:
        try:
            columns = {column["name"] for column in inspect(connection).get_columns(STATE_STORE)}
        except NoSuchTableError:
            columns = set()
        if columns >= NEEDED_COLUMNS:
            return
        revision = _alembic_revision(connection)
    if not columns:
        raise SourceError(
            NO_STATE_STORE,
            f"the database (at migration {revision}) has no table {STATE_STORE}: Airflow is older than 3.3 "
            "or not migrated yet, or this role may not see it; events of workers are not counted",
        )
    missing = ", ".join(sorted(NEEDED_COLUMNS - columns))
    raise SourceError(
        "state_store_changed",
        f"table {STATE_STORE} (at migration {revision}) lacks {missing}: "
        "this Airflow is newer than this sidecar knows",
    )


def _exist(connection: Connection, engine: Engine) -> bool:
    inspector = inspect(connection)
    if engine.dialect.name == "postgresql":
        return all(inspector.has_table(name, schema=SCHEMA) for name in ("outbox_claims", "outbox_tallies"))
    names = tables(engine)
    return all(inspector.has_table(name) for name in (names.claims, names.tallies))


def _create(connection: Connection, engine: Engine) -> None:
    names = tables(engine)
    timestamp = "TIMESTAMP"
    if engine.dialect.name == "postgresql":
        timestamp = "TIMESTAMPTZ"
        # IF NOT EXISTS alone can fail on a unique index of the catalogue when two sessions create at once.
        connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK})
        if SCHEMA not in inspect(connection).get_schema_names():
            connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}"))
    for statement in (_CLAIMS, _TALLIES):
        connection.execute(
            text(statement.format(claims=names.claims, tallies=names.tallies, timestamp=timestamp))
        )


def _alembic_revision(connection: Connection) -> str:
    if not inspect(connection).has_table("alembic_version"):
        return "none"
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar())
