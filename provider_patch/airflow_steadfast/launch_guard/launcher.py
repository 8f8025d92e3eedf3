# SPDX-License-Identifier: Apache-2.0
"""Puts ``creation`` around the methods by which the provider builds and creates worker pods.

It wraps them on the executor's own launcher object (``executor.kube_scheduler``): ``run_next`` and
``run_pod_async``, which every provider has, ``_build_pod_request`` and ``run_next_batch`` where they
exist (10.21 and newer). A launcher without a method is left without its wrapper.

Guarantees: a launch handed to it ends as a pod, as a queued job, in the provider's own error handling,
or, for an error that the provider's loop would not catch, as a failed launch; no error of one launch
leaves the executor and takes the scheduler with it. A failure of the guard itself leaves the pod to the
provider.
"""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from airflow_steadfast.launch_guard import naming

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from airflow_steadfast.launch_guard.attempt import Attempt
    from airflow_steadfast.launch_guard.creation import Creation
    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.queue import GuardedQueue

log = logging.getLogger("airflow_steadfast.launch_guard")

MAX_NAMES = 5
"""Derived names that are tried within one loop before the provider's error handling decides."""

_CAUGHT = ("ApiException", "PodReconciliationError", "PodMutationHookException")


def wrap(executor: Any, creation: Creation) -> None:
    """Wrap the launcher of a started executor."""
    launcher = executor.kube_scheduler
    wrapped = _Launcher(executor, creation)
    naming.install(naming.module_of(type(launcher)))
    launcher.run_next = wrapped.run_next
    for name in ("run_pod_async", "_build_pod_request", "run_next_batch"):
        if hasattr(launcher, name):
            setattr(launcher, name, getattr(wrapped, name.lstrip("_")))


def look(executor: Any, queue: GuardedQueue, dress: Callable[[Entry, Any], None]) -> None:
    """Show ``dress`` the pod of each launch before its creation, and change nothing else.

    What ``dress`` noted of a pod that was not created then is taken back.
    """
    launcher = executor.kube_scheduler
    looking = _Looking(launcher, queue, dress)
    launcher.run_next = looking.run_next
    if hasattr(launcher, "_build_pod_request"):
        launcher._build_pod_request = looking.build_pod_request  # noqa: SLF001 - the stock seam
    else:
        launcher.run_pod_async = looking.run_pod_async
    if hasattr(launcher, "run_next_batch"):
        launcher.run_next_batch = looking.run_next_batch


class _Looking:
    """The wrapped methods of a guard that only observes; they keep the signatures of the provider's."""

    def __init__(self, launcher: Any, queue: GuardedQueue, dress: Callable[[Entry, Any], None]) -> None:
        self._queue = queue
        self._dress = dress
        self._native_run_next = launcher.run_next
        self._native_run_pod_async = getattr(launcher, "run_pod_async", None)
        self._native_build = getattr(launcher, "_build_pod_request", None)
        self._native_batch = getattr(launcher, "run_next_batch", None)
        self._running: Any = None

    def run_next(self, next_job: Any) -> None:
        """Create the pod of one job."""
        self._running = next_job
        try:
            self._native_run_next(next_job)
        except Exception:
            self._not_created(next_job)
            raise
        finally:
            self._running = None

    def run_pod_async(self, pod: Any, **request: Any) -> Any:
        """Send the create of one pod; providers before 10.21 build it within ``run_next``."""
        if self._native_run_pod_async is None:
            raise AttributeError("run_pod_async")
        self._look_at(self._running, pod)
        return self._native_run_pod_async(pod, **request)

    def build_pod_request(self, next_job: Any) -> Any:
        """Build the pod of one job."""
        if self._native_build is None:
            raise AttributeError("_build_pod_request")
        pod = self._native_build(next_job)
        self._look_at(next_job, pod)
        return pod

    def run_next_batch(self, next_jobs: list[Any]) -> list[tuple[Any, Exception | None]]:
        """Create the pods of a batch."""
        if self._native_batch is None:
            raise AttributeError("run_next_batch")
        try:
            results: list[tuple[Any, Exception | None]] = self._native_batch(next_jobs)
        except Exception:
            for job in next_jobs:
                self._not_created(job)
            raise
        for job, error in results:
            if error is not None:
                self._not_created(job)
        return results

    def _look_at(self, job: Any, pod: Any) -> None:
        entry = self._queue.entry_of(job)
        if entry is not None:
            self._dress(entry, pod)

    def _not_created(self, job: Any) -> None:
        entry = self._queue.entry_of(job)
        if entry is not None:
            entry.pod_lacks_patch = False


