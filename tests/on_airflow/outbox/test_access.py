# SPDX-License-Identifier: Apache-2.0
"""Which role and URL suffices, and what the sidecar says where it does not."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading

import pytest

from airflow_steadfast.signals import outbox
from airflow_steadfast.signals.handoff import series_key
from steadfast_sidecar.sources import OutboxSource, SourceError
from tests.support import requires
from tests.support.sidecar_process import sidecar_process
from tests.support.silent_proxy import silent_proxy

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]
needs_store = requires.state_store("test_before_3_3.py")

HITS = series_key("steadfast_reattach_identity_hits_total", {})


@pytest.fixture
def role(airflow_database):
    name = f"sidecar_{airflow_database.name}"
    airflow_database.sql(f"CREATE ROLE {name} LOGIN")
    airflow_database.sql(f"GRANT SELECT ON task_state_store, alembic_version TO {name}")
    return name


def url_as(database, role):
    return f"postgresql://{role}@127.0.0.1:{database.server.port}/{database.name}"


@needs_store
def test_a_role_with_two_selects_and_its_own_schema_suffices(airflow_database, role):
    airflow_database.sql(f"CREATE SCHEMA steadfast AUTHORIZATION {role}")
    airflow_database.write(outbox.event_key("identity_hit", 2))
    source = OutboxSource(url_as(airflow_database, role), "a")
    assert source.read().values[HITS] == 1
    source.close()
    for table in ("connection", "variable", "dag_run"):
        with pytest.raises(subprocess.CalledProcessError) as caught:
            airflow_database.sql(f"SET ROLE {role}; SELECT 1 FROM {table}")
        assert "permission denied" in caught.value.stderr


@needs_store
def test_a_role_that_may_not_create_is_told_of_init_db_which_then_suffices(airflow_database, role):
    source = OutboxSource(url_as(airflow_database, role), "a")
    with pytest.raises(SourceError, match="init-db") as caught:
        source.read()
    assert caught.value.reason.code == "no_tables"
    command = [sys.executable, "-m", "steadfast_sidecar", "init-db", "--database-url", airflow_database.url]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    airflow_database.sql(
        f"GRANT USAGE ON SCHEMA steadfast TO {role}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA steadfast TO {role}"
    )
    airflow_database.write(outbox.event_key("identity_hit", 2))
    assert source.read().values[HITS] == 1
    source.close()


@needs_store
@pytest.mark.parametrize(
    ("scheme", "query"),
    [
        ("postgresql", ""),
        ("postgres", "?sslmode=disable"),
        ("postgresql+psycopg2", "?sslmode=prefer"),
        ("postgresql+psycopg", "?connect_timeout=3"),
        ("postgres+psycopg2", ""),
    ],
)
def test_every_form_of_url_that_airflow_takes(airflow_database, scheme, query):
    url = f"{scheme}://postgres@127.0.0.1:{airflow_database.server.port}/{airflow_database.name}{query}"
    source = OutboxSource(url, "a")
    assert source.read().pending == 0
    source.close()


def test_a_server_that_takes_connections_and_says_nothing_is_given_up():
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        source = OutboxSource(f"postgresql://u:secret@127.0.0.1:{silent.getsockname()[1]}/d", "a")
        with pytest.raises(SourceError) as caught:
            source.read()
    assert caught.value.reason.code == "database"
    assert "secret" not in caught.value.reason.text


@needs_store
def test_a_server_that_stops_and_starts(airflow_database):
    airflow_database.write(outbox.event_key("identity_hit", 2))
    flags = [
        "--database-url",
        airflow_database.url,
        "--poll-interval",
        "0.2",
        "--handoff-dir",
        "/nonexistent",
        "--shutdown-linger",
        "0",
    ]
    with sidecar_process(*flags) as sidecar:
        sidecar.await_value(1, "steadfast_reattach_identity_hits_total")
        airflow_database.server.stop()
        try:
            sidecar.await_value(0, "steadfast_source_up", source="outbox")
            assert sidecar.value("steadfast_reattach_identity_hits_total") == 1, "the last good number stays"
            assert sidecar.get("/livez")[0] == 200
        finally:
            airflow_database.server.start()
        sidecar.await_value(1, "steadfast_source_up", source="outbox")
        airflow_database.write(outbox.event_key("identity_hit", 3))
        sidecar.await_value(2, "steadfast_reattach_identity_hits_total")
        assert sidecar.value("steadfast_collector_errors_total", source="outbox") > 0
        assert sidecar.log.count("source outbox is up") == 2
        assert sidecar.terminate() == 0


@needs_store
def test_a_connection_that_falls_silent_is_cut_off(airflow_database):
    airflow_database.write(outbox.event_key("identity_hit", 2))
    with silent_proxy(airflow_database.server.port) as proxy:
        source = OutboxSource(f"postgresql://postgres@127.0.0.1:{proxy.port}/{airflow_database.name}", "a")
        assert source.read().values[HITS] == 1
        proxy.silent.set()
        cut_off = threading.Timer(0.5, source.interrupt)
        cut_off.start()
        with pytest.raises(SourceError) as caught:
            source.read()
        cut_off.join()
        assert caught.value.reason.code == "database"
        proxy.silent.clear()
        airflow_database.write(outbox.event_key("identity_hit", 3))
        assert source.read().values[HITS] == 2
        source.close()


@needs_store
def test_a_silent_database_costs_neither_a_scrape_nor_the_liveness(airflow_database):
    airflow_database.write(outbox.event_key("identity_hit", 2))
    with silent_proxy(airflow_database.server.port) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{airflow_database.name}"
        flags = ["--database-url", url, "--poll-interval", "0.2", "--handoff-dir", "/nonexistent"]
        with sidecar_process(*flags, constants={"poller.STALLED_AFTER_SECONDS": 2.0}) as sidecar:
            sidecar.await_value(1, "steadfast_reattach_identity_hits_total")
            proxy.silent.set()
            sidecar.await_value(0, "steadfast_source_up", source="outbox")
            assert "source outbox is down (stalled)" in sidecar.log
            assert sidecar.value("steadfast_reattach_identity_hits_total") == 1, "the last good number stays"
            assert sidecar.get("/livez")[0] == 200
            proxy.silent.clear()
            airflow_database.write(outbox.event_key("identity_hit", 3))
            sidecar.await_value(2, "steadfast_reattach_identity_hits_total")


@needs_store
def test_clear_on_success_is_named_and_what_is_there_is_counted(airflow_database):
    airflow_database.write(outbox.event_key("identity_hit", 2))
    environ = {
        "AIRFLOW__STATE_STORE__CLEAR_ON_SUCCESS": "True",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": airflow_database.url,
    }
    with sidecar_process("--poll-interval", "0.2", environ=environ) as sidecar:
        sidecar.await_value(1, "steadfast_reattach_identity_hits_total")
        assert sidecar.value("steadfast_source_up", source="outbox") == 0
        assert "clear_on_success" in sidecar.log
