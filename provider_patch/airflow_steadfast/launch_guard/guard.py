# SPDX-License-Identifier: Apache-2.0
"""The guard of one started executor: its parts, and what they tell one another."""

from __future__ import annotations

import functools
import logging
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow_steadfast import signals
from airflow_steadfast.kube import pods
from airflow_steadfast.launch_guard import drop, inject, launcher, pod_events, stranded
from airflow_steadfast.launch_guard.check import LaunchCheck
from airflow_steadfast.launch_guard.creation import Creation
from airflow_steadfast.launch_guard.existing import REVOKED_LABEL
from airflow_steadfast.launch_guard.launch import PodRef
from airflow_steadfast.launch_guard.queue import GuardedQueue
from airflow_steadfast.launch_guard.recheck import Alongside, Recheck
from airflow_steadfast.launch_guard.renewal import TokenRenewal
from airflow_steadfast.launch_guard.results import Results
from airflow_steadfast.launch_guard.revocations import Revocations
from airflow_steadfast.launch_guard.revoke import Revoker
from airflow_steadfast.launch_guard.snapshot import Snapshot
from airflow_steadfast.launch_guard.verdict import Verdict
from airflow_steadfast.launch_guard.workload import ti_id_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    from airflow_steadfast.launch_guard.attempt import Attempt
    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.launch import LaunchId
    from airflow_steadfast.launch_guard.results import Handling
    from airflow_steadfast.settings import Settings

log = logging.getLogger("airflow_steadfast.launch_guard")


REVOKED = Verdict("superseded")
"""Of a launch that the scheduler revoked: it queues the task instance again, or fails it."""


