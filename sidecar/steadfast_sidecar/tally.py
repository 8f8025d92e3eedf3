# SPDX-License-Identifier: Apache-2.0
"""The numbers as last read: every series of the catalogue, from 0 on, and the health of each source."""

from __future__ import annotations

import logging
import math
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_steadfast.signals.catalogue import METRICS, SOURCES
from airflow_steadfast.signals.handoff import HistogramTotals, SeriesKey, series_key
from steadfast_sidecar.sources.base import STALLED, Reading, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)

STARTING = Reason("starting", "not read yet")

UNANSWERED = frozenset({"database", "internal", "unreadable", "malformed", STALLED})
"""Codes (up to a colon) of sources that gave no answer: until the first one, their totals are unknown.

Not STARTING: nothing is served before the first read.
"""


@dataclass
class SourceState:
    """Health of one source: ``reason`` is None while it is up; times are Unix seconds."""

    reading: Reading = field(default_factory=Reading)
    reason: Reason | None = STARTING
    last_success: float = 0.0
    errors: int = 0
    known_since: float = math.inf
    """Monotonic seconds of the first good read."""

    def turn(self, reason: Reason | None) -> bool:
        """Take the outcome of a read; return whether the state changed."""
        before, self.reason = self.reason, reason
        return (before and before.code) != (reason and reason.code)

    @property
    def is_unknown(self) -> bool:
        """Whether zeros would be a guess: they would look like a reset, and be counted again after it."""
        code = self.reason.code.partition(":")[0] if self.reason else ""
        return self.known_since == math.inf and code in UNANSWERED


@dataclass(frozen=True)
class View:
    """One consistent picture, for one scrape."""

    values: dict[SeriesKey, float]
    histograms: dict[SeriesKey, HistogramTotals]
    process: dict[str, str | int]


class Tally:
    """Takes readings from the work loops, gives views to scrapes; thread-safe.

    A failed read changes only the source's health: the last good numbers stay, so no counter falls.
    """

    def __init__(self, sources: Iterable[str] = SOURCES) -> None:
        self._lock = threading.Lock()
        self._states = {name: SourceState() for name in sources}

    def accept(self, source: str, reading: Reading) -> None:
        """Take a good reading."""
        with self._lock:
            state = self._states[source]
            state.reading = reading
            state.known_since = min(state.known_since, time.monotonic())
            state.errors += reading.misunderstood
            if reading.degraded is None:
                state.last_success = time.time()
            changed = state.turn(reading.degraded)
        _report(source, reading.degraded, changed)

    def reject(self, source: str, reason: Reason) -> None:
        """Note that a read failed.

        Each failure is counted, a condition that lasts only when it begins, and one that a sound
        installation may have not at all: a counter that rises for ever would hide what breaks.
        """
        with self._lock:
            state = self._states[source]
            changed = state.turn(reason)
            state.errors += not reason.is_expected and (changed or not reason.is_lasting)
        _report(source, reason, changed)

    def was_read(self) -> bool:
        """Say whether every source has been tried at least once."""
        with self._lock:
            return all(state.reason is not STARTING for state in self._states.values())

    def known_since(self, source: str) -> float:
        """Return since when (monotonic seconds) a source's totals are in the views; infinity for never."""
        with self._lock:
            return self._states[source].known_since

    def health(self) -> dict[str, Reason | None]:
        """Return why each source is down; None for one that is up."""
        with self._lock:
            return {name: state.reason for name, state in self._states.items()}

    def view(self) -> View:
        """Return every series of the catalogue but ``steadfast_build_info``, summed over the sources.

        Series of a source whose totals are unknown are left out: unknown is not zero.
        """
        process: dict[str, str | int] = {}
        with self._lock:
            unknown = {name for name, state in self._states.items() if state.is_unknown}
            values, histograms = _zeros(unknown)
            for name, state in self._states.items():
                for key, value in state.reading.values.items():
                    values[key] = values.get(key, 0.0) + value
                histograms.update(state.reading.histograms)
                process.update(state.reading.process)
                label = {"source": name}
                values[series_key("steadfast_source_up", label)] = float(state.reason is None)
                values[series_key("steadfast_source_last_success_timestamp_seconds", label)] = (
                    state.last_success
                )
                values[series_key("steadfast_collector_errors_total", label)] = float(state.errors)
                values[series_key("steadfast_outbox_pending", {})] += state.reading.pending
                values[series_key("steadfast_handoff_mtime_seconds", {})] += state.reading.mtime
        return View(values, histograms, process)


def _report(source: str, reason: Reason | None, changed: bool) -> None:
    """Log a change of state; outside the lock, since a log that nobody reads must not stop a scrape."""
    if not changed:
        return
    if reason is None:
        log.info("source %s is up", source)
    else:
        log.warning("source %s is down (%s): %s", source, reason.code, reason.text)


def _zeros(unknown: set[str]) -> tuple[dict[SeriesKey, float], dict[SeriesKey, HistogramTotals]]:
    values: dict[SeriesKey, float] = {}
    histograms: dict[SeriesKey, HistogramTotals] = {}
    for metric in METRICS:
        if metric.source in unknown or any(not allowed for allowed in metric.labels.values()):
            continue
        for labels in metric.series():
            key = series_key(metric.name, labels)
            if metric.kind == "histogram":
                histograms[key] = HistogramTotals(metric.buckets, [0.0] * len(metric.buckets))
            else:
                values[key] = 0.0
    return values, histograms
