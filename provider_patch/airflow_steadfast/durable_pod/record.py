# SPDX-License-Identifier: Apache-2.0
"""The stored identity of a task's pod: read once, written before and after the create.

Of the store's answers only two stop the task, both before a pod exists: the task instance is gone
(another has taken its place, so this worker must not launch anything), and the store is forbidden
(a deployment error that no retry cures). Everything else is counted and the task goes on, with the
pod's annotation as the second copy.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow.exceptions import AirflowException

from airflow_steadfast.durable_pod import identity as schema
from airflow_steadfast.durable_pod.store import (
    StoreError,
    StoreForbiddenError,
    StoreUnavailableError,
    TaskInstanceGoneError,
)

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.events import Events
    from airflow_steadfast.durable_pod.identity import Identity
    from airflow_steadfast.durable_pod.store import Store

log = logging.getLogger("airflow_steadfast.durable_pod")


class SupersededError(AirflowException):
    """This worker's task instance no longer exists on the server: it must not launch or follow a pod."""


class RecordForbiddenError(AirflowException):
    """This worker may not write the task state store, so a durable pod cannot be promised."""


@dataclass(frozen=True)
class Reading:
    """What the store said: an identity, or why there is none (a fallback reason of the catalogue)."""

    identity: Identity | None
    problem: str | None = None


class Record:
    """The one stored identity of a task instance."""

    def __init__(self, store: Store, events: Events) -> None:
        self._store = store
        self._events = events

    def read(self) -> Reading:
        """Return what is stored. Never raises.

        ``problem`` is "no_record", "malformed" or "store_unavailable" where there is no identity.
        """
        try:
            value = self._store.get(schema.STATE_KEY)
        except StoreError as error:
            log.warning("the stored pod identity could not be read: %s", error)
            self._events.add("record_error")
            return Reading(None, "store_unavailable")
        if value is None:
            return Reading(None, "no_record")
        try:
            return Reading(schema.parse(value))
        except schema.MalformedIdentityError as error:
            log.warning("the stored pod identity is malformed: %s", error)
            return Reading(None, "malformed")

    def write_intent(self, identity: Identity) -> bool:
        """Store the claim on a name, before anything is created; return whether the store took it.

        Raises SupersededError where the task instance is gone, RecordForbiddenError for a 403.
        """
        try:
            return self._write(identity)
        except StoreForbiddenError as error:
            raise RecordForbiddenError(
                "this worker's token may not write the task state store (403), so its pod could not be found "
                "again. Check the Execution API's authentication, or set durable=False on this task"
            ) from error

    def write_known(self, identity: Identity) -> bool:
        """Store the identity of a pod that exists; return whether the store took it.

        Raises SupersededError where the task instance is gone: the pod stays for the task instance
        that took its place, which knows it by the intent or by its labels.
        """
        try:
            return self._write(identity)
        except StoreForbiddenError as error:
            log.warning("the pod identity may not be stored, its annotation is the only copy: %s", error)
            return False

    def _write(self, identity: Identity) -> bool:
        try:
            self._store.set(schema.STATE_KEY, identity.to_value())
        except TaskInstanceGoneError as error:
            raise SupersededError(
                "the server no longer knows this task instance: it was cleared, or another worker has taken "
                f"its place. This worker stops here and leaves {identity.namespace}/{identity.name} alone"
            ) from error
        except StoreForbiddenError:
            self._events.add("record_error")
            raise
        except StoreUnavailableError as error:
            log.warning("the pod identity could not be stored, its annotation is the only copy: %s", error)
            self._events.add("record_error")
            return False
        return True

    def mark_finished(self, identity: Identity) -> None:
        """Store that no later try attaches to this pod. Never raises; a failure is counted."""
        try:
            self._store.set(schema.STATE_KEY, identity.as_finished().to_value())
        except StoreError as error:
            log.info("the pod identity could not be marked as finished: %s", error)
            self._events.add("record_error")
