# SPDX-License-Identifier: Apache-2.0
"""Each event is counted once: with two sidecars, SIGKILL, writes sent again, and commits out of order."""

from __future__ import annotations

import random
import threading
import time

import pytest

from airflow_steadfast.signals import outbox
from airflow_steadfast.signals.handoff import series_key
from steadfast_sidecar.sources import OutboxSource, engine_of, ensure_tables
from tests.on_airflow.outbox.conftest import WRITE_EVENT
from tests.support import requires
from tests.support.sidecar_process import start_sidecar

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]
needs_store = requires.state_store("test_before_3_3.py")

WRITERS = 6
PER_WRITER = 600
KILLS = 100


class Writer(threading.Thread):
    """Writes events one transaction each, holding some open while others commit, and sends a fifth again."""

    def __init__(self, database, number):
        super().__init__()
        self.database, self.number = database, number
        self.dice = random.Random(number)  # noqa: S311 - a repeatable dice
        self.failure = None

    def run(self):
        try:
            connection = self.database.connect()
            kinds = ["attempt", "identity_hit", "label_fallback"]
            for index in range(PER_WRITER):
                key = outbox.event_key(kinds[index % 3], 2 + index // 3, "pod_gone")
                self.write(connection, key)
                if self.dice.random() < 0.2:
                    self.write(connection, key)
            connection.close()
        except Exception as error:
            self.failure = error

    def write(self, connection, key):
        with connection, connection.cursor() as cursor:
            cursor.execute(WRITE_EVENT, (self.database.dag_run_id, f"task-{self.number}", -1, key))
            time.sleep(self.dice.choice([0, 0, 0.01, 0.05]))


@needs_store
def test_two_sidecars_that_are_killed_count_each_event_once(airflow_database):
    names = ("sidecar-a", "sidecar-b")

    def start(name):
        sidecar = start_sidecar(
            "--consumer", name, "--database-url", airflow_database.url, "--poll-interval", "0.2",
            "--handoff-dir", "/nonexistent",
        )  # fmt: skip
        sidecar.metrics()  # it counts from its first scrape on
        return sidecar

    sidecars = {name: start(name) for name in names}
    writers = [Writer(airflow_database, number) for number in range(WRITERS)]
    dice = random.Random(7)  # noqa: S311 - a repeatable dice
    try:
        for writer in writers:
            writer.start()
        for _ in range(KILLS):
            time.sleep(dice.random() * 0.3)
            name = dice.choice(names)
            sidecars[name].kill()
            sidecars[name].log_file.unlink()
            sidecars[name] = start(name)
        for writer in writers:
            writer.join()
        assert [writer.failure for writer in writers if writer.failure] == []
        events = WRITERS * PER_WRITER
        assert airflow_database.sql("SELECT count(*) FROM task_state_store") == str(events)
        await_claims(airflow_database, events)
        assert airflow_database.sql("SELECT sum(value) FROM steadfast.outbox_tallies") == str(events)
        served = {
            "steadfast_reattach_attempts_total": frozenset(),
            "steadfast_reattach_identity_hits_total": frozenset(),
            "steadfast_reattach_label_fallbacks_total": frozenset({("reason", "pod_gone")}),
        }
        deadline = time.monotonic() + 30
        while True:
            scraped = [sidecar.metrics() for sidecar in sidecars.values()]
            total = sum(metrics[name, labels] for metrics in scraped for name, labels in served.items())
            if total == events or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        assert total == events
    finally:
        for sidecar in sidecars.values():
            sidecar.kill()
            sidecar.log_file.unlink()


def await_claims(database, expected):
    deadline = time.monotonic() + 60
    while (claims := database.sql("SELECT count(*) FROM steadfast.outbox_claims")) != str(expected):
        assert time.monotonic() < deadline, f"{claims} claims of {expected}"
        time.sleep(0.1)


@needs_store
def test_a_commit_that_comes_behind_the_overlap_is_found_by_the_sweep(airflow_database, monkeypatch):
    monkeypatch.setattr("steadfast_sidecar.sources.outbox.OVERLAP_IDS", 5)
    monkeypatch.setattr("steadfast_sidecar.sources.outbox.CHUNK_ROWS", 7)
    late = airflow_database.connect()
    with late.cursor() as cursor:
        cursor.execute(
            WRITE_EVENT, (airflow_database.dag_run_id, "late", -1, outbox.event_key("identity_hit", 9))
        )
    airflow_database.write(*(outbox.event_key("attempt", number) for number in range(2, 102)))
    source = OutboxSource(airflow_database.url, "a")
    hits, attempts = (
        series_key(f"steadfast_reattach_{name}_total", {}) for name in ("identity_hits", "attempts")
    )
    assert source.read().values == {attempts: 100.0}
    late.commit()
    late.close()
    assert source.read().values == {attempts: 100.0}, "below the overlap: not at once"
    monkeypatch.setattr(source, "_sweep_due", 0.0)
    assert source.read().values == {attempts: 100.0, hits: 1.0}
    source.close()


@needs_store
def test_one_read_does_bounded_work_and_says_what_waits(airflow_database, monkeypatch):
    monkeypatch.setattr("steadfast_sidecar.sources.outbox.BUDGET_SECONDS", 0.0)
    monkeypatch.setattr("steadfast_sidecar.sources.outbox.CHUNK_ROWS", 40)
    airflow_database.write(*(outbox.event_key("attempt", number) for number in range(100)))
    source = OutboxSource(airflow_database.url, "a")
    monkeypatch.setattr("steadfast_sidecar.sources.outbox.OVERLAP_IDS", 5)
    assert [source.read().pending for _ in range(3)] == [60, 25, 0]
    source.close()


def test_many_sidecars_may_create_the_tables_at_once(airflow_database):
    failures = []

    def create():
        engine = engine_of(airflow_database.url)
        try:
            ensure_tables(engine)
        except Exception as error:
            failures.append(error)
        engine.dispose()

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert airflow_database.sql(
        "SELECT count(*) FROM information_schema.tables WHERE table_schema = 'steadfast'"
    ) == ("2")
