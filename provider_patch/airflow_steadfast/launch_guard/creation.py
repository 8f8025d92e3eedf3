# SPDX-License-Identifier: Apache-2.0
"""Makes exactly one worker pod for a launch, whatever the API server answers, or does not answer.

The pod gets the launch's name and its annotation. A create that may or may not have stored a pod is
looked up by name and repeated under that name, so that the second one meets the first instead of making
another. ``launcher`` is what calls it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from airflow_steadfast.kube import delete, pods, reader
from airflow_steadfast.launch_guard.answers import Answer, classify, describe
from airflow_steadfast.launch_guard.attempt import Attempt, Attempts
from airflow_steadfast.launch_guard.existing import whose
from airflow_steadfast.launch_guard.launch import PodRef

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.queue import GuardedQueue

log = logging.getLogger("airflow_steadfast.launch_guard")

Outcome = Literal["settled", "next_name", "native"]

READ_TIME = 5.0
"""Seconds that reads of pods may take in one loop, the last one not counted; the rest waits for the next."""


class AlreadyThereError(Exception):
    """The pod that was in doubt exists under another name than the one now asked for."""

    def __init__(self, pod: Any) -> None:
        super().__init__(pods.describe(pod))
        self.pod = pod


class LookUpFailedError(Exception):
    """Whether the pod in doubt exists cannot be told now."""


class Creation:
    """The outcome of creates, for one started executor.

    ``budget`` is for how many seconds from its first failure a create is repeated, 0 for the provider's
    rule alone. ``dress`` is shown each pod before its creation and may change it, ``created`` is told of
    each entry whose pod was created, ``adopted`` of each pod found to be one's own, ``broken`` of a
    failure of the guard; none of them may raise.
    """

    def __init__(
        self,
        executor: Any,
        queue: GuardedQueue,
        *,
        budget: float,
        dress: Callable[[Entry, Any], None],
        created: Callable[[Entry, Attempt], None],
        adopted: Callable[[Entry, Any], None],
        broken: Callable[[Exception], None],
    ) -> None:
        self._executor = executor
        self._launcher = executor.kube_scheduler
        self._queue = queue
        self._budget = budget
        self._dress = dress
        self._on_created = created
        self._on_adopted = adopted
        self._broken = broken
        self._attempts = Attempts()
        self._reader: Any = None
        self._read_time = READ_TIME

    def begin_loop(self) -> None:
        """Start a scheduler loop."""
        self._read_time = READ_TIME

    # What the wrapped methods call.

    def begin(self, job: Any) -> Attempt | None:
        """Start a create for a job of this loop; None where the provider is to create it alone."""
        try:
            entry = self._queue.entry_of(job)
            if entry is None:
                return None
            attempt = self._attempts.begin(entry)
        except Exception as error:
            self._broken(error)
            return None
        if attempt is None:
            entry.pod_unknown = True
        return attempt

    def attempt_of(self, job: Any) -> Attempt | None:
        """Return the attempt that ``begin`` returned for this job of the loop."""
        return self._attempts.of(self._queue.entry_of(job))

    def built(self, attempt: Attempt, pod: Any) -> None:
        """Note the pod that is about to be created, and mark it as the launch's.

        Raises AlreadyThereError or LookUpFailedError where an earlier create is in doubt that asked for
        another name (a mutation hook may draw one at random).
        """
        entry = attempt.entry
        self._dress(entry, pod)
        try:
            ref = PodRef(pod.metadata.namespace, pod.metadata.name)
            annotations = {
                **(pod.metadata.annotations or {}),
                pods.LAUNCH_ANNOTATION: attempt.launch_id.text(),
            }
            pod.metadata.annotations = annotations
            attempt.request = pod
        except Exception as error:
            self._leave_to_provider(entry, error)
            return
        for doubtful in [one for one in attempt.in_doubt if one != ref]:
            self._look_for(doubtful, attempt)
        if entry.pod is not None and entry.pod != ref:
            entry.former_pods.add(entry.pod)
        entry.pod = ref

    def done(self, attempt: Attempt) -> None:
        """Note that the create succeeded."""
        entry = attempt.entry
        entry.created = True
        if attempt.request is None:
            entry.pod_unknown = True  # the provider built and created it out of sight
        elif attempt.response is None and not attempt.named_by_us:
            # since when the forced name is this pod's: the concurrent path does not tell
            attempt.response = self._find(attempt)
        attempt.in_doubt.clear()
        self._forget_earlier_requeue(entry)
        self._on_created(entry, attempt)
        self._attempts.end(attempt)

    def failed(self, attempt: Attempt, error: Exception, *, in_batch: bool = False) -> Outcome:
        """Decide what follows from a create that did not succeed.

        "settled": the pod exists after all, or the launch is queued again. "next_name": create it anew
        under the next name. "native": the provider's error handling decides. With ``in_batch`` the
        error is one of the whole batch and says nothing of this pod. Never raises.
        """
        try:
            if isinstance(error, AlreadyThereError):
                return self._adopt(attempt, error.pod)
            if isinstance(error, LookUpFailedError):
                return self._again(attempt, error)
            sent = attempt.request is not None
            answer = classify(error, sent=sent)
            if in_batch and answer.kind == "final":
                answer = Answer("unknown")
            return self._react(attempt, answer, error)
        except Exception as ours:
            self._leave_to_provider(attempt.entry, ours)
            return "native"

    # Inside.

    def _react(self, attempt: Attempt, answer: Answer, error: Exception) -> Outcome:
        if answer.kind == "final":
            return "native"
        if answer.kind == "exists" and attempt.request is not None:
            return self._taken(attempt, error)
        if answer.kind == "unknown":
            if attempt.entry.pod is not None and attempt.entry.pod not in attempt.in_doubt:
                attempt.in_doubt.append(attempt.entry.pod)
            found = self._find(attempt)
            if found is not None and whose(found, attempt.request) == "own":
                return self._adopt(attempt, found)
        return self._again(attempt, error, answer)

    def _taken(self, attempt: Attempt, error: Exception) -> Outcome:
        """A pod of that name exists: this launch's own, one in the way, or somebody else's."""
        found = self._find(attempt)
        if found is None:
            return self._again(attempt, error)
        finding = whose(found, attempt.request)
        if finding == "own":
            return self._adopt(attempt, found)
        if finding == "wait" and not (attempt.waited and attempt.named_by_us):
            attempt.waited = True
            return self._again(attempt, error)
        if attempt.named_by_us:
            attempt.number += 1
            return "next_name"
        if finding == "replace":
            log.info("Deleting a finished pod whose name is needed again: %s", pods.describe(found))
            self._delete(found)
            return self._again(attempt, error)
        log.warning(
            "The pod's name is taken: %s; asked for by %s", pods.describe(found), attempt.entry.launch
        )
        return "native"

    def _again(self, attempt: Attempt, error: Exception, answer: Answer | None = None) -> Outcome:
        """Queue the launch again, as the launch that it is, while the budget lasts."""
        now = self._queue.now()
        within = attempt.spend(now, self._budget)
        if answer is not None and answer.pause is not None:
            attempt.extend(answer.pause)
        if not within:
            log.warning(
                "The pod was not created within %g s: %s: %s",
                self._budget,
                attempt.entry.launch,
                describe(error),
            )
            return "native"
        if answer is not None and answer.pause is not None:
            self._queue.pause_until(now + answer.pause)
        if attempt.silent:
            attempt.silent = False
            log.warning(
                "No pod yet, creating it is tried again: %s: %s", attempt.entry.launch, describe(error)
            )
        refused = answer is not None and answer.kind in {"refused", "throttled"}
        self._queue.put_back(attempt.entry, retry_at=None if refused else now + attempt.delay())
        return "settled"

    def _adopt(self, attempt: Attempt, pod: Any) -> Outcome:
        entry = attempt.entry
        entry.pod = PodRef(pod.metadata.namespace, pod.metadata.name)
        attempt.response = pod
        self._on_adopted(entry, pod)
        self.done(attempt)
        return "settled"

    def _look_for(self, ref: PodRef, attempt: Attempt) -> None:
        try:
            found = self._read(ref)
        except Exception as error:
            raise LookUpFailedError(f"{ref.namespace}/{ref.name}: {error!r}") from error
        if found is not None and whose(found, attempt.request) == "own":
            raise AlreadyThereError(found)
        attempt.in_doubt.remove(ref)

    def _find(self, attempt: Attempt) -> Any | None:
        """Return the pod of the name that was asked for; None where there is none, or none can be read."""
        if attempt.request is None:
            return None
        metadata = attempt.request.metadata
        try:
            return self._read(PodRef(metadata.namespace, metadata.name))
        except Exception as error:
            log.info("Pod %s/%s cannot be read now: %s", metadata.namespace, metadata.name, describe(error))
            return None

    def _read(self, ref: PodRef) -> Any | None:
        """Return the pod, None where there is none; raises where that cannot be told.

        While a launch is repeated anyway (with a budget), a slow or silent server is not asked for each
        pod of a batch: the scheduler's loop, and its heartbeat, would wait for all of them in turn.
        """
        if self._budget > 0 and self._read_time <= 0:
            raise TimeoutError("the API server is slow, the pod is looked up in a later loop")
        started = self._queue.now()
        try:
            return reader.read_pod(self._read_api(), ref.name, ref.namespace)
        finally:
            self._read_time -= self._queue.now() - started

    def _delete(self, pod: Any) -> None:
        try:
            delete.delete_pod(
                self._read_api(),
                pod.metadata.name,
                pod.metadata.namespace,
                pods.uid(pod),
                _request_timeout=reader.TIMEOUT,
            )
        except Exception as error:
            log.info("Pod %s cannot be deleted now: %s", pods.describe(pod), describe(error))

    def _read_api(self) -> Any:
        if self._reader is None:
            self._reader = reader.impatient(self._launcher.kube_client)
        return self._reader

    def _forget_earlier_requeue(self, entry: Entry) -> None:
        """Under a forced name this pod is called like the last one, whose failure was answered already."""
        attempt = getattr(self._executor, "pod_launch_attempts", {}).get(entry.job.key)
        if attempt is not None and attempt.job is entry.job and attempt.requeued_for_pod is not None:
            attempt.requeued_for_pod = None

    def _leave_to_provider(self, entry: Entry, error: Exception) -> None:
        entry.pod_unknown = True
        self._broken(error)
