# SPDX-License-Identifier: Apache-2.0
"""The real process: its first scrape, its probes, its end. SQLite stands in for Airflow's database here."""

from __future__ import annotations

import contextlib
import gzip
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

from airflow_steadfast.signals import Totals, outbox
from steadfast_sidecar import cli, exposition
from steadfast_sidecar.pages import Site
from steadfast_sidecar.server import Server
from steadfast_sidecar.settings import Address
from steadfast_sidecar.sources import Reading
from steadfast_sidecar.tally import Tally
from tests.support.sidecar_process import COLD, sidecar_process
from tests.unit.sidecar.test_tally_and_exposition import expected_series

DECIDED = "steadfast_launches_decided_total"
FALLBACKS = "steadfast_reattach_label_fallbacks_total"
STATE_STORE = """
CREATE TABLE task_state_store (
    id INTEGER PRIMARY KEY, dag_run_id INTEGER, task_id TEXT, map_index INTEGER, key TEXT, value TEXT,
    UNIQUE (dag_run_id, task_id, map_index, key)
)
"""


@pytest.fixture
def database(tmp_path):
    connection = sqlite3.connect(tmp_path / "airflow.db", isolation_level=None)
    connection.execute(STATE_STORE)
    yield connection
    connection.close()


def flags(folder, database=None):
    url = ["--database-url", f"sqlite:///{folder}/airflow.db"] if database else []
    return ["--handoff-dir", str(folder), "--poll-interval", "0.2", "--shutdown-linger", "0", *url]


def write_event(database, key):
    database.execute(
        "INSERT INTO task_state_store (dag_run_id, task_id, map_index, key, value) "
        "VALUES (1, 't', -1, ?, '{}')",
        [key],
    )


def test_the_first_scrape_has_every_series_at_zero(tmp_path, database):
    Totals().configure(tmp_path)
    with sidecar_process(*flags(tmp_path, database), program=COLD) as sidecar:
        samples = sidecar.metrics()
        live = {
            "steadfast_source_up",
            "steadfast_source_last_success_timestamp_seconds",
            "steadfast_handoff_mtime_seconds",
        }
        for name, labels in expected_series():
            assert (samples[name, labels] == 0) == (name not in live), name


def test_one_sidecar_has_at_most_80_series(tmp_path, database):
    Totals().configure(tmp_path)
    write_event(database, outbox.event_key("label_fallback", 2, "no_record"))
    with sidecar_process(*flags(tmp_path, database)) as sidecar:
        sidecar.await_value(1, FALLBACKS, reason="no_record")
        sidecar.await_value(1, "steadfast_source_up", source="handoff")
        assert 60 < len(sidecar.metrics()) <= 80


@pytest.mark.promtool
def test_promtool_finds_nothing_to_say(tmp_path, database):
    scheduler = Totals()
    scheduler.configure(tmp_path)
    scheduler.increment(DECIDED)
    scheduler.observe("steadfast_launch_check_duration_seconds", 0.2)
    scheduler.flush()
    write_event(database, outbox.event_key("label_fallback", 2, "no_record"))
    with sidecar_process(*flags(tmp_path, database)) as sidecar:
        sidecar.await_value(1, FALLBACKS, reason="no_record")
        sidecar.await_value(1, DECIDED)
        body = sidecar.get("/metrics")[1]
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=body, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_counts_of_both_sources_and_a_restart_that_keeps_them(tmp_path, database):
    scheduler = Totals()
    scheduler.configure(tmp_path)
    arguments = [*flags(tmp_path, database), "--consumer", "same"]
    with sidecar_process(*arguments) as sidecar:
        scheduler.increment(DECIDED)
        scheduler.flush()
        write_event(database, outbox.event_key("label_fallback", 2, "no_record"))
        sidecar.await_value(1, DECIDED)
        sidecar.await_value(1, "steadfast_reattach_label_fallbacks_total", reason="no_record")
    with sidecar_process(*arguments) as sidecar:
        sidecar.await_value(1, "steadfast_source_up", source="outbox")
        assert sidecar.value("steadfast_reattach_label_fallbacks_total", reason="no_record") == 1
        assert sidecar.value(DECIDED) == 1


