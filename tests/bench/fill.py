# SPDX-License-Identifier: Apache-2.0
"""Millions of task instances in a real metadata database, in minutes.

Rows are written without indexes and foreign keys, then every index and the primary key are built again as
Airflow made them. The ids are random, which spreads one batch over the whole index: the worst case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.postgres import PostgresServer

TABLE = "task_instance"
_FINISHED = "success"


def copy_first_row(server: PostgresServer, database: str, rows: int, **values: str) -> None:
    """Bring a table of one row to ``rows`` rows, mapped over 1, 2 ...; ``values`` are columns' SQL."""
    columns = server.psql(
        f"SELECT column_name FROM information_schema.columns WHERE table_name = '{TABLE}'", database
    ).split()
    chosen = {"id": "gen_random_uuid()", "map_index": "number", **values}
    server.psql(
        f"INSERT INTO {TABLE} ({', '.join(columns)}) "
        f"SELECT {', '.join(chosen.get(column, f'first.{column}') for column in columns)} "
        f"FROM (SELECT * FROM {TABLE} LIMIT 1) first, generate_series(1, {rows - 1}) number",
        database,
    )


def fill(server: PostgresServer, database: str, rows: int, progress: Callable[[str], None]) -> None:
    """Bring the table to ``rows`` rows, finished copies of its first one.

    The table is vacuumed and analysed. Foreign keys from and to it are gone afterwards.
    """

    def sql(statement: str) -> list[str]:
        return server.psql(f"SET maintenance_work_mem = '1GB'; {statement}", database).splitlines()

    keys = sql(
        "SELECT format('ALTER TABLE %s DROP CONSTRAINT %I', conrelid::regclass, conname) FROM pg_constraint "
        f"WHERE contype = 'f' AND '{TABLE}'::regclass IN (conrelid, confrelid)"
    )
    constraints = sql(
        "SELECT format('%I %s', conname, pg_get_constraintdef(oid)) FROM pg_constraint "
        f"WHERE contype IN ('p', 'u') AND conrelid = '{TABLE}'::regclass"
    )
    indexes = sql(
        f"SELECT indexdef FROM pg_indexes WHERE tablename = '{TABLE}' AND indexname NOT IN "
        f"(SELECT conname FROM pg_constraint WHERE conrelid = '{TABLE}'::regclass)"
    )
    for key in keys:
        sql(key)
    for constraint in constraints:
        sql(f"ALTER TABLE {TABLE} DROP CONSTRAINT {constraint.split()[0]}")
    for index in indexes:
        sql(f"DROP INDEX {_name(index)}")
    progress(f"writing {rows:,} task instances")
    copy_first_row(server, database, rows, state=f"'{_FINISHED}'")
    for constraint in constraints:
        progress(f"building {constraint.split()[0]}")
        sql(f"ALTER TABLE {TABLE} ADD CONSTRAINT {constraint}")
    for index in indexes:
        progress(f"building {_name(index)}")
        sql(index)
    progress("vacuum, analyse")
    server.psql(f"VACUUM ANALYZE {TABLE}", database)


def _name(index: str) -> str:
    """The name in a CREATE INDEX statement as PostgreSQL prints it."""
    return index.partition(" INDEX ")[2].split(maxsplit=1)[0]
