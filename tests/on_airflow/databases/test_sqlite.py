# SPDX-License-Identifier: Apache-2.0
"""The guard on a real SQLite file: launches what is fresh, drops what is not, leaves the file unlocked."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.snapshot import SnapshotError
from tests.support import airflow_database, airflow_lines

pytestmark = [pytest.mark.airflow, pytest.mark.timeout(180, func_only=True)]


@pytest.fixture(scope="session")
def migrated(tmp_path_factory):
    """A file that Airflow itself has migrated."""
    folder = tmp_path_factory.mktemp("sqlite")
    file = folder / "airflow.db"
    environ = {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        airflow_database.CONNECTION: f"sqlite:///{file}",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return file


@pytest.fixture
def database(migrated, tmp_path):
    """Takes the place of the PostgreSQL database of the same name: the path of a fresh file."""
    file = tmp_path / "airflow.db"
    file.write_bytes(migrated.read_bytes())
    with airflow_database.airflow_on(f"sqlite:///{file}"):
        yield file


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


def test_fresh_is_launched_and_stale_dropped(tasks, start_executor):
    executor = start_executor()
    ids = tasks.run()
    airflow_lines.submit(executor, tasks.queue(ids))
    executor.trigger_tasks(1_000)
    tasks.change(ids[:2], state="success")
    tasks.change(ids[2:3], queued_by_job_id=2)
    tasks.change(ids[3:4], try_number=2)
    executor.sync()
    assert executor.kube_scheduler.launched_ids == ids[4:]
    assert total("workloads_dropped_total", reason="state_changed") == 2
    assert total("workloads_dropped_total", reason="owner_changed") == 1
    assert total("workloads_dropped_total", reason="try_superseded") == 1
    assert total("launch_check_errors_total") == 0


def test_the_check_keeps_no_lock_on_the_file(keys, database, snapshot):
    reader = snapshot()
    assert set(reader.read(keys)) == set(keys)
    with sqlite3.connect(database, timeout=0) as other:
        other.execute("UPDATE task_instance SET hostname = 'written'")


def test_a_locked_file_is_an_error_and_not_a_hang(keys, database, snapshot):
    from airflow import settings

    settings.engine.dispose()
    reader = snapshot(0.5)
    with sqlite3.connect(database, isolation_level=None) as other:
        # Airflow's connections leave the file in WAL mode, in which a writer locks out no reader
        other.execute("PRAGMA journal_mode = DELETE")
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(SnapshotError, match="locked") as caught:
            reader.read(keys)
        other.execute("ROLLBACK")
    assert caught.value.reason == "database_error"
    assert set(reader.read(keys)) == set(keys)


def test_the_files_own_wait_for_a_lock_is_no_longer_than_the_check(keys, snapshot):
    from sqlalchemy import text

    reader = snapshot(0.5)
    reader.read(keys)
    with reader._engine.connect() as connection:
        assert connection.execute(text("PRAGMA busy_timeout")).scalar() == 500


@pytest.mark.skipif(
    not airflow_lines.HAS_WORKLOADS,
    reason="SQLite looks no row values up; Airflow 2 refuses it for this executor",
)
def test_the_plan_is_a_primary_key_look_up(keys, database):
    from sqlalchemy import create_engine
    from sqlalchemy.dialects import sqlite

    from airflow_steadfast.launch_guard.rows import query

    compiled = query(keys).compile(
        dialect=sqlite.dialect(), compile_kwargs={"render_postcompile": True, "literal_binds": True}
    )
    engine = create_engine(f"sqlite:///{database}", future=True)
    with engine.connect() as connection:
        plan = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}")]
    engine.dispose()
    (look_up,) = [step for step in plan if "task_instance" in step]
    assert look_up.startswith("SEARCH task_instance USING INDEX sqlite_autoindex_task_instance_1 (")
