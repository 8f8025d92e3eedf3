# SPDX-License-Identifier: Apache-2.0
"""The workers' events in Airflow's task state store as a source: each is counted once, by one sidecar.

An event is claimed by inserting its key into ``outbox_claims`` and added to this consumer's tallies in
the same transaction, so neither a SIGKILL nor a second sidecar nor an event written twice can change a
sum. Rows are found by primary key, since the table has no index on ``key``, but never by "larger than
the last one seen" alone: an id is given before its transaction commits, so a smaller one may appear
later. The tail therefore overlaps what was seen, and a slow sweep visits everything again.
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from airflow_steadfast.signals import outbox
from airflow_steadfast.signals.catalogue import BY_NAME
from airflow_steadfast.signals.handoff import series_key
from steadfast_sidecar.sources import airflow_config, database, schema
from steadfast_sidecar.sources.base import Reading, Reason, SourceError
from steadfast_sidecar.sources.statements import Statements, statements

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.engine import Connection, Engine

log = logging.getLogger(__name__)

CHUNK_ROWS = 5_000
"""Rows of the state store looked at in one transaction."""
OVERLAP_IDS = 5_000
"""How far a commit may come behind later ids and still be counted at the next read, not the next sweep."""
BUDGET_SECONDS = 2.0
"""One read starts no new transaction after this; the next goes on where it stopped."""
SWEEP_SECONDS = 300.0
"""Pause between two sweeps of the whole table."""
PENDING_LIMIT = 10_000


class OutboxSource:
    """Claims and counts events for one consumer. One instance belongs to one thread.

    ``bypass`` says why events may be missing though the reads succeed (see ``outbox_bypass``).
    ``may_claim`` is asked at each read: an event is left to a later read or another sidecar where its
    count would not be seen to rise.
    """

    name = "outbox"

    def __init__(
        self,
        url: str,
        consumer: str,
        bypass: Callable[[], Reason | None] = lambda: None,
        may_claim: Callable[[], bool] = lambda: True,
    ) -> None:
        self._url = url
        self._consumer = consumer
        self._bypass = bypass
        self._may_claim = may_claim
        self._opened: tuple[Engine, Statements] | None = None
        self._high = 0
        self._sweep: int | None = None
        self._sweep_due = time.monotonic() + SWEEP_SECONDS

    def read(self) -> Reading:
        """Claim what is new, within some seconds; return this consumer's sums. Raises SourceError."""
        try:
            return self._read(*self._open())
        except SourceError:
            # The next read checks the tables anew: they may have gone, or come.
            self.close()
            raise

    def try_out(self) -> Reading:
        """Make its tables where they are missing, claim a few events and give them up again, and read.

        Who tries a connection may be no consumer that anybody scrapes. Raises SourceError.
        """
        try:
            engine, sql = self._open()
            self._claim_chunk(engine, sql, 0, Reading(), lasting=False)
            return self._sums(engine, sql, Reading(degraded=self._bypass()))
        finally:
            self.close()

    def interrupt(self) -> None:
        """Cut the connection of a read that hangs, from another thread. Never raises."""
        opened = self._opened
        if opened is not None:
            database.cut(opened[0])

    def close(self) -> None:
        """Close the connection. Idempotent."""
        if self._opened is not None:
            self._opened[0].dispose()
            self._opened = None

    def _open(self) -> tuple[Engine, Statements]:
        if self._opened is not None:
            return self._opened
        if not self._url:
            raise SourceError("no_database", airflow_config.no_url())
        engine = database.engine_of(self._url)
        self._opened = engine, statements(engine)
        schema.check_state_store(engine)
        schema.ensure_tables(engine)
        return self._opened

    def _read(self, engine: Engine, sql: Statements) -> Reading:
        reading = Reading(degraded=self._bypass())
        deadline = time.monotonic() + BUDGET_SECONDS
        if self._may_claim():
            self._advance_tail(engine, sql, reading, deadline)
            self._advance_sweep(engine, sql, reading, deadline)
        return self._sums(engine, sql, reading)

    def _sums(self, engine: Engine, sql: Statements, reading: Reading) -> Reading:
        with database.transaction(engine) as connection:
            # Before the first claim it would look at the whole table, each time, for nobody.
            if self._high:
                pending = {"after": self._overlapped(), "most": PENDING_LIMIT}
                reading.pending = int(connection.execute(sql.pending, pending).scalar() or 0)
            for metric, labels, value in connection.execute(sql.load, {"consumer": self._consumer}):
                if metric in BY_NAME:
                    key = series_key(metric, BY_NAME[metric].normalise(json.loads(labels))[0])
                    reading.values[key] = reading.values.get(key, 0.0) + float(value)
        return reading

    def _overlapped(self) -> int:
        return max(self._high - OVERLAP_IDS, 0)

    def _advance_tail(self, engine: Engine, sql: Statements, reading: Reading, deadline: float) -> None:
        cursor = self._overlapped()
        while (end := self._claim_chunk(engine, sql, cursor, reading)) is not None:
            self._high = max(self._high, end)
            cursor = end
            if time.monotonic() >= deadline:
                return

    def _advance_sweep(self, engine: Engine, sql: Statements, reading: Reading, deadline: float) -> None:
        """Visit the rows below the tail again, a part of them per read; at the end forget what is old."""
        if self._sweep is None:
            if time.monotonic() < self._sweep_due:
                return
            self._sweep = 0
        while self._sweep < self._overlapped():
            if time.monotonic() >= deadline:
                return
            end = self._claim_chunk(engine, sql, self._sweep, reading)
            self._sweep = self._high if end is None else end
        self._sweep, self._sweep_due = None, time.monotonic() + SWEEP_SECONDS
        with database.transaction(engine) as connection:
            connection.execute(sql.keep, {"consumer": self._consumer})
            connection.execute(sql.forget_claims)
            connection.execute(sql.forget_tallies)

    def _claim_chunk(
        self, engine: Engine, sql: Statements, after: int, reading: Reading, *, lasting: bool = True
    ) -> int | None:
        """Claim and tally the events among the next rows; return the last row's id, None past the end."""
        with database.transaction(engine, lasting=lasting) as connection:
            end = connection.execute(sql.chunk_end, {"after": after, "rows": CHUNK_ROWS}).scalar()
            if end is None:
                return None
            claim = {"after": after, "end": end, "consumer": self._consumer}
            keys = [str(key) for (key,) in connection.execute(sql.claim, claim)]
            self._add_tallies(connection, sql, keys, reading)
        return int(end)

    def _add_tallies(
        self, connection: Connection, sql: Statements, keys: Sequence[str], reading: Reading
    ) -> None:
        sums: Counter[tuple[str, str]] = Counter()
        for key in keys:
            event = outbox.parse_key(key)
            if event is None:
                reading.misunderstood += 1
                log.warning("outbox: %r is no event of this version and was left out", key)
            else:
                sums[event.metric, json.dumps(event.labels, sort_keys=True)] += 1
        for (metric, labels), amount in sorted(sums.items()):
            tally = {"consumer": self._consumer, "metric": metric, "labels": labels, "amount": amount}
            connection.execute(sql.add, tally)
