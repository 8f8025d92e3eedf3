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
import queue
import time
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.check import BATCH, CheckFailedError
from airflow_steadfast.launch_guard.entry import Backoff, Entry
from airflow_steadfast.launch_guard.launch import CurrentLaunches
from airflow_steadfast.launch_guard.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Sequence

    from airflow_steadfast.launch_guard.launch import Launch

log = logging.getLogger("airflow_steadfast.launch_guard")

SUPERSEDED = Verdict("superseded")


class Check(Protocol):
    """Gives verdicts; raises ``CheckFailedError`` only."""

    def ask(self, launches: Sequence[Launch]) -> list[Verdict]:
        """Return one verdict per launch, in order."""


class GuardedQueue:
    """See the module's text. Times are in seconds; ``on_drop`` is told of each dropped entry.

    With ``observe`` nothing is dropped or held: what would have been dropped is counted.
    """

    def __init__(
        self,
        check: Check,
        on_drop: Callable[[Entry, Verdict], None],
        *,
        max_hold: float,
        recheck_age: float,
        observe: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.current = CurrentLaunches()
        self._check = check
        self._on_drop = on_drop
        self._max_hold = max_hold
        self._recheck_age = recheck_age
        self._observe = observe
        self._clock = clock
        self._backoff = Backoff(clock)
        self._pending: deque[Entry] = deque()
        self._ready: deque[Entry] = deque()
        self._held: deque[Entry] = deque()
        self._handed_out: dict[int, Entry] = {}
        self._queued: dict[tuple[str, int], Entry] = {}
        self._loop = 0
        self._draining = False
        self._broken = False

    # What the stock executor calls.

    def put(self, job: Any) -> None:
        """Queue a job; an older copy of the same launch order leaves the queue."""
        entry = self._handed_out.get(id(job))
        if entry is None:
            entry = Entry.of(job)
            self.current.begin(job.key, job)
        entry.pod_lacks_patch = False  # it was not created
        self._pending.append(entry)
        self._leave_one(entry)

    def get_nowait(self) -> Any:
        """Return the next job to launch, or raise ``queue.Empty``."""
        if self._draining:
            return self._drain()
        try:
            entry = self._next()
        except Exception as error:
            entry = self._without_guard(error)
        if entry is None:
            raise queue.Empty
        self._hand_out(entry)
        return entry.job

    def task_done(self) -> None:
        """Nothing waits for jobs handed out: the executor and this queue share one thread."""

    def qsize(self) -> int:
        """Count the jobs that are queued, the held ones among them."""
        return len(self._pending) + len(self._ready) + len(self._held)

    def join(self) -> None:
        """Return at once: whoever could call ``task_done`` is the caller."""

    # What the guarded executor calls.

    def begin_loop(self) -> None:
        """Start a scheduler loop: every verdict given so far is void."""
        self._loop += 1
        self._handed_out.clear()
        for entry in self._ready:
            entry.verdict_at = None
        self._pending.extendleft(reversed(self._ready))
        self._pending.extendleft(reversed(self._held))
        self._ready.clear()
        self._held.clear()

    def end_loop(self, running: Collection[Hashable]) -> None:
        """Publish how many launches are held; ``running`` are the executor's keys."""
        held = sum(entry.held_since is not None for entry in self._entries()) if self._backoff.failing else 0
        signals.totals().set_gauge("steadfast_launches_held", held)
        self.current.prune(
            lambda: {*running, *(entry.job.key for entry in self._entries())}, len(running) + self.qsize()
        )

    def entry_of(self, job: Any) -> Entry | None:
        """The entry of a job handed out in this loop."""
        return self._handed_out.get(id(job))

    def handed_out(self) -> Collection[Entry]:
        """The entries of all jobs handed out in this loop, those that came back among them."""
        return self._handed_out.values()

    def drain(self, *, draining: bool) -> None:
        """While draining, ``get_nowait`` returns whatever is queued and asks nobody."""
        self._draining = draining

    def purge(self, ti_id: str) -> None:
        """Drop the queued jobs of a task instance that its scheduler revoked."""
        for entry in [entry for entry in self._entries() if entry.launch and entry.launch.ti_id == ti_id]:
            self._remove(entry)
            self._drop(entry, SUPERSEDED)

    # Inside.

    def _entries(self) -> Iterator[Entry]:
        return itertools.chain(self._held, self._ready, self._pending)

    def _next(self) -> Entry | None:
        asked = False  # an answer got in this call is used, however small the age limit is
        while True:
            if self._ready and not asked and self._is_old(self._ready[0]):
                self._ask(list(itertools.islice(self._ready, BATCH)), self._ready)
                asked = True
            elif self._ready:
                return self._ready.popleft()
            else:
                batch = self._unasked()
                if not batch:
                    return None
                self._ask(batch, self._pending)
                asked = True

    def _unasked(self) -> list[Entry]:
        """The next entries without a verdict; one that failed to launch in this loop waits for the next."""
        waiting = (entry for entry in self._pending if entry.out_in_loop != self._loop)
        return list(itertools.islice(waiting, BATCH))

    def _is_old(self, entry: Entry) -> bool:
        return entry.verdict_at is not None and self._clock() - entry.verdict_at > self._recheck_age

    def _ask(self, batch: list[Entry], source: deque[Entry]) -> None:
        """Move a batch from ``source`` to where its verdicts put it: ready, held or dropped."""
        comparable = [entry for entry in batch if entry.launch is not None]
        verdicts = self._verdicts(comparable)
        leaving = set(map(id, batch))
        kept = [entry for entry in source if id(entry) not in leaving]
        source.clear()
        source.extend(kept)
        for entry in batch:
            self._settle_safely(entry, verdicts)

    def _settle_safely(self, entry: Entry, verdicts: dict[int, Verdict] | None) -> None:
        try:
            self._settle(entry, verdicts)
        except Exception as error:
            self._report_broken(error)
            self._ready.append(entry.to_stock_check())

    def _verdicts(self, entries: list[Entry]) -> dict[int, Verdict] | None:
        """Ask the database; None where it does not answer or is left alone for a while."""
        if not entries:
            return {}
        if not self._backoff.due():
            return None
        try:
            verdicts = self._check.ask([entry.launch for entry in entries if entry.launch])
        except CheckFailedError as error:
            self._backoff.fail(error)
            return None
        self._backoff.succeed()
        return dict(zip(map(id, entries), verdicts, strict=True))

    def _settle(self, entry: Entry, verdicts: dict[int, Verdict] | None) -> None:
        now = self._clock()
        if entry.launch is None:
            self._ready.append(entry)
        elif verdicts is None:
            self._settle_unanswered(entry, now)
        else:
            entry.held_since, entry.failed_open = None, False
            verdict = verdicts[id(entry)]
            if verdict.fresh or self._observe:
                entry.verdict_at = now
                entry.observe(verdict)
                self._ready.append(entry)
            else:
                self._drop(entry, verdict)

    def _settle_unanswered(self, entry: Entry, now: float) -> None:
        """Hold the launch, or make it without a verdict when it has been held for long enough."""
        entry.verdict_at = None
        if entry.held_since is None and not self._observe:
            entry.held_since = now
        overdue = entry.held_since is not None and now - entry.held_since >= self._max_hold
        entry.failed_open = overdue
        (self._ready if overdue or self._observe else self._held).append(entry)

    def _hand_out(self, entry: Entry) -> None:
        self._forget_queued(entry)
        self._handed_out[id(entry.job)] = entry
        entry.out_in_loop = self._loop
        entry.decide()
        if entry.failed_open:
            entry.failed_open = False
            entry.fail_open()

    def _drop(self, entry: Entry, verdict: Verdict) -> None:
        """Count and report the drop; the queue holds the entry no longer."""
        self._forget_queued(entry)
        entry.decide()
        signals.totals().increment("steadfast_workloads_dropped_total", reason=verdict.reason or "other")
        try:
            self._on_drop(entry, verdict)
        except Exception:
            log.exception("The drop of a stale launch could not be reported: %s", entry.launch)

    def _leave_one(self, entry: Entry) -> None:
        """Of the queued copies of one launch order, keep ``entry``, the newest."""
        if entry.launch is None:
            return
        older = self._queued.get(entry.launch.identity)
        if older is not None and older is not entry:
            if self._observe:
                older.observe(SUPERSEDED)
            else:
                self._remove(older)
                self._drop(older, SUPERSEDED)
        self._queued[entry.launch.identity] = entry

    def _remove(self, entry: Entry) -> None:
        for part in (self._pending, self._ready, self._held):
            if entry in part:
                part.remove(entry)

    def _forget_queued(self, entry: Entry) -> None:
        if entry.launch is not None and self._queued.get(entry.launch.identity) is entry:
            del self._queued[entry.launch.identity]

    def _drain(self) -> Any:
        for part in (self._held, self._ready, self._pending):
            if part:
                entry = part.popleft()
                self._forget_queued(entry)
                return entry.job
        raise queue.Empty

    def _without_guard(self, error: Exception) -> Entry | None:
        """After a failure of our own: the next job goes to the stock executor, and to its own check."""
        self._report_broken(error)
        for part in (self._ready, self._held, self._pending):
            for entry in [entry for entry in part if entry.out_in_loop != self._loop][:1]:
                part.remove(entry)
                return entry.to_stock_check()
        return None

    def _report_broken(self, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            log.error("The launch guard failed: launches are left to the stock check", exc_info=error)
        signals.totals().increment("steadfast_launch_check_errors_total", reason="internal_error")
