# SPDX-License-Identifier: Apache-2.0
"""What a try has to report, as outbox rows in the task state store.

Never changes the outcome of the task: nothing here raises. What the store does not take is kept and
sent again at the end of the try; a process killed before that loses it, which is why the numbers are
lower bounds while the store is down.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_steadfast.durable_pod.store import StoreError
from airflow_steadfast.signals import outbox

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.store import Store
    from airflow_steadfast.signals.outbox import EventKind

log = logging.getLogger("airflow_steadfast.durable_pod")


class Events:
    """The events of one try. Adding one twice is one event, within a try and across its processes."""

    def __init__(self, store: Store, try_number: int) -> None:
        self._store = store
        self._try_number = try_number
        self._written: set[str] = set()
        self._pending: dict[str, None] = {}

    def add(self, kind: EventKind, reason: str | None = None) -> None:
        """Report one event now if the store answers, else at the end of the try. Never raises."""
        try:
            key = outbox.event_key(kind, self._try_number, reason)
            if key in self._written:
                return
            self._pending[key] = None
            self._send(key)
        except Exception:
            log.debug("an event could not be reported: %s %s", kind, reason, exc_info=True)

    def flush(self) -> None:
        """Send what is still unsent, one attempt for all. Idempotent, never raises."""
        try:
            if not self._pending:
                return
            self._store.resume()
            for key in tuple(self._pending):
                if not self._send(key):
                    break
            if self._pending:
                log.warning(
                    "these events were not counted, the store took none: %s", ", ".join(self._pending)
                )
        except Exception:
            log.debug("pending events could not be sent", exc_info=True)

    def _send(self, key: str) -> bool:
        try:
            self._store.set(key, dict(outbox.VALUE), retention=outbox.RETENTION)
        except StoreError as error:
            log.info("event %s waits for the task state store: %s", key, error)
            return False
        self._written.add(key)
        self._pending.pop(key, None)
        return True
