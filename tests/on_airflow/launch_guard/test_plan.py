# SPDX-License-Identifier: Apache-2.0
"""The check looks each task instance up in the primary key, however large the table is."""

from __future__ import annotations

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql

from airflow_steadfast.launch_guard.rows import query
from airflow_steadfast.launch_guard.snapshot import MAX_IDS, Snapshot
from tests.support.airflow_lines import HAS_WORKLOADS

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.postgres_plan]

ROWS = 50_000


@pytest.fixture
def large(tasks, server, database):
    tasks.run()
    columns = server.psql(
        "SELECT string_agg(column_name, ',') FROM information_schema.columns "
        "WHERE table_name = 'task_instance'",
        database,
    ).split(",")
    values = {"id": "gen_random_uuid()", "map_index": "number"}
    server.psql(
        f"INSERT INTO task_instance ({', '.join(columns)}) "
        f"SELECT {', '.join(values.get(column, column) for column in columns)} "
        f"FROM (SELECT * FROM task_instance WHERE task_id = 'task_0') one, generate_series(1, {ROWS}) number",
        database,
    )
    server.psql("ANALYZE task_instance", database)
    if HAS_WORKLOADS:
        return server.psql(f"SELECT id FROM task_instance LIMIT {MAX_IDS}", database).split()
    return [("guarded", "task_0", "run_1", number) for number in range(1, MAX_IDS + 1)]


def test_the_plan_is_a_primary_key_look_up(large, server, database):
    # where a batch is a sizable part of the table the planner rightly prefers to read it all
    engine = create_engine(server.url(database), future=True)
    for count in (1, 16, 100):
        compiled = query(large[:count]).compile(
            dialect=postgresql.dialect(), compile_kwargs={"render_postcompile": True, "literal_binds": True}
        )
        with engine.connect() as connection:
            plan = "\n".join(row[0] for row in connection.exec_driver_sql(f"EXPLAIN {compiled}"))
        assert "task_instance_pkey" in plan
        assert "Seq Scan" not in plan
        assert "Filter" not in plan
    engine.dispose()

    snapshot = Snapshot(timeout=2)
    assert set(snapshot.read(large)) == set(large)
    snapshot.close()
