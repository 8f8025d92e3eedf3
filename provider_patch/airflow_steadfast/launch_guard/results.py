# SPDX-License-Identifier: Apache-2.0
"""Keeps the end of one pod from being taken for the end of another launch of the same key.

The executor's watcher reports a pod's end by the executor's key, and a key stands for a task instance
and a try: for a deferred or rescheduled one, and for a run made again under its run id, that is several
launches. Only the end of the current launch's own pod is news; of any other pod it is something to tidy
up. Keys that no launch is known of (adopted pods) are the provider's alone.
"""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any, Literal

from airflow_steadfast.launch_guard.answers import describe
from airflow_steadfast.launch_guard.launch import PodRef
from airflow_steadfast.launch_guard.stale import SLOW

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.attempt import Attempt
    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.queue import GuardedQueue

log = logging.getLogger("airflow_steadfast.launch_guard")

Handling = Literal["native", "tidy", "ignore"]

MOST_LEFT = 1_000
"""Pods that are remembered as still to be tidied up while the API server refuses."""

MOST_TOLD = 1_000
"""Pods that are remembered as logged."""

PAUSE = 10.0
"""Seconds between two tries to tidy up what was left."""

REFUSED_PAUSE = 2.0
"""Seconds after which results that the provider could not work off are given to it again."""

ADOPTED = "adopted"


