# SPDX-License-Identifier: Apache-2.0
"""A queued job with what the guard knows of it, and the pause between checks that get no answer."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.workload import NotComparableError, launch_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_steadfast.launch_guard.launch import Launch
    from airflow_steadfast.launch_guard.verdict import Verdict

log = logging.getLogger("airflow_steadfast.launch_guard")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0


@dataclass(eq=False)
class Entry:
    """One launch on its way through the queue; times are the queue's clock, in seconds.

    ``launch`` is None for what cannot be compared and is launched unchecked. ``held_since`` is set
    while the database gives no answer. ``unguarded`` marks one that the stock executor is to check
    itself, after a failure of the guard.
    """

    job: Any
    launch: Launch | None = None
    verdict_at: float | None = None
    held_since: float | None = None
    out_in_loop: int = -1
    decided: bool = False
    would_drop: bool = False
    failed_open: bool = False
    open_counted: bool = False
    unguarded: bool = False
    pod_lacks_patch: bool = False

    @classmethod
    def of(cls, job: Any) -> Entry:
        """Make an entry; a job that cannot be compared is counted and goes through. Never raises."""
        try:
            return cls(job, launch_of(job))
        except NotComparableError as error:
            reason = error.reason
        except Exception:
            reason = "internal_error"
        _report_unchecked(reason, job)
        return cls(job)

    def decide(self) -> None:
        """Count the launch as decided, once, however often it is handed to creation."""
        if not self.decided:
            self.decided = True
            signals.totals().increment("steadfast_launches_decided_total")

    def fail_open(self) -> None:
        """Count and log, once, that this launch is made without a verdict."""
        if not self.open_counted:
            self.open_counted = True
            log.warning("Launching without a verdict: %s", self.launch)
            signals.totals().increment("steadfast_launches_failed_open_total")

    def observe(self, verdict: Verdict) -> None:
        """Count, once, that this launch would be dropped; nothing for a fresh one."""
        if verdict.reason is not None and not self.would_drop:
            self.would_drop = True
            log.info("Would drop the launch (%s), observe mode: %s", verdict.reason, self.launch)
            signals.totals().increment("steadfast_workloads_would_drop_total", reason=verdict.reason)

    def to_stock_check(self) -> Entry:
        """Leave this launch to the stock executor's own check, where it has one; returns the entry."""
        self.unguarded = self.failed_open = True
        self.verdict_at = None
        return self


_reported: set[str] = set()


def _report_unchecked(reason: str, job: Any) -> None:
    if reason not in _reported:
        _reported.add(reason)
        log.warning("Launched unchecked (%s), said once: %s", reason, getattr(job, "key", job))
    signals.totals().increment("steadfast_launch_check_errors_total", reason=reason)


class Backoff:
    """When a database that did not answer is asked again: after 1, 2, 4, 8, then every 10 s."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pause = 0.0
        self._next_at = 0.0
        self.failing = False

    def due(self) -> bool:
        """Whether it may be asked now."""
        return not self.failing or self._clock() >= self._next_at

    def fail(self, error: Exception) -> None:
        """Note a failure; the first in a row is logged."""
        first, self.failing = not self.failing, True
        if first:
            log.warning("The launch check gets no answer, queued launches are held: %s", error)
        self._pause = min(LONGEST_PAUSE, self._pause * 2) if not first else FIRST_PAUSE
        self._next_at = self._clock() + self._pause

    def succeed(self) -> None:
        """Note an answer; the first after a failure is logged."""
        if self.failing:
            log.info("The launch check gets answers again")
        self.failing = False