class _Launcher:
    """The wrapped methods; they keep the signatures of the provider's."""

    def __init__(self, executor: Any, creation: Creation) -> None:
        launcher = executor.kube_scheduler
        self._executor = executor
        self._creation = creation
        self._native_run_next = launcher.run_next
        self._native_run_pod_async = getattr(launcher, "run_pod_async", None)
        self._native_build = getattr(launcher, "_build_pod_request", None)
        self._native_batch = getattr(launcher, "run_next_batch", None)
        self._caught = _caught_by_provider(executor)
        self._running: Attempt | None = None

    def run_next(self, next_job: Any) -> None:
        """Create the pod of one job; raises only what the provider's loop catches."""
        try:
            self._run_next(next_job)
        except self._caught:
            raise
        except Exception as error:
            log.exception("The pod of %s cannot be created, the launch fails", next_job.key)
            self._executor.fail(next_job.key, error)

    def _run_next(self, job: Any) -> None:
        for _ in range(MAX_NAMES):
            attempt = self._creation.begin(job)
            if attempt is None:
                self._native_run_next(job)
                return
            try:
                with self._naming_where_built_inside(attempt):
                    self._native_run_next(job)
            except Exception as error:
                outcome = self._creation.failed(attempt, error)
                if outcome == "native":
                    raise
                if outcome == "settled":
                    return
                last = error
            else:
                self._creation.done(attempt)
                return
        raise last

    def _naming_where_built_inside(self, attempt: Attempt) -> AbstractContextManager[Any]:
        """Providers before 10.21 build the pod within ``run_next``."""
        self._running = attempt
        if self._native_build is not None:
            return nullcontext()
        return naming.deriving(attempt.naming)

    def run_pod_async(self, pod: Any, **request: Any) -> Any:
        """Send the create of one pod."""
        if self._native_run_pod_async is None:
            raise AttributeError("run_pod_async")
        attempt, self._running = self._running, None
        if attempt is not None and attempt.request is None and self._native_build is None:
            self._creation.built(attempt, pod)
        response = self._native_run_pod_async(pod, **request)
        if attempt is not None and attempt.request is pod:
            attempt.response = response
        return response

    def build_pod_request(self, next_job: Any) -> Any:
        """Build the pod of one job, under its launch's name."""
        if self._native_build is None:
            raise AttributeError("_build_pod_request")
        attempt = self._creation.attempt_of(next_job)
        if attempt is None:
            return self._native_build(next_job)
        with naming.deriving(attempt.naming):
            pod = self._native_build(next_job)
        self._creation.built(attempt, pod)
        return pod

    def run_next_batch(self, next_jobs: list[Any]) -> list[tuple[Any, Exception | None]]:
        """Create the pods of a batch; returns a pair (job, error or None) for each, and never raises."""
        if self._native_batch is None:
            raise AttributeError("run_next_batch")
        errors: dict[int, Exception | None] = {}
        pending = list(next_jobs)
        for _ in range(MAX_NAMES):
            attempts = {id(job): self._creation.begin(job) for job in pending}
            again = []
            for job, error, in_batch in self._batch(pending):
                attempt = attempts[id(job)]
                errors[id(job)] = error
                if attempt is None:
                    continue
                if error is None:
                    self._creation.done(attempt)
                    continue
                outcome = self._creation.failed(attempt, error, in_batch=in_batch)
                if outcome != "native":
                    errors[id(job)] = None
                if outcome == "next_name":
                    errors[id(job)] = error
                    again.append(job)
            pending = again
            if not pending:
                break
        return [(job, errors[id(job)]) for job in next_jobs]

    def _batch(self, jobs: list[Any]) -> list[tuple[Any, Exception | None, bool]]:
        if self._native_batch is None:
            raise AttributeError("run_next_batch")
        try:
            return [(job, error, False) for job, error in self._native_batch(jobs)]
        except Exception as error:
            log.exception("A batch of %d pods could not be created", len(jobs))
            return [(job, error, True) for job in jobs]


def _caught_by_provider(executor: Any) -> tuple[type[BaseException], ...]:
    """The errors that the executor's own loop answers, each launch by itself."""
    from kubernetes.client.exceptions import ApiException

    found: list[type[BaseException]] = [ApiException]
    for cls in type(executor).__mro__:
        module = sys.modules.get(cls.__module__)
        found += [value for name in _CAUGHT if isinstance(value := getattr(module, name, None), type)]
        found += getattr(module, "TRANSIENT_CONNECTION_ERRORS", ())
    return tuple(dict.fromkeys(found))
