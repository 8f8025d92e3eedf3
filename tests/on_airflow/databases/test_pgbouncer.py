# SPDX-License-Identifier: Apache-2.0
"""The check through a real pgbouncer in transaction mode, one server connection for all its clients."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import create_engine, text

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.snapshot import SnapshotError
from tests.support import airflow_database, airflow_lines
from tests.support.pgbouncer import pgbouncer

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.postgres,
    pytest.mark.timeout(120, method="thread", func_only=True),
]

DRIVERS = ("postgresql+psycopg2", "postgresql+psycopg")
MORE_THAN_A_DRIVER_WAITS_TO_PREPARE = 12
"""psycopg 3 prepares a statement on the server from its sixth execution on."""


@pytest.fixture
def pooler(server):
    with pgbouncer(server) as running:
        yield running


@pytest.fixture
def client(pooler, database):
    """Another client of the pooler, which is handed the server connection after the check."""
    engine = create_engine(pooler.url(database), future=True)
    yield engine
    engine.dispose()


def seen_by(client, question):
    with client.connect() as connection:
        return connection.execute(text(question)).scalar()


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_next_client_finds_the_server_connection_as_it_was(
    keys, pooler, database, client, snapshot, driver
):
    if driver.endswith("psycopg"):
        pytest.importorskip(
            "sqlalchemy.dialects.postgresql.psycopg", reason="SQLAlchemy 1.4 has no such dialect"
        )
    with airflow_database.airflow_on(pooler.url(database, driver)):
        reader = snapshot()
        backends = set()
        for _ in range(MORE_THAN_A_DRIVER_WAITS_TO_PREPARE):
            assert set(reader.read(keys)) == set(keys)
            backends.add(seen_by(client, "SELECT pg_backend_pid()"))
            assert seen_by(client, "SHOW statement_timeout") == "0"
            assert seen_by(client, "SELECT count(*) FROM pg_prepared_statements") == 0
        assert len(backends) == 1


def test_a_bound_set_for_the_session_would_be_seen_by_the_next_client(pooler, client, database):
    """What the test above would find if the check did not say LOCAL."""
    careless = create_engine(pooler.url(database), future=True)
    with careless.connect() as connection:
        connection.execute(text("SET statement_timeout = 1234"))
        connection.commit()
    careless.dispose()
    assert seen_by(client, "SHOW statement_timeout") == "1234ms"


def test_a_check_that_timed_out_leaves_nothing_behind(keys, pooler, database, client, snapshot, server):
    direct = create_engine(server.url(database), future=True)
    with airflow_database.airflow_on(pooler.url(database)):
        reader = snapshot(0.5)
        reader.read(keys)
        with direct.connect() as other:
            other.execute(text("LOCK TABLE task_instance IN ACCESS EXCLUSIVE MODE"))
            with pytest.raises(SnapshotError) as caught:
                reader.read(keys)
            other.rollback()
        assert caught.value.reason == "timeout"
        assert seen_by(client, "SHOW statement_timeout") == "0"
        assert set(reader.read(keys)) == set(keys)
    direct.dispose()


def test_a_check_that_waits_for_the_only_server_connection_is_bounded(
    keys, pooler, database, client, snapshot
):
    with airflow_database.airflow_on(pooler.url(database)):
        reader = snapshot(0.5)
        reader.read(keys)
        with client.connect() as other:
            other.execute(text("SELECT 1"))  # a transaction is open: the pooler has nothing to give
            with pytest.raises(SnapshotError) as caught:
                reader.read(keys)
        assert caught.value.reason == "timeout"
        assert set(reader.read(keys)) == set(keys)


class Clock:
    """The guard's clock, moved by hand past its back-off."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def total(name, **labels):
    return signals.totals().value(f"steadfast_{name}", **labels)


@pytest.mark.parametrize("gone", ["pgbouncer", "its database server"])
def test_launches_are_held_while_the_pooler_or_its_server_is_gone(
    tasks, pooler, database, start_executor, server, gone
):
    clock = Clock()
    ids = tasks.run()
    orders = tasks.queue(ids)
    tasks.change(ids[:3], state="success")
    away = pooler if gone == "pgbouncer" else server
    with airflow_database.airflow_on(pooler.url(database)):
        executor = start_executor()
        guarded = executor._steadfast_guard.queue
        guarded._clock = clock
        airflow_lines.submit(executor, orders)
        executor.trigger_tasks(1_000)
        away.stop()
        try:
            for _ in range(3):
                executor.sync()
                clock.now += 3
            assert executor.kube_scheduler.launched == []
            assert total("launches_held") == len(ids)
            # a pooler that is there and has no server keeps its clients waiting
            reason = "database_error" if gone == "pgbouncer" else "timeout"
            assert total("launch_check_errors_total", reason=reason) > 0
        finally:
            away.start()
        for _ in range(5):  # the pooler itself waits before it logs in again
            clock.now += 11
            executor.sync()
            if executor.kube_scheduler.launched:
                break
            time.sleep(1)
        assert executor.kube_scheduler.launched_ids == ids[3:]
        assert total("workloads_dropped_total", reason="state_changed") == 3
        assert total("launches_failed_open_total") == 0
