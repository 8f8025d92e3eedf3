# SPDX-License-Identifier: Apache-2.0
"""The filtering queue that takes the place of the executor's ``task_queue``.

The stock executor uses five methods of it (put, get_nowait, task_done, qsize, join), the same in all
versions of the provider, and works through them in one thread. ``get_nowait`` hands out only launches
that the database has just called fresh, and drops stale ones on the way, so that a dropped one uses up
none of the executor's creation batch.

Guarantees: a job that was put is handed out, dropped with a reason, or still in the queue, whatever
fails; no verdict is used in a later loop than the one it was given in; ``get_nowait`` raises
``queue.Empty`` only; a loop with nothing to launch asks the database nothing.
"""

from __future__ import annotations

import itertools
import logging
import math
import queue
import time
from typing import TYPE_CHECKING, Any

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import held
from airflow_steadfast.launch_guard.check import BATCH
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import LaunchBook
from airflow_steadfast.launch_guard.line import Line
from airflow_steadfast.launch_guard.recheck import SOON
from airflow_steadfast.launch_guard.settle import Settling
from airflow_steadfast.launch_guard.token import NO_RENEWAL
from airflow_steadfast.launch_guard.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

    from airflow_steadfast.launch_guard.settle import Check
    from airflow_steadfast.launch_guard.token import Renewal

log = logging.getLogger("airflow_steadfast.launch_guard")

SUPERSEDED = Verdict("superseded")

FIRST_ASK = 32
"""Launches that the first check of a quick loop is about, or twice the creation batch where that is more.

A deep queue is not read anew for each launch; where the fresh ones of the first check are used up, the
next check of the loop is as large as one may be. So is the first one of a loop that is not quick: its time
does not matter there, and its created pods cannot wait for the next loop, so that a second check would be
the one too many.
"""


