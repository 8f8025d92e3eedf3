# SPDX-License-Identifier: Apache-2.0
"""A database that is silent costs a check its time limit and no more, and the next check works again.

Each test keeps the peer silent until the check has returned: without a bound it would wait for ever, and
the test with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from airflow_steadfast.launch_guard.snapshot import SnapshotError
from tests.support import airflow_database
from tests.support.silent_proxy import silent_proxy

pytestmark = [pytest.mark.airflow, pytest.mark.postgres, pytest.mark.timeout(60, method="thread")]
# by thread: a signal does not reach a test that waits inside libpq

DRIVERS = ("postgresql+psycopg2", "postgresql+psycopg")


@pytest.fixture
def proxied(server, database, tasks):
    """The ids of a run; Airflow's configuration names a proxy before the server from now on."""
    ids = tasks.run()
    tasks.queue(ids)
    with silent_proxy(server.port) as proxy:
        yield proxy, ids


@contextlib.contextmanager
def on_proxy(proxy, database, driver):
    url = f"{driver}://postgres@127.0.0.1:{proxy.port}/{database}"
    if driver.endswith("psycopg"):
        pytest.importorskip("psycopg")
    with airflow_database.airflow_on(url):
        yield


def assert_reads(snapshot, ids):
    assert set(snapshot.read(ids)) == set(ids)


def backend_of(snapshot):
    """The process that serves the snapshot's connection."""
    with snapshot._engine.connect() as connection:
        return connection.execute(text("SELECT pg_backend_pid()")).scalar()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_server_that_accepts_and_never_answers(proxied, database, snapshot, driver):
    proxy, ids = proxied
    proxy.silent.set()
    with on_proxy(proxy, database, driver):
        reader = snapshot(1)
        with pytest.raises(SnapshotError) as caught:
            reader.read(ids)
        assert caught.value.reason == "timeout"
        proxy.silent.clear()
        assert_reads(reader, ids)


@pytest.mark.parametrize("driver", DRIVERS)
def test_packets_of_an_open_connection_are_swallowed(proxied, database, snapshot, driver):
    proxy, ids = proxied
    with on_proxy(proxy, database, driver):
        reader = snapshot(1)
        assert_reads(reader, ids)
        proxy.silent.set()
        for _ in range(2):
            with pytest.raises(SnapshotError) as caught:
                reader.read(ids)
            assert caught.value.reason == "timeout"
        proxy.silent.clear()
        assert_reads(reader, ids)


@pytest.mark.parametrize("driver", DRIVERS)
def test_silence_right_after_the_handshake(proxied, database, snapshot, driver, monkeypatch):
    """The driver's first questions about the server come before the check's own."""
    from sqlalchemy import event

    proxy, ids = proxied
    with on_proxy(proxy, database, driver):
        reader = snapshot(1)
        event.listen(reader._get_engine(), "connect", lambda *_: proxy.silent.set(), insert=True)
        with pytest.raises(SnapshotError) as caught:
            reader.read(ids)
        assert caught.value.reason == "timeout"


def test_a_paused_backend(tasks, database, server, snapshot):
    ids = tasks.run()
    reader = snapshot(1)
    assert_reads(reader, ids)
    backend = backend_of(reader)
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(SnapshotError) as caught:
            reader.read(ids)
        assert caught.value.reason == "timeout"
        assert_reads(reader, ids)  # a new connection has another backend
    finally:
        os.kill(backend, signal.SIGCONT)


def test_a_paused_server(tasks, database, server, snapshot):
    ids = tasks.run()
    reader = snapshot(1)
    assert_reads(reader, ids)
    postmaster = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    backends = [int(pid) for pid in server.psql("SELECT pid FROM pg_stat_activity").split()]
    paused = []
    try:
        for process in (postmaster, *backends):
            with contextlib.suppress(ProcessLookupError):  # the session that named the others has ended
                os.kill(process, signal.SIGSTOP)
                paused.append(process)
        for _ in range(2):
            with pytest.raises(SnapshotError) as caught:
                reader.read(ids)
            assert caught.value.reason == "timeout"
    finally:
        for process in reversed(paused):
            os.kill(process, signal.SIGCONT)
    assert_reads(reader, ids)


def test_a_statement_that_waits_for_a_lock_is_ended_by_the_server(tasks, database, server, snapshot):
    ids = tasks.run()
    reader = snapshot(0.5)
    assert_reads(reader, ids)
    mine = backend_of(reader)
    engine = create_engine(server.url(database))
    with engine.connect() as other:
        other.execute(text("LOCK TABLE task_instance IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(SnapshotError) as caught:
            reader.read(ids)
        other.rollback()
    engine.dispose()
    assert caught.value.reason == "timeout"
    assert "statement timeout" in str(caught.value)
    assert_reads(reader, ids)
    # the connection is kept: it was not cut
    assert backend_of(reader) == mine


def test_the_one_connection_is_out_on_loan(tasks, database, snapshot):
    ids = tasks.run()
    reader = snapshot(0.5)
    assert_reads(reader, ids)
    with reader._engine.connect(), pytest.raises(SnapshotError) as caught:
        reader.read(ids)
    assert caught.value.reason == "timeout"
    assert_reads(reader, ids)


def test_no_thread_and_no_descriptor_is_left_behind(tasks, database, snapshot):
    ids = tasks.run()
    reader = snapshot()
    assert_reads(reader, ids)
    before = threading.active_count(), sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(50):
        assert_reads(reader, ids)
    assert (threading.active_count(), sum(1 for _ in Path("/proc/self/fd").iterdir())) == before
