# SPDX-License-Identifier: Apache-2.0
"""A guarded queue with a clock, a database, tokens and an executor that the test moves by hand."""

from __future__ import annotations

import queue
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import entry, held
from airflow_steadfast.launch_guard.check import CheckFailedError
from airflow_steadfast.launch_guard.launch import Launch, PodRef
from airflow_steadfast.launch_guard.queue import GuardedQueue
from airflow_steadfast.launch_guard.rows import Row
from airflow_steadfast.launch_guard.verdict import Verdict
from airflow_steadfast.launch_guard.workload import NotComparableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from airflow_steadfast.launch_guard.entry import Entry

QUEUED = datetime(2026, 1, 1, tzinfo=timezone.utc)
LATER = QUEUED + timedelta(minutes=10)
POD = PodRef("airflow", "worker")


class TaskInstanceKey(NamedTuple):
    dag_id: str
    task_id: str
    run_id: str
    try_number: int = 1
    map_index: int = -1


class Job(NamedTuple):
    """A job without a ``ti_id`` cannot be compared."""

    key: str
    ti_id: str = ""


class Tokens:
    """A renewal whose tokens the test expires; a new job is equal to the old one, as Airflow's are."""

    def __init__(self) -> None:
        self.dead: set[int] = set()
        self.old: set[int] = set()
        self.refuses = False
        self.made: list[Job] = []

    def expired(self, one: Entry) -> bool:
        return id(one.job) in self.dead

    def renew(self, one: Entry) -> Job | None:
        if self.refuses:
            return None
        self.made.append(Job(*one.job))
        return self.made[-1]

    def refresh(self, one: Entry) -> None:
        if id(one.job) in self.old:
            one.job = Job(*one.job)


class World:
    """Clock, database and executor of a queue."""

    def __init__(
        self,
        *,
        max_hold: float = 60,
        recheck_age: float = 1,
        observe: bool = False,
        creation_batch: int = 1_000,
    ) -> None:
        self.now = 0.0
        self.stale: set[str] = set()
        self.down = False
        self.slow = 0.0
        self.asked: list[int] = []
        self.dropped: list[tuple[Job, str | None]] = []
        self.dropped_rows: list[Row | None] = []
        self.queued_at: dict[str, datetime] = {}
        self.tokens = Tokens()
        self.queue = GuardedQueue(
            self,
            self.note_drop,
            max_hold=max_hold,
            recheck_age=recheck_age,
            observe=observe,
            clock=lambda: self.now,
            renewal=self.tokens,
            creation_batch=lambda: creation_batch,
        )

    def ask(self, launches: Sequence[Launch]) -> list[Verdict]:
        self.asked.append(len(launches))
        self.now += self.slow
        if self.down:
            raise CheckFailedError("database_error", "down")
        return [
            Verdict("state_changed" if one.ti_id in self.stale else None, self.row(one.ti_id))
            for one in launches
        ]

    def note_drop(self, one: Entry, verdict: Verdict) -> None:
        self.dropped.append((one.job, verdict.reason))
        self.dropped_rows.append(verdict.row)

    def row(self, ti_id: str) -> Row:
        return Row("queued", 1, 7, self.queued_at.get(ti_id, QUEUED))

    def put(self, *names: str) -> list[Job]:
        jobs = [Job(name, name) for name in names]
        for job in jobs:
            self.queue.put(job)
        return jobs

    def loop(self, batch: int = 1_000, wait: float = 0.0) -> list[str]:
        """One scheduler loop: what was handed out, by key; ``wait`` passes between two of them."""
        self.queue.begin_loop()
        out = []
        for _ in range(batch):
            try:
                out.append(self.queue.get_nowait())
            except queue.Empty:
                break
            self.queue.task_done()
            self.now += wait
        self.queue.end_loop(())
        return [job.key for job in out]

    def take(self) -> Entry:
        """Hand out one job in a new loop; its entry."""
        self.queue.begin_loop()
        found = self.queue.entry_of(self.queue.get_nowait())
        assert found is not None
        return found


def plain_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read launches from this module's jobs, and start the totals at zero."""

    def launch_of(job: Any) -> Launch:
        if not job.ti_id:
            raise NotComparableError("unsupported_workload")
        return Launch(job.ti_id, 1, key=TaskInstanceKey("d", job.key, "r"))

    monkeypatch.setattr(entry, "launch_of", launch_of)
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    held.forget_all()


def total(name: str, **labels: str) -> float:
    return signals.totals().value(f"steadfast_{name}", **labels)
