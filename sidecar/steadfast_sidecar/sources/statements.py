# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: S608 - statements are built from this module's and the schema's constants; values are bound
"""The outbox's SQL, the same for PostgreSQL and SQLite but for table names and time arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import text

from airflow_steadfast.signals.outbox import KEY_PREFIX
from steadfast_sidecar.sources import schema

if TYPE_CHECKING:
    from sqlalchemy import TextClause
    from sqlalchemy.engine import Engine

FORGET_ROWS = 1_000
FORGET_AFTER_DAYS = 30
"""Far beyond the longest re-sent write of a worker, so a claim is never given up while it can matter."""

_STORE = schema.STATE_STORE
_KEY = "dag_run_id, task_id, map_index, key"
_SAME = (
    "c.dag_run_id = t.dag_run_id AND c.task_id = t.task_id AND c.map_index = t.map_index AND c.key = t.key"
)


@dataclass(frozen=True)
class Statements:
    """Each statement, with the names of the values that it binds."""

    chunk_end: TextClause
    """after, rows: the id of the last of the next rows, NULL past the end."""
    claim: TextClause
    """after, end, consumer: claim the unclaimed events in (after, end], return their keys."""
    add: TextClause
    """consumer, metric, labels, amount: add to one tally."""
    load: TextClause
    """consumer: metric, labels, value of each tally."""
    pending: TextClause
    """after, most: the number of unclaimed events above an id, counted up to a limit."""
    keep: TextClause
    """consumer: mark its tallies as those of a living sidecar."""
    forget_claims: TextClause
    """Drop some old claims whose event Airflow has removed."""
    forget_tallies: TextClause
    """Drop the tallies of sidecars long gone."""


def statements(engine: Engine) -> Statements:
    """Return the statements for this kind of database."""
    names = schema.tables(engine)
    unclaimed = f"t.key LIKE '{KEY_PREFIX}%' AND NOT EXISTS (SELECT 1 FROM {names.claims} AS c WHERE {_SAME})"
    cutoff = (
        f"CURRENT_TIMESTAMP - INTERVAL '{FORGET_AFTER_DAYS} days'"
        if engine.dialect.name == "postgresql"
        else f"datetime('now', '-{FORGET_AFTER_DAYS} days')"
    )
    return Statements(
        chunk_end=text(
            "SELECT max(id) FROM "
            f"(SELECT id FROM {_STORE} WHERE id > :after ORDER BY id LIMIT :rows) AS chunk"
        ),
        # Ordered, so that two sidecars meeting on the same keys wait for each other and never lock up.
        claim=text(
            f"INSERT INTO {names.claims} ({_KEY}, consumer) SELECT {_KEY}, :consumer FROM {_STORE} AS t "
            f"WHERE id > :after AND id <= :end AND {unclaimed} ORDER BY {_KEY} "
            "ON CONFLICT DO NOTHING RETURNING key"
        ),
        add=text(
            f"INSERT INTO {names.tallies} AS sums (consumer, metric, labels, value) "
            "VALUES (:consumer, :metric, :labels, :amount) ON CONFLICT (consumer, metric, labels) "
            "DO UPDATE SET value = sums.value + excluded.value, updated_at = CURRENT_TIMESTAMP"
        ),
        load=text(f"SELECT metric, labels, value FROM {names.tallies} WHERE consumer = :consumer"),
        pending=text(
            f"SELECT count(*) FROM (SELECT 1 FROM {_STORE} AS t WHERE id > :after AND {unclaimed} "
            "LIMIT :most) AS pending"
        ),
        keep=text(f"UPDATE {names.tallies} SET updated_at = CURRENT_TIMESTAMP WHERE consumer = :consumer"),
        forget_claims=text(
            f"DELETE FROM {names.claims} WHERE ({_KEY}) IN (SELECT {_KEY} FROM {names.claims} AS c "
            f"WHERE claimed_at < {cutoff} "
            f"AND NOT EXISTS (SELECT 1 FROM {_STORE} AS t WHERE {_SAME}) LIMIT {FORGET_ROWS})"
        ),
        forget_tallies=text(f"DELETE FROM {names.tallies} WHERE updated_at < {cutoff}"),
    )
