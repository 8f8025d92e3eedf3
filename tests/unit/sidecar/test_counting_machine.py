# SPDX-License-Identifier: Apache-2.0
"""Any order of writes, reads, restarts and crashes: an event is counted once, and no counter falls.

SQLite, on a table whose ids are given by hand: a row may get its id first and appear after later ones, as
with transactions that commit out of order.
"""

from __future__ import annotations

import collections
import contextlib
import sqlite3
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sqlalchemy import event as sql_events

from airflow_steadfast.signals import outbox
from airflow_steadfast.signals.handoff import series_key
from steadfast_sidecar.sources import OutboxSource, SourceError
from steadfast_sidecar.sources import outbox as module

STATE_STORE = """
CREATE TABLE task_state_store (
    id INTEGER PRIMARY KEY, dag_run_id INTEGER, task_id TEXT, map_index INTEGER, key TEXT,
    UNIQUE (dag_run_id, task_id, map_index, key)
)
"""
INSERT = (
    "INSERT INTO task_state_store (id, dag_run_id, task_id, map_index, key) VALUES (?, 1, ?, -1, ?) "
    "ON CONFLICT (dag_run_id, task_id, map_index, key) DO NOTHING"
)
CONSUMERS = ("a", "b")
consumers = some.sampled_from(CONSUMERS)
events = some.tuples(
    some.sampled_from(["t1", "t2", "t3"]),
    some.one_of(
        some.builds(
            outbox.event_key, some.sampled_from(["attempt", "identity_hit", "harvested"]), some.integers(1, 3)
        ),
        some.builds(
            outbox.event_key,
            some.just("label_fallback"),
            some.integers(1, 2),
            some.sampled_from(["no_record", "pod_gone"]),
        ),
    ),
)


class CrashError(Exception):
    """The process is gone."""


class Counting(RuleBasedStateMachine):
    """Workers that write, Airflow that removes, two sidecars that count, restart and die."""

    def __init__(self):
        super().__init__()
        self.ending = contextlib.ExitStack()
        folder = Path(self.ending.enter_context(tempfile.TemporaryDirectory()))
        for name, value in {"OVERLAP_IDS": 3, "CHUNK_ROWS": 2}.items():
            self.ending.enter_context(mock.patch.object(module, name, value))
        self.url = f"sqlite:///{folder}/airflow.db"
        self.database = sqlite3.connect(folder / "airflow.db", isolation_level=None)
        self.ending.callback(self.database.close)
        self.database.execute("PRAGMA journal_mode=OFF")
        self.database.execute(STATE_STORE)
        self.ids = 0
        self.written = set()
        self.late = []
        self.buried = set()
        self.served = {name: {} for name in CONSUMERS}
        self.sources = {}
        self.claiming = True
        for name in CONSUMERS:
            self.start(name)

    def start(self, name):
        self.sources[name] = OutboxSource(self.url, name, may_claim=lambda: self.claiming)

    def insert(self, number, event):
        self.database.execute(INSERT, (number, *event))
        self.written.add(event)

    def sums(self):
        found = self.database.execute(
            "SELECT metric, labels, sum(value) FROM steadfast_outbox_tallies GROUP BY metric, labels"
        )
        return {(metric, labels): value for metric, labels, value in found}

    def take(self, name, reading):
        """What a sidecar serves after a good read; nothing may be lower than before."""
        for key, value in self.served[name].items():
            assert reading.values.get(key, 0) >= value, f"{key} fell"
        self.served[name] = reading.values

    @initialize()
    def both_have_read(self):
        for name in CONSUMERS:
            self.read(name)

    @rule(event=events)
    def write(self, event):
        """Write an event, perhaps one that is there, or was and has been removed."""
        if event not in self.buried:
            self.ids += 1
            self.insert(self.ids, event)

    @rule(event=events)
    def begin_to_write(self, event):
        """The id is given, the transaction is open."""
        if event not in self.buried:
            self.ids += 1
            self.late.append((self.ids, event))

    @precondition(lambda self: self.late)
    @rule(data=some.data())
    def commit(self, data):
        number, event = self.late.pop(data.draw(some.integers(0, len(self.late) - 1)))
        if event not in self.buried:
            self.insert(number, event)

    @rule(name=consumers)
    def read(self, name):
        self.take(name, self.sources[name].read())

    @rule(name=consumers)
    def sweep(self, name):
        self.sources[name]._sweep_due = 0.0
        self.read(name)

    @rule(name=consumers)
    def read_without_claims(self, name):
        before = self.sums()
        self.claiming = False
        self.read(name)
        self.claiming = True
        assert self.sums() == before

    @rule(name=consumers)
    def try_out(self, name):
        before = self.sums()
        OutboxSource(self.url, name).try_out()
        assert self.sums() == before

    @rule(name=consumers)
    def restart(self, name):
        self.sources[name].close()
        self.start(name)

    @rule(name=consumers, statements=some.integers(0, 12), sweeping=some.booleans())
    def die_in_a_read(self, name, statements, sweeping):
        """The process is gone before one of its statements; what was not committed is rolled back."""
        source = self.sources[name]
        if source._opened is None:
            return
        source._sweep_due = 0.0 if sweeping else source._sweep_due
        left = iter(range(statements))

        def crash(*_):
            if next(left, None) is None:
                raise CrashError

        sql_events.listen(source._opened[0], "before_cursor_execute", crash)
        with contextlib.suppress(CrashError, SourceError):
            source.read()
        source.close()
        self.start(name)

    @rule()
    def expire(self):
        """Airflow removes counted events; a worker may yet send one of them again."""
        self.database.execute(
            "DELETE FROM task_state_store WHERE (task_id, key) IN "
            "(SELECT task_id, key FROM steadfast_outbox_claims)"
        )

    @rule(kept=some.booleans())
    def a_month_passes(self, kept):
        """Claims grow old; their rows have expired or are kept for longer, and nobody sends them again."""
        if not kept:
            self.expire()
        self.buried |= set(self.database.execute("SELECT task_id, key FROM steadfast_outbox_claims"))
        self.database.execute("UPDATE steadfast_outbox_claims SET claimed_at = datetime('now', '-31 days')")

    @invariant()
    def nothing_is_counted_twice(self):
        expected = counted(self.written)
        for key, value in sums_by_series(self.sums()).items():
            assert value <= expected[key]

    def teardown(self):
        try:
            while self.late:
                number, event = self.late.pop()
                if event not in self.buried:
                    self.insert(number, event)
            for _ in range(2):
                self.sweep("a")
            assert sums_by_series(self.sums()) == counted(self.written)
            self.read("b")
            total = collections.Counter()
            for name in CONSUMERS:
                total.update(self.served[name])
            assert total == counted(self.written), "what is served is what is stored"
            assert self.sources["b"].read().pending == 0
        finally:
            for source in self.sources.values():
                source.close()
            self.ending.close()


def sums_by_series(sums):
    import json

    return {series_key(metric, json.loads(labels)): value for (metric, labels), value in sums.items()}


def counted(written):
    parsed = [outbox.parse_key(key) for _, key in written]
    return collections.Counter(series_key(event.metric, event.labels) for event in parsed)


TestCounting = Counting.TestCase
TestCounting.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
