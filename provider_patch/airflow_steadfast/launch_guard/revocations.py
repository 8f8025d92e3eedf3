# SPDX-License-Identifier: Apache-2.0
"""What the scheduler revoked while the API server failed: its pods are deleted when it answers again.

The stock executor lists its pods, finds the task instance's, and deletes it; an error of the server ends
the scheduler. Here the scheduler goes on and queues the task instance again. The pods that must not start
any more are looked for now and then: all that were there when the task instance was revoked, carry its
annotations, are still pending, and belong to no launch that is still wanted.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_steadfast import signals
from airflow_steadfast.kube import pods, reader
from airflow_steadfast.launch_guard.answers import describe, is_servers
from airflow_steadfast.launch_guard.launch import PodRef
from airflow_steadfast.launch_guard.stale import FEW, SLOW

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_steadfast.launch_guard.stale import Revokes

log = logging.getLogger("airflow_steadfast.launch_guard")

PAUSE = 10.0
"""Seconds between two looks at the server's pods."""

PATIENCE = 600.0
"""Seconds for which a task instance's pods are looked for."""

MOST = 1_000
"""Task instances that are remembered."""

_SECOND = timedelta(seconds=1)  # the server's clock in metadata and in the Date header has whole seconds


class _Who(NamedTuple):
    """A task instance as a worker pod's annotations name it."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: str

    @classmethod
    def of_ti(cls, ti: Any) -> _Who:
        return cls(*(str(getattr(ti, name)) for name in cls._fields))

    @classmethod
    def of_pod(cls, metadata: dict[str, Any]) -> _Who:
        found = metadata.get("annotations") or {}
        return cls(*(str(found.get(name, "-1" if name == "map_index" else "")) for name in cls._fields))


class Revocations:
    """For one executor. ``wanted`` says whether a pod is a live launch's; it may not raise."""

    def __init__(
        self, executor: Any, revoker: Revokes, wanted: Callable[[PodRef], bool], clock: Callable[[], float]
    ) -> None:
        self._executor = executor
        self._revoker = revoker
        self._wanted = wanted
        self._clock = clock
        self._open: dict[_Who, float] = {}
        self._next_look = 0.0
        self._silent = False

    @property
    def silent(self) -> bool:
        """Whether the server is not to be asked again in this loop: it took long to give no answer."""
        return self._silent

    def begin_loop(self) -> None:
        """Start a scheduler loop; the server may be asked again."""
        self._silent = False

    def note_failure(self, took: float) -> None:
        """Note that the server did not carry out a request, after ``took`` seconds."""
        self._silent = self._silent or took >= SLOW

    def refused(self, ti: Any, error: Exception, took: float) -> None:
        """Note that a task instance's pods could not be deleted, after ``took`` seconds.

        Raises ``error`` where it is not the server's.
        """
        if not is_servers(error):
            raise error
        self.note_failure(took)
        log.warning(
            "The pods of %s cannot be revoked now, they are looked for later: %s", ti, describe(error)
        )
        self.postpone(ti)

    def postpone(self, ti: Any) -> None:
        """Look for the pods of a revoked task instance later."""
        if len(self._open) < MOST:
            self._open[_Who.of_ti(ti)] = self._clock()

    def settled(self, ti: Any) -> None:
        """Forget a task instance: a pod of it has been adopted since."""
        self._open.pop(_Who.of_ti(ti), None)

    def end_loop(self) -> None:
        """Look for the pods again, if it is time. Raises nothing of the server's."""
        now = self._clock()
        if not self._open or now < self._next_look or self._silent:
            return
        self._next_look = now + PAUSE
        try:
            self._look()
        except Exception as error:
            if not is_servers(error):
                raise
            log.info("The pods of revoked task instances cannot be listed now: %s", describe(error))
        for who in [who for who, since in self._open.items() if now - since >= PATIENCE]:
            del self._open[who]
            log.warning("The API server gave no answer about the pods of a revoked task instance: %s", who)

    def _look(self) -> None:
        """Revoke what is there; a server that fails meanwhile is asked for the rest at the next look."""
        found, failures = self._pods_by_owner(), 0
        for who in list(self._open):
            started = self._clock()
            if all(self._is_dealt_with(ref, launch) for ref, launch in found.get(who, ())):
                del self._open[who]
                continue
            self._open[who] = self._open.pop(who)  # behind the others, which may fare better
            failures += 1
            if failures == FEW or self._clock() - started >= SLOW:
                return

    def _is_dealt_with(self, ref: PodRef, launch: str | None) -> bool:
        if self._wanted(ref):
            return True
        outcome = self._revoker.revoke(ref, launch)
        if outcome == "revoked":
            log.info("Pod %s/%s of a revoked task instance is deleted", *ref)
            signals.totals().increment("steadfast_pods_revoked_total")
        return outcome != "failed"

    def _pods_by_owner(self) -> dict[_Who, list[tuple[PodRef, str | None]]]:
        """Return the pods that were there when their task instance was revoked, with their launch."""
        executor = self._executor
        config = executor.kube_config
        namespaces: list[str | None] = [config.kube_namespace]
        if config.multi_namespace_mode:
            namespaces = list(config.multi_namespace_mode_namespace_list or [None])
        safe = executor._make_safe_label_value  # noqa: SLF001 - what the stock executor labels its pods with
        selector = f"airflow-worker={safe(str(executor.job_id))}"
        found: dict[_Who, list[tuple[PodRef, str | None]]] = {}
        for namespace in namespaces:
            listing = reader.list_metadata(executor.kube_client, namespace, selector)
            for metadata in listing.metadata:
                who = _Who.of_pod(metadata)
                since = self._open.get(who)
                if since is not None and self._is_older(metadata, listing.at, since):
                    launch = (metadata.get("annotations") or {}).get(pods.LAUNCH_ANNOTATION)
                    ref = PodRef(metadata["namespace"], metadata["name"])
                    found.setdefault(who, []).append((ref, launch))
        return found

    def _is_older(self, metadata: dict[str, Any], server_now: datetime, since: float) -> bool:
        """Whether a pod was created before its task instance was revoked, by the server's own clock."""
        created = datetime.fromisoformat(metadata["creationTimestamp"].replace("Z", "+00:00"))
        return created + _SECOND <= server_now - timedelta(seconds=self._clock() - since)