def test_sources_that_are_not_there_are_down_and_nothing_crashes(tmp_path):
    with sidecar_process(*flags(tmp_path / "absent")) as sidecar:
        for source in ("handoff", "outbox"):
            assert sidecar.value("steadfast_source_up", source=source) == 0
        assert sidecar.get("/livez") == (200, "ok\n")
        assert sidecar.get("/readyz") == (200, "ok; down: handoff, outbox\n")
        assert "source handoff is down (missing)" in sidecar.log
        assert "source outbox is down (no_database)" in sidecar.log
        # all at once: a read between the folder and its file would find a third state
        (tmp_path / "made").mkdir()
        Totals().configure(tmp_path / "made")
        (tmp_path / "made").rename(tmp_path / "absent")
        sidecar.await_value(1, "steadfast_source_up", source="handoff")
        assert sidecar.log.count("source handoff") == 2


HANGING = """
import sys, threading
from steadfast_sidecar import cli, poller, service
from steadfast_sidecar.sources import HandoffSource
poller.STALLED_AFTER_SECONDS, poller.STUCK_AFTER_SECONDS = 0.1, 0.5
service.WATCH_SECONDS, service.STOP_SECONDS, service.LOOK_SECONDS = 0.05, 0.1, 0.05
class Hanging:
    name = "outbox"
    def read(self):
        threading.Event().wait()
    def interrupt(self):
        pass
service.sources_of = lambda config, _: (HandoffSource(config.handoff_dir, 60), Hanging())
sys.exit(cli.main())
"""


def test_a_read_that_nothing_can_cut_off_costs_the_liveness_and_no_scrape(tmp_path):
    scheduler = Totals()
    scheduler.configure(tmp_path)
    scheduler.increment(DECIDED, 3)
    scheduler.flush(force=True)
    with sidecar_process(*flags(tmp_path), program=("-c", HANGING)) as sidecar:
        sidecar.await_status(503, "/livez")
        began = time.monotonic()
        assert sidecar.value(DECIDED) == 3
        assert time.monotonic() - began < 5
        assert sidecar.value("steadfast_source_up", source="handoff") == 1
        assert sidecar.value("steadfast_source_up", source="outbox") == 0
        assert sidecar.value("steadfast_collector_errors_total", source="outbox") == 1
        assert sidecar.get("/readyz") == (200, "ok; down: outbox\n")
        assert sidecar.log.count("source outbox is down (stalled)") == 1
        assert sidecar.terminate() == 0, "nor its end"


def test_the_landing_page_and_a_wrong_path(tmp_path):
    with sidecar_process(*flags(tmp_path)) as sidecar:
        status, body = sidecar.get("/")
        assert status == 200
        for path in ("/metrics", "/livez", "/readyz"):
            assert f'href="{path}"' in body
        assert sidecar.get("/nothing")[0] == 404


