# SPDX-License-Identifier: Apache-2.0
"""A queued job with what the guard knows of it."""

from __future__ import annotations

import itertools
import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.launch import LaunchId
from airflow_steadfast.launch_guard.workload import NotComparableError, launch_of

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.attempt import Attempt
    from airflow_steadfast.launch_guard.launch import Launch, PodRef
    from airflow_steadfast.launch_guard.rows import Row
    from airflow_steadfast.launch_guard.verdict import Verdict

log = logging.getLogger("airflow_steadfast.launch_guard")

_order = itertools.count(1)


@dataclass(eq=False)
class Entry:
    """One launch on its way through the queue to its pod; times are the queue's clock, in seconds.

    ``launch`` is None for what cannot be compared and is launched unchecked. ``held_since`` is set
    while the database gives no answer. ``unguarded`` marks one that the stock executor is to check
    itself, after a failure of the guard. ``number`` grows with each order: of two copies the one with
    the higher number is the newer. ``queued`` is true while it is in the queue's line.

    What creation knows and writes: ``row``, what the last verdict saw; ``pod``, the pod created or being
    created for it, and ``former_pods``, those before; ``created`` once the pod is there; ``pod_unknown``
    where the stock code created it, so that its events are the stock code's too. ``retry_at`` is when
    the queue hands it out again at the earliest. ``attempt`` is how far the creation of its pod has got,
    None before and after.
    """

    job: Any
    launch: Launch | None = None
    number: int = field(default_factory=lambda: next(_order))
    queued: bool = False
    verdict_at: float | None = None
    held_since: float | None = None
    out_in_loop: int = -1
    decided: bool = False
    would_drop: bool = False
    failed_open: bool = False
    open_counted: bool = False
    unguarded: bool = False
    pod_lacks_patch: bool = False
    row: Row | None = None
    requeue: int = 0
    launch_id: LaunchId | None = None
    pod: PodRef | None = None
    former_pods: set[PodRef] = field(default_factory=set)
    created: bool = False
    pod_unknown: bool = False
    retry_at: float = 0.0
    attempt: Attempt | None = field(default=None, repr=False)

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

    @property
    def has_pod_or_queued(self) -> bool:
        """Whether the executor's books for its key are still needed for it."""
        return self.queued or self.created or self.pod_unknown

    def assign_launch_id(self) -> LaunchId | None:
        """Return the launch's identity, made at the first call and kept until its pod was created.

        None for what cannot be compared.
        """
        if self.launch_id is None and self.launch is not None:
            self.launch_id = LaunchId(
                self.launch.ti_id,
                self.launch.try_number,
                self.row.queued_dttm if self.row else None,
                self.requeue,
                nonce="" if self.row else secrets.token_hex(8),
            )
        return self.launch_id

    def begin_requeue(self) -> None:
        """Make it the next launch of the same order: its pod died before the task began."""
        self.number = next(_order)
        self.requeue += 1
        self.launch_id = None
        if self.pod is not None:
            self.former_pods.add(self.pod)
        self.pod = None
        self.created = self.pod_unknown = self.decided = self.open_counted = self.would_drop = False
        self.held_since = self.verdict_at = None
        self.retry_at = 0.0

    def inherit(self, older: Entry) -> None:
        """Take over what an older copy of the same order knows of pods that may exist."""
        self.requeue = max(self.requeue, older.requeue)
        self.former_pods |= older.former_pods
        if older.pod is not None:
            self.former_pods.add(older.pod)

    def renewed(self, job: Any) -> Entry:
        """Return the entry of a copy of the job with a new token: the same launch as this one."""
        self.decide()
        entry = Entry.of(job)
        entry.decided = True
        entry.row, entry.launch_id, entry.pod = self.row, self.launch_id, self.pod
        entry.requeue, entry.former_pods = self.requeue, self.former_pods
        return entry

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