class Guard:
    """See the module's text. With ``observe`` only the queue and the look at pods are there."""

    def __init__(self, executor: Any, job_id: int, chosen: Settings, *, observe: bool) -> None:
        self.observe = observe
        self._executor = executor
        self._job_id = job_id
        self._audit_rows: list[Any] = []
        self._broken = False
        self._snapshot = Snapshot(chosen.guard_check_timeout)
        self._wardrobe = inject.wardrobe(executor, inject=chosen.inject == "auto")
        self._revoker = Revoker(executor.kube_scheduler)
        self._recheck = Recheck(
            self._snapshot, self._revoker, self._claimed, self._revoked, self._now, self._pod_gone
        )
        self.queue = GuardedQueue(
            LaunchCheck(Alongside(self._snapshot, self._recheck), job_id),
            self._dropped,
            max_hold=chosen.guard_max_hold,
            recheck_age=chosen.guard_recheck_age,
            observe=observe,
            renewal=TokenRenewal(executor),
            creation_batch=lambda: int(executor.kube_config.worker_pods_creation_batch_size),
        )
        self.results = Results(executor, self.queue)
        self.revocations = Revocations(executor, self._revoker, self._is_wanted, self._now)
        self._stranded = stranded.Stranded(self._look_for_stranded, self.queue.now)
        self._creation = Creation(
            executor,
            self.queue,
            budget=chosen.guard_create_retry,
            dress=self._dress,
            created=self._created,
            adopted=self._adopted,
            broken=self._report_broken,
        )

    def take_over(self) -> None:
        """Put the queue, and unless it only observes the creation of pods, into the executor."""
        if self.observe:
            launcher.look(self._executor, self.queue, self._dress)
        else:
            launcher.wrap(self._executor, self._creation)
        # last: without the guard's loops a queue hands nothing out twice, without a queue the rest is idle
        self._executor.task_queue = self.queue

    def vouches_for(self, job: Any) -> bool:
        """Whether the guard decided about this job in this loop, so that no second check is due."""
        entry = self.queue.entry_of(job)
        return entry is not None and not self.observe and not entry.unguarded

    def begin_loop(self) -> None:
        """Start a scheduler loop. Never raises: where a part fails, the others begin all the same."""
        parts = [self.queue.begin_loop, self._recheck.begin_loop, self._creation.begin_loop]
        if not self.observe:
            parts += [self.revocations.begin_loop, self.results.begin_loop, self._free_failed_slots]
        for part in (*parts, self._let_go_of_saved_rows):
            self.quietly(part)

    def end_loop(self, running: Collection[Hashable]) -> None:
        """End a scheduler loop: ``running`` are the executor's keys. Never raises, as ``begin_loop``."""
        self.quietly(lambda: self._recheck.end_loop(asked_next=self.queue.asks_next_loop()))
        for part in (self.revocations.end_loop, self._stranded.end_loop):
            self.quietly(part)
        self.quietly(lambda: self.queue.end_loop(running))
        if self.observe:
            for entry in self.queue.handed_out():
                self.quietly(functools.partial(self._count_unpatched, entry))

    def handling(self, results: Any) -> Handling:
        """Say what a result of the watcher is; the provider's business where that cannot be told."""
        try:
            return self.results.handling(results)
        except Exception as error:
            self._report_broken(error)
            return "native"

    def revoked_by_scheduler(self, key: Any) -> None:
        """After the scheduler revoked a task instance: no pod of its launches may start any more.

        The stock executor deletes one pod, found by labels that kept pods of earlier launches share. What
        the API server refuses now is tried again.
        """
        for entry in self.results.revoked(key):
            if entry.launch_id is None or entry.pod is None:
                continue
            if self.revocations.silent:
                self._recheck.revoke_later(entry, REVOKED)
                continue
            started = self._now()
            if self._revoker.revoke(entry.pod, entry.launch_id.text()) == "failed":
                self.revocations.note_failure(self._now() - started)
                self._recheck.revoke_later(entry, REVOKED)

    def adopted(self, key: Any, ti: Any, pod: Any) -> None:
        """After this scheduler took over a pod: that is the launch, a copy still queued here is none."""
        self.results.adopted(key)
        self.revocations.settled(ti)
        if self.observe:
            return
        ref = PodRef(pod.metadata.namespace, pod.metadata.name)
        if pods.label(pod, REVOKED_LABEL) is not None:
            # marked by a scheduler that ended before it could delete it: no watcher would tell of its end
            self._revoker.spare(ref)
        for entry in self.queue.launches.all(key):
            if entry.pod == ref:
                entry.pod = None  # no longer in doubt, and not to be revoked with the copy
        self.queue.purge(ti_id_of(ti))
        self._executor.running.add(key)  # the pod's, not the copy's

    def alive_schedulers(self, threshold: float) -> set[int]:
        """Return the job ids of the other schedulers that beat within ``threshold`` seconds.

        Empty where the database gives no answer, as for the stock executor.
        """
        since = datetime.now(timezone.utc) - timedelta(seconds=threshold)
        try:
            rows = self._snapshot.select(lambda: stranded.query_schedulers(since))
        except Exception as error:
            log.warning(
                "Living schedulers cannot be told, completed pods of all others are adopted: %s", error
            )
            return set()
        return {int(job_id) for (job_id,) in rows} - {self._job_id}

    def close(self) -> None:
        """Write the totals and close the connection. Idempotent, never raises."""
        signals.totals().flush(force=True)
        self._snapshot.close()

    def _dropped(self, entry: Entry, verdict: Verdict) -> None:
        drop.clear_books(self._executor, entry, verdict, self.queue, self._job_id)
        self._audit_rows += drop.report(self._executor, entry, verdict, self._job_id)
        signals.totals().flush()
        self._stranded.dropped(entry, verdict)
        self.results.dropped(entry)
        if not entry.created and verdict.reason != "token_expired":
            self._recheck.void(entry, verdict)

    def _dress(self, entry: Entry, pod: Any) -> None:
        entry.pod_lacks_patch = not self._wardrobe.dress(pod)

    def _created(self, entry: Entry, attempt: Attempt) -> None:
        self.quietly(lambda: self._count_unpatched(entry))
        self.quietly(lambda: self.results.created(entry, attempt))
        self.quietly(lambda: self._recheck.created(entry))

    def _adopted(self, entry: Entry, pod: Any) -> None:
        self.quietly(lambda: self._keep(pod_events.adopted(self._executor, entry, pod)))

    def _revoked(self, entry: Entry, launch_id: LaunchId, verdict: Verdict) -> None:
        self._pod_gone(entry, launch_id, verdict)
        self.quietly(lambda: self._keep(pod_events.revoked(self._executor, entry, launch_id, verdict)))

    def _pod_gone(self, entry: Entry, launch_id: LaunchId, verdict: Verdict) -> None:
        """The pod of a void launch is no more; nothing else will tell the executor."""
        if entry.created and entry.launch_id == launch_id:
            entry.created = False
            drop.clear_books(self._executor, entry, verdict, self.queue, self._job_id)
            self.queue.launches.forget(entry.job.key, entry)
            self.results.dropped(entry)

    def _claimed(self, entry: Entry, ref: PodRef, launch_id: LaunchId) -> bool:
        """Whether a newer copy of the order has taken the pod for its own."""
        return (
            self.queue.launches.newest(
                entry.job.key,
                lambda one: one is not entry and one.pod == ref and one.launch_id == launch_id,
            )
            is not None
        )

    def _is_wanted(self, ref: PodRef) -> bool:
        """Whether a pod is that of a launch that nobody has revoked."""
        return self.queue.launches.has_pod(ref)

    def _let_go_of_saved_rows(self) -> None:
        """Audit rows of earlier loops have been saved once they left the executor."""
        if self._audit_rows:
            waiting = set(map(id, self._executor._task_event_logs))  # noqa: SLF001 - the base class's deque
            self._audit_rows = [row for row in self._audit_rows if id(row) in waiting]

    def _look_for_stranded(self, keys: Sequence[Any]) -> dict[Any, stranded.Queued]:
        since = datetime.now(timezone.utc) - timedelta(seconds=stranded.health_threshold())
        return stranded.as_queued(self._snapshot.select(lambda: stranded.query(keys)), since)

    def _free_failed_slots(self) -> None:
        """Free the slot of a key that failed before it was queued.

        Providers before 10.25 count a key as running after they have failed it for a wrong
        executor_config, and then for ever.
        """
        executor = self._executor
        for key, (state, _) in list(executor.event_buffer.items()):
            if key in executor.running and str(getattr(state, "value", state)) == "failed":
                live = self.queue.launches.newest(key, lambda one: one.has_pod_or_queued)
                if live is None:
                    executor.running.discard(key)

    def _count_unpatched(self, entry: Entry) -> None:
        if entry.pod_lacks_patch:
            entry.pod_lacks_patch = False
            signals.totals().increment("steadfast_worker_pods_unpatched_total")

    def _now(self) -> float:
        return self.queue.now()

    def _keep(self, rows: list[Any]) -> None:
        self._audit_rows += rows

    def quietly(self, action: Callable[[], None]) -> None:
        """Do something that the provider must not suffer from. Never raises; logged once, counted always."""
        try:
            action()
        except Exception as error:
            self._report_broken(error)

    def _report_broken(self, error: Exception) -> None:
        if not self._broken:
            self._broken = True
            log.error("The launch guard failed, the provider goes on without it there", exc_info=error)
        signals.totals().increment("steadfast_launch_check_errors_total", reason="internal_error")
