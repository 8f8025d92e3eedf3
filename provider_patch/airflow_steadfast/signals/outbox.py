# SPDX-License-Identifier: Apache-2.0
"""Events of a worker, as keys of rows in Airflow's task state store.

A worker has no database and may die at any time, so an event *is* a row: once the store has answered
it cannot be lost, and writing it again changes nothing, because the store keeps one row per
(dag run, task, map index, key). The whole event is in the key, since a custom state backend of the
workers replaces values by references. The value is constant.

    steadfast.event.v1.<try number>.<kind>[.<reason>]
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from airflow_steadfast.signals.catalogue import FALLBACK_REASONS, OTHER

if TYPE_CHECKING:
    from collections.abc import Mapping

EventKind = Literal[
    "attempt", "identity_hit", "label_fallback", "harvested", "record_error", "settings_error"
]

KEY_PREFIX = "steadfast.event.v1."
"""How every key of this version starts, and what the sidecar selects by; a later version is left alone."""

VALUE: Mapping[str, int] = {"v": 1}
RETENTION = timedelta(days=7)
"""How long the store keeps an event: the longest outage of all sidecars that loses no count."""

METRIC_BY_KIND: Mapping[str, str] = {
    "attempt": "steadfast_reattach_attempts_total",
    "identity_hit": "steadfast_reattach_identity_hits_total",
    "label_fallback": "steadfast_reattach_label_fallbacks_total",
    "harvested": "steadfast_pods_harvested_total",
    "record_error": "steadfast_record_errors_total",
    "settings_error": "steadfast_settings_errors_total",
}

_REASONS: Mapping[str, tuple[str, ...]] = {"label_fallback": FALLBACK_REASONS}
_WITH_REASON = 3


@dataclass(frozen=True)
class Event:
    """One parsed outbox key; ``reason`` is None for kinds without one."""

    kind: str
    try_number: int
    reason: str | None = None

    @property
    def metric(self) -> str:
        """The counter that this event adds one to."""
        return METRIC_BY_KIND[self.kind]

    @property
    def labels(self) -> dict[str, str]:
        """The counter's labels."""
        return {} if self.reason is None else {"reason": self.reason}


def event_key(kind: EventKind, try_number: int, reason: str | None = None) -> str:
    """Return the row's key; the same arguments always give the same key, so a re-sent event is one event.

    ``reason`` belongs to the kind "label_fallback" alone and is left out for the others; one outside
    the catalogue becomes "other". Raises ValueError for an unknown kind or a negative try.
    """
    if kind not in METRIC_BY_KIND:
        raise ValueError(f"unknown event kind {kind!r}; known: {', '.join(METRIC_BY_KIND)}")
    if isinstance(try_number, bool) or not isinstance(try_number, int) or try_number < 0:
        raise ValueError(f"try_number must be a whole number from 0, not {try_number!r}")
    key = f"{KEY_PREFIX}{try_number}.{kind}"
    if kind in _REASONS:
        key += f".{reason if reason in _REASONS[kind] else OTHER}"
    return key


def parse_key(key: str) -> Event | None:
    """Return the event of a key, or None where it is not one of this version's. Never raises.

    A reason that this version does not know becomes "other": a newer worker's event is still counted.
    """
    if not isinstance(key, str) or not key.startswith(KEY_PREFIX):
        return None
    parts = key[len(KEY_PREFIX) :].split(".")
    number, kind = parts[0], parts[1] if len(parts) > 1 else ""
    if not (number.isascii() and number.isdigit()) or kind not in METRIC_BY_KIND:
        return None
    if kind not in _REASONS:
        return Event(kind, int(number)) if len(parts) < _WITH_REASON else None
    if len(parts) != _WITH_REASON:
        return None
    reason = parts[2] if parts[2] in _REASONS[kind] else OTHER
    return Event(kind, int(number), reason)
