# SPDX-License-Identifier: Apache-2.0
"""On a million task instances PostgreSQL looks every row up in the primary key, whatever the batch."""

from __future__ import annotations

import re

import pytest
from sqlalchemy import create_engine, event

from airflow_steadfast.launch_guard import rows, stranded
from airflow_steadfast.launch_guard.snapshot import MAX_IDS, Snapshot
from tests.support import airflow_database, airflow_lines

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.postgres,
    pytest.mark.postgres_plan,
    pytest.mark.timeout(300, func_only=True),
]

ROWS = 1_000_000


@pytest.fixture(scope="module")
def large(server):
    """The name of a database whose task_instance has a million rows, with all of Airflow's indexes."""
    name = "guard_million"
    with airflow_database.airflow_on(airflow_database.copy(server, name)):
        from tests.support.queued_tasks import QueuedTasks

        QueuedTasks(size=1).run()
        columns = server.psql(
            "SELECT string_agg(column_name, ',') FROM information_schema.columns "
            "WHERE table_name = 'task_instance'",
            name,
        ).split(",")
        made = {
            "id": "gen_random_uuid()",
            "task_id": "'task_' || number % 50",
            "map_index": "number",
            "state": "(ARRAY['success', 'success', 'queued', 'failed'])[1 + number % 4]",
        }
        # filled while its indexes and foreign keys (those of a row that is there) rest, for speed
        indexes = server.psql(
            "SELECT indexdef FROM pg_indexes WHERE tablename = 'task_instance' AND indexname NOT IN "
            "(SELECT conname FROM pg_constraint WHERE conrelid = 'task_instance'::regclass)",
            name,
        ).splitlines()
        drops = ["DROP INDEX " + re.search(r"INDEX (\w+) ON", index)[1] for index in indexes]
        fill = (
            f"INSERT INTO task_instance ({', '.join(columns)}) "
            f"SELECT {', '.join(made.get(column, column) for column in columns)} "
            f"FROM (SELECT * FROM task_instance LIMIT 1) one, generate_series(1, {ROWS}) number"
        )
        rest = "SET session_replication_role = replica"
        server.psql("; ".join([rest, *drops, fill, *indexes, "ANALYZE task_instance"]), name)
        yield name
    server.psql(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture(scope="module")
def keys(large, server):
    """Row keys of as many rows as one check may ask for."""
    wanted = "id" if airflow_lines.HAS_WORKLOADS else "dag_id, task_id, run_id, map_index"
    found = server.psql(f"SELECT {wanted} FROM task_instance ORDER BY map_index LIMIT {MAX_IDS}", large)
    lines = [line.split("|") for line in found.splitlines()]
    return [line[0] if len(line) == 1 else (*line[:3], int(line[3])) for line in lines]


@pytest.fixture(scope="module")
def explain(large, server):
    """Explain a statement after running it; returns the plan as text."""
    engine = create_engine(server.url(large), future=True)

    sent = []

    def note(_connection, cursor, statement, parameters, *_):
        sent.append(cursor.mogrify(statement, parameters).decode())

    def of(statement):
        with engine.connect() as connection:
            event.listen(engine, "before_cursor_execute", note)
            connection.execute(statement).all()
            event.remove(engine, "before_cursor_execute", note)
            asked = sent[-1].replace("%", "%%")
            plan = connection.exec_driver_sql(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) {asked}")
            return "\n".join(row[0] for row in plan)

    yield of
    engine.dispose()


def indexes_used(plan):
    return set(re.findall(r"Index (?:Only )?Scan (?:using|on) (\w+)", plan))


@pytest.mark.parametrize("count", [1, 16, 500, MAX_IDS])
def test_the_check_looks_up_the_primary_key_and_nothing_else(keys, explain, count):
    plan = explain(rows.query(keys[:count], array=True))
    assert indexes_used(plan) == {"task_instance_pkey"}
    assert "Seq Scan" not in plan
    assert "Filter" not in plan
    assert f"rows={count} " in plan.splitlines()[0]
    # the pages read grow with the ids that are asked for: a few of the index and one of the table each
    hit, read = re.search(r"Buffers: shared hit=(\d+)(?: read=(\d+))?", plan).groups()
    assert int(hit) + int(read or 0) <= 6 * count + 2


def test_every_row_of_the_largest_batch_is_found(keys, large, server):
    snapshot = Snapshot(timeout=5)
    with airflow_database.airflow_on(server.url(large)):
        assert set(snapshot.read(keys)) == set(keys)
    snapshot.close()


@pytest.mark.parametrize("count", [1, MAX_IDS])
def test_looking_for_stranded_task_instances_does_too(keys, explain, count):
    plan = explain(stranded.query(keys[:count]))
    assert "task_instance_pkey" in indexes_used(plan)
    assert not re.search(r"Seq Scan on task_instance\b", plan)
