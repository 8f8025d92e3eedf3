# SPDX-License-Identifier: Apache-2.0
"""What becomes of a batch of queued launches: asked about in one go, each ready, held or dropped."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.backoff import Backoff
from airflow_steadfast.launch_guard.check import CheckFailedError
from airflow_steadfast.launch_guard.verdict import Verdict, order_replaced

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Sequence

    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.launch import Launch, LaunchBook
    from airflow_steadfast.launch_guard.line import Line
    from airflow_steadfast.launch_guard.token import Renewal

log = logging.getLogger("airflow_steadfast.launch_guard")


class Check(Protocol):
    """Gives verdicts; raises ``CheckFailedError`` only."""

    def ask(self, launches: Sequence[Launch]) -> list[Verdict]:
        """Return one verdict per launch, in order."""


class Settling:
    """Moves entries of ``line`` by what the check says of them; a stale one goes to ``drop``.

    ``max_hold`` is in seconds of ``clock``. With ``observe`` nothing is dropped, held or renewed.
    """

    def __init__(
        self,
        check: Check,
        line: Line,
        launches: LaunchBook,
        drop: Callable[[Entry, Verdict], None],
        renewal: Renewal,
        clock: Callable[[], float],
        *,
        max_hold: float,
        observe: bool,
    ) -> None:
        self.observe = observe
        self.max_hold = max_hold
        self.backoff = Backoff(clock)
        self._check = check
        self._line = line
        self._launches = launches
        self._drop = drop
        self._renewal = renewal
        self._clock = clock
        self._broken = False

    def ask(self, batch: list[Entry], source: deque[Entry]) -> None:
        """Move a batch from ``source``, a part of the line, to where its verdicts put it."""
        comparable = [entry for entry in batch if entry.launch is not None]
        verdicts = self._verdicts(comparable)
        self._line.move(batch, source)
        for entry in batch:
            self._settle_safely(entry, verdicts)

    def _settle_safely(self, entry: Entry, verdicts: dict[int, Verdict] | None) -> None:
        try:
            self._settle(entry, verdicts)
        except Exception as error:
            self.report_broken(error)
            self._line.ready.append(entry.to_stock_check())

    def _verdicts(self, entries: list[Entry]) -> dict[int, Verdict] | None:
        """Ask the database; None where it does not answer or is left alone for a while."""
        if not entries:
            return {}
        if not self.backoff.due():
            return None
        try:
            verdicts = self._check.ask([entry.launch for entry in entries if entry.launch])
        except CheckFailedError as error:
            self.backoff.fail(error)
            return None
        self.backoff.succeed()
        return dict(zip(map(id, entries), verdicts, strict=True))

    def _settle(self, entry: Entry, verdicts: dict[int, Verdict] | None) -> None:
        if entry.launch is None:
            self._line.ready.append(entry)
        elif verdicts is None:
            self._settle_unanswered(entry)
        else:
            self._settle_answered(entry, verdicts[id(entry)])

    def _settle_answered(self, entry: Entry, verdict: Verdict) -> None:
        entry.held_since, entry.failed_open = None, False
        if verdict.fresh and order_replaced(entry.launch_id, verdict.row):
            verdict = Verdict("superseded", verdict.row)
        if verdict.fresh and self._renewal.expired(entry):
            verdict = Verdict("token_expired", verdict.row)
        entry.row = verdict.row
        entry.verdict_at = self._clock()
        if verdict.fresh or self.observe:
            entry.observe(verdict)
            self._line.ready.append(entry)
        else:
            self._renew_and_drop(entry, verdict)

    def _settle_unanswered(self, entry: Entry) -> None:
        """Hold the launch, or make it without a verdict when it has been held for long enough."""
        now = self._clock()
        entry.verdict_at = None
        if entry.held_since is None and not self.observe:
            entry.held_since = now
        entry.failed_open = entry.held_since is not None and now - entry.held_since >= self.max_hold
        if entry.failed_open and self._renewal.expired(entry):
            self._renew_and_drop(entry, Verdict("token_expired"))
        else:
            (self._line.ready if entry.failed_open or self.observe else self._line.held).append(entry)

    def _renew_and_drop(self, entry: Entry, verdict: Verdict) -> None:
        """Drop an entry; one whose token has expired leaves a copy with a new token in its place."""
        job = self._renewal.renew(entry) if verdict.reason == "token_expired" else None
        if job is not None:
            copy = entry.renewed(job)
            copy.verdict_at, copy.failed_open, copy.held_since = (
                entry.verdict_at,
                entry.failed_open,
                entry.held_since,
            )
            self._launches.begin(job.key, copy)
            self._line.join(copy)
            self._line.waiting.pop()
            self._line.ready.append(copy)
            log.info("Launching with a new token: %s", copy.launch)
        self._drop(entry, verdict)

    def report_broken(self, error: Exception) -> None:
        """Log the guard's first failure, count each."""
        if not self._broken:
            self._broken = True
            log.error("The launch guard failed: launches are left to the stock check", exc_info=error)
        signals.totals().increment("steadfast_launch_check_errors_total", reason="internal_error")