class GuardedQueue:
    """See the module's text. Times are in seconds; ``on_drop`` is told of each dropped entry.

    ``launches`` is the book of what each executor key stands for. ``renewal`` gives jobs a new token.
    ``creation_batch`` says how many jobs a loop takes at most.
    With ``observe`` nothing is dropped, held or renewed: what would have been dropped is counted.
    """

    def __init__(
        self,
        check: Check,
        on_drop: Callable[[Entry, Verdict], None],
        *,
        max_hold: float,
        recheck_age: float,
        observe: bool,
        clock: Callable[[], float] = time.monotonic,
        renewal: Renewal = NO_RENEWAL,
        creation_batch: Callable[[], int] = lambda: BATCH,
    ) -> None:
        self.launches = LaunchBook()
        self._on_drop = on_drop
        self._recheck_age = recheck_age
        self._observe = observe
        self._clock = clock
        self._renewal = renewal
        self._creation_batch = creation_batch
        self._line = Line()
        self._settling = Settling(
            check,
            self._line,
            self.launches,
            self._drop,
            renewal,
            self.now,
            max_hold=max_hold,
            observe=observe,
        )
        self._handed_out: dict[int, Entry] = {}
        self._loop = 0
        self._loop_began = -math.inf
        self._asked = False
        self._paused_until = 0.0
        self._draining = False

    # What the stock executor calls.

    def put(self, job: Any) -> None:
        """Queue a job; an older copy of the same launch order leaves the queue.

        A job that comes back in the loop that it was handed out in is the same launch again. One that
        comes back after its pod was created is the next launch of its order (pre-execution requeue).
        """
        entry = self.launches.of_job(job.key, job)
        if entry is None or entry.queued:
            entry = Entry.of(job)
            self.launches.begin(job.key, entry)
        elif entry.created or (entry.pod_unknown and id(job) not in self._handed_out):
            entry.begin_requeue()
            self.launches.begin(job.key, entry)
        self._join(entry)

    def get_nowait(self) -> Any:
        """Return the next job to launch, or raise ``queue.Empty``."""
        if self._draining:
            return self._drain()
        if self._clock() < self._paused_until:
            raise queue.Empty
        try:
            entry = self._next()
        except Exception as error:
            entry = self._without_guard(error)
        if entry is None:
            raise queue.Empty
        try:
            self._hand_out(entry)
        except Exception as error:
            self._settling.report_broken(error)  # it has left the line: it is launched all the same
        return entry.job

    def task_done(self) -> None:
        """Nothing waits for jobs handed out: the executor and this queue share one thread."""

    def qsize(self) -> int:
        """Count the jobs that are queued, the held ones among them."""
        return len(self._line)

    def join(self) -> None:
        """Return at once: whoever could call ``task_done`` is the caller."""

    # What the guarded executor and creation call.

    def begin_loop(self) -> None:
        """Start a scheduler loop: every verdict given so far is void."""
        self._loop += 1
        now = self._clock()
        self._asked = now - self._loop_began > SOON  # not quick: ask about as many as there may be
        self._loop_began = now
        self._handed_out.clear()
        self._line.all_wait()

    def end_loop(self, running: Collection[Hashable]) -> None:
        """Publish how many launches are held; ``running`` are the executor's keys."""
        count = (
            sum(entry.held_since is not None for entry in self._line) if self._settling.backoff.failing else 0
        )
        held.publish(self, count)
        self.launches.prune(
            lambda: {*running, *(entry.job.key for entry in self._line)}, len(running) + self.qsize()
        )

    def asks_next_loop(self) -> bool:
        """Whether, as things are, the next loop asks the database about a queued launch at its begin."""
        now = self._clock()
        return (
            not self._draining
            and now >= self._paused_until
            and not self._settling.backoff.failing
            and any(entry.launch is not None and entry.retry_at <= now for entry in self._line)
        )

    def entry_of(self, job: Any) -> Entry | None:
        """Return the entry of a job handed out in this loop."""
        return self._handed_out.get(id(job))

    def handed_out(self) -> Collection[Entry]:
        """Return the entries of all jobs handed out in this loop, those that came back among them."""
        return self._handed_out.values()

    def put_back(self, entry: Entry, *, retry_at: float | None = None) -> None:
        """Queue an entry that was handed out and whose pod was not created, as the launch that it was.

        It is asked about anew and handed out in a later loop, not before ``retry_at`` (queue's clock).
        Where a newer copy of its order is queued, it is dropped as superseded. Idempotent.
        """
        entry.retry_at = retry_at or 0.0
        if not entry.queued:
            self._join(entry)

    def take_out(self, entry: Entry) -> None:
        """Take an entry out of the line without a drop: its pod turned out to be there. Idempotent."""
        self._line.remove(entry)

    def pause_until(self, moment: float) -> None:
        """Hand nothing out before ``moment`` (queue's clock), as a server asked; the latest moment holds."""
        self._paused_until = max(self._paused_until, moment)

    def now(self) -> float:
        """Return the queue's clock, which ``retry_at`` and ``pause_until`` are given in."""
        return self._clock()

    def other_live(self, entry: Entry) -> Entry | None:
        """Return another launch of the entry's key that is queued, in flight or has a pod: the newest."""
        return self.launches.newest(
            entry.job.key, lambda one: one is not entry and (self._in_flight(one) or one.has_pod_or_queued)
        )

    def drain(self, *, draining: bool) -> None:
        """While draining, ``get_nowait`` returns whatever is queued and asks nobody."""
        self._draining = draining
        held.publish(self, 0)

    def purge(self, ti_id: str) -> None:
        """Drop the queued jobs of a task instance that its scheduler revoked."""
        for entry in [entry for entry in self._line if entry.launch and entry.launch.ti_id == ti_id]:
            self._line.remove(entry)
            self._drop(entry, SUPERSEDED)

    # Inside.

    def _in_flight(self, entry: Entry) -> bool:
        return self._handed_out.get(id(entry.job)) is entry

    def _join(self, entry: Entry) -> None:
        """Put an entry into the line; of two copies of one order the older leaves it."""
        entry.pod_lacks_patch = False  # it was not created
        older = self._line.join(entry)
        if older is None:
            return
        if self._observe:
            older.observe(SUPERSEDED)
            return
        if older is not entry:
            entry.inherit(older)
        self._line.remove(older)
        self._drop(older, SUPERSEDED)

    def _next(self) -> Entry | None:
        asked = False  # an answer got in this call is used, however small the age limit is
        ready = self._line.ready
        while True:
            if ready and not asked and self._is_old(ready[0]):
                self._settling.ask(list(ready), ready)
                asked = True
            elif ready:
                return ready.popleft()
            else:
                batch = self._unasked()
                if not batch:
                    return None
                self._settling.ask(batch, self._line.waiting)
                asked = self._asked = True

    def _unasked(self) -> list[Entry]:
        """Return the next entries without a verdict that may be launched in this loop."""
        now = self._clock()
        due = (entry for entry in self._line.waiting if self._is_due(entry, now))
        most = BATCH if self._asked else min(BATCH, max(FIRST_ASK, 2 * self._creation_batch()))
        return list(itertools.islice(due, most))

    def _is_due(self, entry: Entry, now: float) -> bool:
        """One that failed to launch in this loop waits for the next, or for the time it was given."""
        return entry.out_in_loop != self._loop and entry.retry_at <= now

    def _is_old(self, entry: Entry) -> bool:
        return entry.verdict_at is not None and self._clock() - entry.verdict_at > self._recheck_age

    def _hand_out(self, entry: Entry) -> None:
        self._line.left(entry)
        if not self._observe:
            self._renewal.refresh(entry)
        self._handed_out[id(entry.job)] = entry
        entry.out_in_loop = self._loop
        entry.decide()
        if entry.failed_open:
            entry.fail_open()

    def _drop(self, entry: Entry, verdict: Verdict) -> None:
        """Count and report the drop; the queue and the book hold the entry no longer."""
        self._line.left(entry)
        entry.decide()
        signals.totals().increment("steadfast_workloads_dropped_total", reason=str(verdict.reason))
        try:
            self._on_drop(entry, verdict)
        except Exception:
            log.exception("The drop of a stale launch could not be reported: %s", entry.launch)
        self.launches.forget(entry.job.key, entry)

    def _drain(self) -> Any:
        entry = self._line.pop()
        if entry is None:
            raise queue.Empty
        return entry.job

    def _without_guard(self, error: Exception) -> Entry | None:
        """After a failure of our own: the next job goes to the stock executor, and to its own check."""
        self._settling.report_broken(error)
        now = self._clock()
        for entry in [*self._line.ready, *self._line.held, *self._line.waiting]:
            if self._is_due(entry, now):
                self._line.remove(entry)
                return entry.to_stock_check()
        return None