def test_a_compressed_scrape(tmp_path):
    with sidecar_process(*flags(tmp_path)) as sidecar:
        request = urllib.request.Request(
            f"http://127.0.0.1:{sidecar.port}/metrics", headers={"Accept-Encoding": "gzip"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - http to loopback
            assert DECIDED in gzip.decompress(answer.read()).decode()


def test_json_logs_are_one_object_per_line(tmp_path):
    import json

    with sidecar_process(*flags(tmp_path), "--log-format", "json") as sidecar:
        lines = [json.loads(line) for line in sidecar.log.splitlines()]
    assert {"time", "level", "logger", "message"} <= set(lines[0])


def test_it_imports_neither_airflow_nor_a_kubernetes_client(tmp_path):
    program = (
        "import sys, steadfast_sidecar.cli, steadfast_sidecar.service\n"
        "print([name for name in sys.modules if name.split('.')[0] in ('airflow', 'kubernetes')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_before_the_first_read_a_scrape_fails_instead_of_reading_zeros():
    tally = Tally()
    site = Site(exposition.registry(tally), has_numbers=tally.was_read)
    with Server(Address("127.0.0.1", 0), site) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/metrics"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            urllib.request.urlopen(url, timeout=10)
        for source in ("handoff", "outbox"):
            tally.accept(source, Reading())
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.status == 200
        server.shutdown()


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_empty_host_serves_both_families():
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 address here")
    with Server(Address("", 0), Site(exposition.registry(Tally()))) as server:
        assert server.address_family == socket.AF_INET6
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, server.server_port), timeout=10).close()


def test_without_ipv6_an_empty_host_means_ipv4(monkeypatch):
    monkeypatch.setattr(socket, "has_ipv6", False)
    with Server(Address("", 0), Site(exposition.registry(Tally()))) as server:
        assert server.address_family == socket.AF_INET
        socket.create_connection(("127.0.0.1", server.server_port), timeout=10).close()


def test_the_metrics_page_is_up_to_date():
    from pathlib import Path

    from steadfast_sidecar.metrics_page import page

    committed = Path(__file__).parents[3] / "docs" / "metrics.md"
    assert committed.read_text() == page(), "run: python -m steadfast_sidecar metrics > docs/metrics.md"


def claims(database):
    return database.execute("SELECT count(*) FROM steadfast_outbox_claims").fetchone()[0]


def test_an_event_that_waits_at_the_start_is_seen_to_rise(tmp_path, database):
    write_event(database, outbox.event_key("label_fallback", 2, "no_record"))
    with sidecar_process(*flags(tmp_path, database)) as sidecar:
        time.sleep(0.5)  # some reads that could count it
        assert claims(database) == 0
        assert sidecar.value(FALLBACKS, reason="no_record") == 0, "a first sample with it would hide it"
        sidecar.await_value(1, FALLBACKS, reason="no_record")


def test_a_scrape_from_before_the_database_came_is_no_first_sample_of_its_series(tmp_path):
    path = tmp_path / "airflow.db"
    path.write_bytes(b"no database yet" * 100)
    with sidecar_process(*flags(tmp_path, path)) as sidecar:
        assert (FALLBACKS, frozenset({("reason", "no_record")})) not in sidecar.metrics()
        with contextlib.closing(sqlite3.connect(tmp_path / "new.db", isolation_level=None)) as made:
            made.execute(STATE_STORE)
            write_event(made, outbox.event_key("label_fallback", 2, "no_record"))
            (tmp_path / "new.db").rename(path)
            deadline = time.monotonic() + 30
            while "source outbox is up" not in sidecar.log:
                assert time.monotonic() < deadline, sidecar.log
                time.sleep(0.02)
            time.sleep(0.5)  # some reads that could count it
            assert claims(made) == 0
        assert sidecar.value(FALLBACKS, reason="no_record") == 0
        sidecar.await_value(1, FALLBACKS, reason="no_record")


def test_an_event_that_comes_at_the_end_is_left_to_the_next_sidecar(tmp_path, database):
    arguments = [*flags(tmp_path, database), "--shutdown-linger", "30"]
    with sidecar_process(*arguments, "--consumer", "old") as sidecar:
        sidecar.await_value(1, "steadfast_source_up", source="outbox")
        sidecar.process.send_signal(signal.SIGTERM)
        sidecar.await_status(503, "/readyz")
        write_event(database, outbox.event_key("label_fallback", 2, "no_record"))
        time.sleep(0.5)  # some reads that could count it
        assert claims(database) == 0, "no scrape may come that shows it"
        sidecar.process.send_signal(signal.SIGTERM)
        assert sidecar.process.wait(30) == 0
    with sidecar_process(*arguments, "--consumer", "new") as sidecar:
        assert sidecar.value(FALLBACKS, reason="no_record") == 0
        sidecar.await_value(1, FALLBACKS, reason="no_record")


def test_a_check_counts_nothing(tmp_path, database, capsys):
    write_event(database, outbox.event_key("label_fallback", 2, "no_record"))
    Totals().configure(tmp_path)
    assert cli.main(["--check", *flags(tmp_path, database), "--consumer", "somebody"]) == 0
    assert "outbox: ok\n" in capsys.readouterr().out
    assert claims(database) == 0
    assert database.execute("SELECT count(*) FROM steadfast_outbox_tallies").fetchone() == (0,)


def test_a_check_notices_that_claims_are_refused(tmp_path, database, capsys):
    write_event(database, outbox.event_key("label_fallback", 2, "no_record"))
    assert cli.main(["--check", *flags(tmp_path, database)]) == 0
    database.execute(
        "CREATE TRIGGER refusal BEFORE INSERT ON steadfast_outbox_claims "
        "BEGIN SELECT RAISE(ABORT, 'not yours'); END"
    )
    assert cli.main(["--check", *flags(tmp_path, database)]) == 1
    assert "not yours" in capsys.readouterr().out
