# SPDX-License-Identifier: Apache-2.0
"""A database that is silent costs a check its time limit and no more, and the next check works again.

Each test keeps the peer silent until the check has returned: without a bound it would wait for ever, and
the test with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from airflow_steadfast.launch_guard.snapshot import SnapshotError
from tests.support import airflow_database
from tests.support.silent_proxy import silent_proxy

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.postgres,
    pytest.mark.timeout(60, method="thread", func_only=True),
]
# by thread: a signal does not reach a test that waits inside libpq

DRIVERS = ("postgresql+psycopg2", "postgresql+psycopg")


@pytest.fixture
def proxied(server, keys):
    """The keys of a run; Airflow's configuration names a proxy before the server from now on."""
    with silent_proxy(server.port) as proxy:
        yield proxy, keys


@contextlib.contextmanager
def on_proxy(proxy, database, driver):
    url = f"{driver}://postgres@127.0.0.1:{proxy.port}/{database}"
    if driver.endswith("psycopg"):
        pytest.importorskip(
            "sqlalchemy.dialects.postgresql.psycopg", reason="SQLAlchemy 1.4 has no such dialect"
        )
    with airflow_database.airflow_on(url):
        yield


def assert_reads(snapshot, keys):
    assert set(snapshot.read(keys)) == set(keys)


def backend_of(snapshot):
    """The process that serves the snapshot's connection."""
    with snapshot._engine.connect() as connection:
        return connection.execute(text("SELECT pg_backend_pid()")).scalar()


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_server_that_accepts_and_never_answers(proxied, database, snapshot, driver):
    proxy, keys = proxied
    proxy.silent.set()
    with on_proxy(proxy, database, driver):
        reader = snapshot(2)
        with pytest.raises(SnapshotError) as caught:
            reader.read(keys)
        assert caught.value.reason == "timeout"
        proxy.silent.clear()
        assert_reads(reader, keys)


@pytest.mark.parametrize("driver", DRIVERS)
def test_packets_of_an_open_connection_are_swallowed(proxied, database, snapshot, driver):
    proxy, keys = proxied
    with on_proxy(proxy, database, driver):
        reader = snapshot(2)
        assert_reads(reader, keys)
        proxy.silent.set()
        for _ in range(2):
            with pytest.raises(SnapshotError) as caught:
                reader.read(keys)
            assert caught.value.reason == "timeout"
        proxy.silent.clear()
        assert_reads(reader, keys)


@pytest.mark.parametrize("driver", DRIVERS)
def test_silence_right_after_the_handshake(proxied, database, snapshot, driver, monkeypatch):
    """The driver's first questions about the server come before the check's own."""
    from sqlalchemy import event

    proxy, keys = proxied
    with on_proxy(proxy, database, driver):
        reader = snapshot(2)
        event.listen(reader._get_engine(), "connect", lambda *_: proxy.silent.set(), insert=True)
        with pytest.raises(SnapshotError) as caught:
            reader.read(keys)
        assert caught.value.reason == "timeout"


def test_a_paused_backend(keys, database, server, snapshot):
    reader = snapshot(2)
    assert_reads(reader, keys)
    backend = backend_of(reader)
    os.kill(backend, signal.SIGSTOP)
    try:
        with pytest.raises(SnapshotError) as caught:
            reader.read(keys)
        assert caught.value.reason == "timeout"
        assert_reads(reader, keys)  # a new connection has another backend
    finally:
        os.kill(backend, signal.SIGCONT)


def test_a_paused_server(keys, database, server, snapshot):
    reader = snapshot(2)
    assert_reads(reader, keys)
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
                reader.read(keys)
            assert caught.value.reason == "timeout"
    finally:
        for process in reversed(paused):
            os.kill(process, signal.SIGCONT)
    assert_reads(reader, keys)


def of_a_site(url, **_):
    """An engine that a site makes its own way: without what the check asks for."""
    return create_engine(url, future=True)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("factory", [None, of_a_site])
def test_a_statement_that_waits_for_a_lock_is_ended_by_the_server(
    keys, database, server, snapshot, monkeypatch, driver, factory
):
    if driver.endswith("psycopg"):
        pytest.importorskip(
            "sqlalchemy.dialects.postgresql.psycopg", reason="SQLAlchemy 1.4 has no such dialect"
        )
    if factory is not None:
        monkeypatch.setattr("airflow.settings.create_metadata_engine", factory, raising=False)
    reader = snapshot(0.5)
    with airflow_database.airflow_on(server.url(database, driver)):
        assert_reads(reader, keys)
    mine = backend_of(reader)
    engine = create_engine(server.url(database), future=True)
    with engine.connect() as other:
        other.execute(text("LOCK TABLE task_instance IN ACCESS EXCLUSIVE MODE"))
        with pytest.raises(SnapshotError) as caught:
            reader.read(keys)
        other.rollback()
    engine.dispose()
    assert caught.value.reason == "timeout"
    assert "statement timeout" in str(caught.value)
    assert_reads(reader, keys)
    # the connection is kept: it was not cut
    assert backend_of(reader) == mine


def test_a_check_is_one_message_to_the_server(keys, database, server, snapshot):
    """Each message is a way there and back, and a scheduler loop with a creation batch of one has a check."""
    server.psql(f"ALTER DATABASE \"{database}\" SET log_statement = 'all'")
    log = server.folder / "log"
    reader = snapshot()
    assert_reads(reader, keys)
    begun = log.stat().st_size
    assert_reads(reader, keys)
    messages = [line for line in log.read_text()[begun:].splitlines() if " LOG: " in line]
    assert len(messages) == 1
    assert re.search(r"statement: SET LOCAL statement_timeout = \d+; SELECT task_instance\.", messages[0])


def test_the_one_connection_is_out_on_loan(keys, database, snapshot):
    reader = snapshot(0.5)
    assert_reads(reader, keys)
    with reader._engine.connect(), pytest.raises(SnapshotError) as caught:
        reader.read(keys)
    assert caught.value.reason == "timeout"
    assert_reads(reader, keys)


def test_no_thread_and_no_descriptor_is_left_behind(keys, database, snapshot):
    reader = snapshot()
    assert_reads(reader, keys)
    before = threading.active_count(), sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(50):
        assert_reads(reader, keys)
    assert (threading.active_count(), sum(1 for _ in Path("/proc/self/fd").iterdir())) == before
