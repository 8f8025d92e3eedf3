# SPDX-License-Identifier: Apache-2.0
"""Puts the guard into a started executor, where it may work; otherwise says once why not."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from airflow_steadfast import capabilities, settings, signals
from airflow_steadfast.launch_guard import drop, worker_pod
from airflow_steadfast.launch_guard.check import LaunchCheck
from airflow_steadfast.launch_guard.queue import GuardedQueue
from airflow_steadfast.launch_guard.renewal import TokenRenewal
from airflow_steadfast.launch_guard.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable

    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.verdict import Verdict
    from airflow_steadfast.settings import Settings

log = logging.getLogger("airflow_steadfast.launch_guard")


class Guard:
    """The guard of one started executor: its queue and how it drops."""

    def __init__(self, executor: Any, job_id: int, chosen: Settings, *, observe: bool) -> None:
        self.observe = observe
        self._executor = executor
        self._job_id = job_id
        self._audit_rows: list[Any] = []
        self._snapshot = Snapshot(chosen.guard_check_timeout)
        self.queue = GuardedQueue(
            LaunchCheck(self._snapshot, job_id),
            self._dropped,
            max_hold=chosen.guard_max_hold,
            recheck_age=chosen.guard_recheck_age,
            observe=observe,
            renewal=TokenRenewal(executor),
        )

    def vouches_for(self, job: Any) -> bool:
        """Whether the guard decided about this job in this loop, so that no second check is due."""
        entry = self.queue.entry_of(job)
        return entry is not None and not self.observe and not entry.unguarded

    def begin_loop(self) -> None:
        """Start a scheduler loop; audit rows of earlier ones have been saved once they left the executor."""
        if self._audit_rows:
            waiting = set(map(id, self._executor._task_event_logs))  # noqa: SLF001 - the base class's deque
            self._audit_rows = [row for row in self._audit_rows if id(row) in waiting]
        self.queue.begin_loop()

    def end_loop(self, running: Collection[Hashable]) -> None:
        """End a scheduler loop: ``running`` are the executor's keys."""
        self.queue.end_loop(running)
        for entry in self.queue.handed_out():
            if entry.pod_lacks_patch:
                signals.totals().increment("steadfast_worker_pods_unpatched_total")

    def close(self) -> None:
        """Write the totals and close the connection. Idempotent, never raises."""
        signals.totals().flush(force=True)
        self._snapshot.close()

    def _dropped(self, entry: Entry, verdict: Verdict) -> None:
        drop.clear_books(self._executor, entry, verdict, self.queue, self._job_id)
        self._audit_rows += drop.report(self._executor, entry, verdict, self._job_id)
        signals.totals().flush()


def attach(executor: Any, stock: type[Any]) -> Guard | None:
    """Give a started executor its guard, or None where it is to work natively. Never raises.

    ``stock`` is the executor class of the provider. Only the scheduler's executor gets one: an
    executor that somebody else starts has no numeric job id.
    """
    try:
        return _attach(executor, stock)
    except Exception:
        log.exception("The launch guard is not active, the executor works natively")
        with contextlib.suppress(Exception):
            _publish("native", active=False)
        return None


def _attach(executor: Any, stock: type[Any]) -> Guard | None:
    job_id = _numeric(executor.scheduler_job_id)
    if job_id is None:
        log.info(
            "The launch guard is not active: job id %r is not a scheduler's, launches are not compared",
            executor.scheduler_job_id,
        )
        signals.totals().increment("steadfast_launch_check_errors_total", reason="job_id_not_numeric")
        return None
    chosen = settings.current()
    signals.configure_handoff(chosen.handoff_dir)
    found = capabilities.versions()
    _publish_durable_pod(chosen, found)
    if chosen.launch_guard == "off":
        # 1, unlike native: an alert must tell a guard that is switched off from one that failed to start
        _publish("off", active=True)
        return None
    support = capabilities.launch_guard(stock, found, allow_untested=chosen.allow_untested)
    if not support.active:
        log.log(
            logging.ERROR if chosen.launch_guard == "enforce" else logging.WARNING,
            "The launch guard is not active, the executor works natively: %s",
            support.reason,
        )
        _publish("native", active=False)
        return None
    mode = "observe" if chosen.launch_guard == "observe" else "enforce"
    guard = Guard(executor, job_id, chosen, observe=mode == "observe")
    executor.task_queue = guard.queue
    _look_at_pods(executor, guard)
    _publish(mode, active=True)
    log.info("The launch guard is active: mode=%s scheduler_job_id=%s, %s", mode, job_id, found)
    return guard


def _numeric(job_id: Any) -> int | None:
    try:
        return int(job_id)
    except (TypeError, ValueError):
        return None


def _publish(mode: str, *, active: bool, component: str = "launch_guard") -> None:
    totals = signals.totals()
    for known in signals.catalogue.MODES:
        totals.set_gauge(
            "steadfast_patch_active", int(active and known == mode), component=component, mode=known
        )
    totals.flush(force=True)


def _publish_durable_pod(chosen: Settings, found: capabilities.Versions) -> None:
    """Tell of the durable pod as well: worker processes share the configuration but not the hand-off file."""
    if not chosen.patch_kpo:
        _publish("off", active=True, component="durable_pod")
        return
    untested = "" if chosen.allow_untested else capabilities.untested_reason(found)
    # looked up, not imported: without the hook the guard still works
    hook = sys.modules.get("airflow_steadfast.import_hook")
    active = hook is not None and hook.installed() and not untested
    mode = "durable" if capabilities.has_task_state_store(found) else "reattach_on_restart"
    _publish(mode, active=active, component="durable_pod")


def _look_at_pods(executor: Any, guard: Guard) -> None:
    """Count worker pods without the patch, where pods are built by a method of their own (10.21+)."""
    root = worker_pod.mounted_root()
    build = getattr(executor.kube_scheduler, "_build_pod_request", None)
    if root is None or build is None:
        return

    def build_and_look(next_job: Any) -> Any:
        pod = build(next_job)
        try:
            entry = guard.queue.entry_of(next_job)
            if entry is not None and not worker_pod.carries_patch(pod, root):
                entry.pod_lacks_patch = True
                worker_pod.warn_once(pod, root)
        except Exception:
            log.debug("the worker pod could not be looked at", exc_info=True)
        return pod

    executor.kube_scheduler._build_pod_request = build_and_look  # noqa: SLF001 - the stock seam
