# SPDX-License-Identifier: Apache-2.0
"""What happens when this package itself goes wrong: one log line per place, one count, native behaviour."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

_SEEN: set[str] = set()


def note(place: str, error: Exception, session: Session | None) -> None:
    """Log an error once per ``place`` and process, and count it. Never raises."""
    if place not in _SEEN:
        _SEEN.add(place)
        log.error(
            "durable pod: %s failed, the provider's own behaviour is used instead", place, exc_info=error
        )
    if session is not None:
        session.events.add("record_error")