class Results:
    """What is done with each result of the watcher, for one executor; only ``tidy`` asks a server."""

    def __init__(self, executor: Any, queue: GuardedQueue) -> None:
        self._executor = executor
        self._queue = queue
        self._versions: weakref.WeakKeyDictionary[Entry, int] = weakref.WeakKeyDictionary()
        self._withheld: weakref.WeakKeyDictionary[Entry, Any] = weakref.WeakKeyDictionary()
        self._owners: weakref.WeakValueDictionary[PodRef, Entry] = weakref.WeakValueDictionary()
        self._left: dict[PodRef, Any] = {}
        self._left_until = 0.0
        self._told: dict[PodRef, None] = {}
        self._refused: list[Any] = []
        self._refused_until = 0.0
        self._silent = False

    @property
    def silent(self) -> bool:
        """Whether the server is not to be asked again in this loop: it took long to give no answer."""
        return self._silent

    def refused(self, results: Any, error: Exception, took: float) -> None:
        """Keep a result that the provider could not work off, after ``took`` seconds, for a later loop.

        The provider queues it again, meets it again at once, and its loop does not end while the API server
        refuses to delete the pod: no heartbeat, no other result.
        """
        ref = PodRef(results.namespace, results.pod_name)
        log.warning("The end of pod %s/%s cannot be worked off now: %s", *ref, describe(error))
        self._silent = took >= SLOW
        self.postpone(results)

    def postpone(self, results: Any) -> None:
        """Give a result to the provider in a later loop."""
        if not self._refused:
            self._refused_until = self._queue.now() + REFUSED_PAUSE
        self._refused.append(results)

    def put_back(self) -> None:
        """Give the provider all results that were kept."""
        refused, self._refused = self._refused, []
        for results in refused:
            self._executor.result_queue.put(results)

    def created(self, entry: Entry, attempt: Attempt) -> None:
        """Note a created pod: what older launches of its key ended with is of no interest any more."""
        version = _number(getattr(getattr(attempt.response, "metadata", None), "resource_version", None))
        if version is not None:
            self._versions[entry] = version
        if entry.pod is not None:
            self._owners[entry.pod] = entry
        self._forget_older(entry)

    def handling(self, results: Any) -> Handling:
        """Say what a result is: the provider's business, a pod to tidy up, or nothing at all."""
        ref = PodRef(results.namespace, results.pod_name)
        if self._is_old_news(results, ref):
            return "ignore"
        current = self._queue.launches.current(results.key)
        if current is None or current.pod_unknown:
            return "native"
        if not (current.queued or current.created):
            # results come before creation in a loop: this launch has failed
            self._queue.launches.forget(results.key, current)
            return "native"
        if ref == current.pod:
            return self._of_own_pod(current, results)
        older = self._queue.launches.of_pod(results.key, ref)
        if _is_adoption(results.state):
            if older is not None and older is not current:
                self._queue.launches.forget(results.key, older)
            return "ignore"
        self._tell(ref, results.state, current)
        if older is not None and older is not current:
            self._withheld[older] = results
        return "tidy"

    def _tell(self, ref: PodRef, state: Any, current: Entry) -> None:
        """Log it once for each pod: the watcher reports every change of a pod on its way out."""
        if ref in self._told:
            return
        self._told[ref] = None
        if len(self._told) > MOST_TOLD:
            del self._told[next(iter(self._told))]
        log.info(
            "Pod %s/%s ended (%s), it is not the current launch's pod: only tidied up; current launch: %s",
            *ref,
            state,
            current.launch,
        )

    def _is_old_news(self, results: Any, ref: PodRef) -> bool:
        """A forced name: another report of a pod whose end is known, and whose name is a living pod's now.

        The provider deletes by name, and would hit that one.
        """
        owner = self._owners.get(ref)
        return (
            owner is not None
            and owner.created
            and owner.pod == ref
            and owner.job.key != results.key
            and results.key not in self._executor.running
        )

    def _is_earlier_pods(self, results: Any, entry: Entry) -> bool:
        """Whether a result is older than the launch's pod: it tells of the one that had the name before."""
        created_at, seen_at = self._versions.get(entry), _number(results.resource_version)
        return created_at is not None and seen_at is not None and seen_at < created_at

    def _of_own_pod(self, current: Entry, results: Any) -> Handling:
        if self._is_earlier_pods(results, current):
            return "ignore"
        if current.queued:
            # its create was in doubt: here is the pod
            self._queue.take_out(current)
        current.created = True
        return "native"

    def handled(self, results: Any) -> None:
        """After the provider took a result: a launch that it no longer counts as running has ended."""
        current = self._queue.launches.current(results.key)
        if current is not None and not current.queued and results.key not in self._executor.running:
            self._queue.launches.forget(results.key, current)

    def tidy(self, results: Any) -> None:
        """Delete a pod, or mark it as done, as the executor's configuration says. Never raises."""
        ref = PodRef(results.namespace, results.pod_name)
        self._left.pop(ref, None)
        try:
            self._tidy(results)
        except Exception as error:
            log.info("Pod %s/%s cannot be tidied up now: %s", *ref, describe(error))
            if len(self._left) < MOST_LEFT:
                self._left[ref] = results

    def _tidy(self, results: Any) -> None:
        config, launcher = self._executor.kube_config, self._executor.kube_scheduler
        name = {"pod_name": results.pod_name, "namespace": results.namespace}
        if not config.delete_worker_pods:
            launcher.patch_pod_executor_done(**name)
        elif str(getattr(results.state, "value", results.state)) != "failed" or (
            config.delete_worker_pods_on_failure
        ):
            launcher.delete_pod(**name)

    def begin_loop(self) -> None:
        """Try again what could not be worked off or tidied up, now and then."""
        self._silent = False
        if self._refused and self._queue.now() >= self._refused_until:
            self.put_back()
        if self._left and self._queue.now() >= self._left_until:
            self._left_until = self._queue.now() + PAUSE
            for ref, results in list(self._left.items()):
                owner = self._owners.get(ref)
                if owner is not None and self._is_earlier_pods(results, owner):
                    del self._left[ref]  # a forced name: it is a living pod's now
                    continue
                self.tidy(results)
                if ref in self._left:
                    break  # the server still fails: each of the rest would wait for it as long

    def dropped(self, entry: Entry) -> None:
        """After a drop: if the key's launch before it has ended meanwhile, its end is news after all."""
        older = self._queue.launches.newest(entry.job.key, lambda one: one is not entry)
        results = self._withheld.pop(older, None) if older is not None else None
        if results is not None:
            self._executor.result_queue.put(results)

    def adopted(self, key: Any) -> None:
        """Forget the launches of a key whose pod this scheduler has taken over: it is the provider's."""
        while (entry := self._queue.launches.newest(key, lambda one: not one.queued)) is not None:
            self._queue.launches.forget(key, entry)

    def revoked(self, key: Any) -> list[Entry]:
        """Forget all launches of a key that the scheduler revoked; returns those that may have a pod."""
        found = []
        while (entry := self._queue.launches.current(key)) is not None:
            self._queue.launches.forget(key, entry)
            if entry.pod is not None:
                found.append(entry)
        return found

    def _forget_older(self, entry: Entry) -> None:
        launches, key = self._queue.launches, entry.job.key
        while (older := launches.newest(key, lambda one: one is not entry and not one.queued)) is not None:
            launches.forget(key, older)


def _is_adoption(state: Any) -> bool:
    return str(getattr(state, "value", state)).lower() == ADOPTED


def _number(version: Any) -> int | None:
    """A resource version as the number of the store's revision; None for one that is none."""
    try:
        return int(version)
    except (TypeError, ValueError):
        return None
