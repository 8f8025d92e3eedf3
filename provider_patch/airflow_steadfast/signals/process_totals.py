# SPDX-License-Identifier: Apache-2.0
"""The totals of this process, and their way into the hand-off file.

Totals may be changed from any thread, also from a signal handler. Nothing here raises: a number that
cannot be kept is dropped, with one log line, and the caller goes on.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from airflow_steadfast.signals import handoff
from airflow_steadfast.signals.catalogue import BY_NAME
from airflow_steadfast.signals.handoff import HistogramTotals, SeriesKey, Snapshot, series_key
from airflow_steadfast.signals.process_info import describe_process

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_steadfast.signals.catalogue import Kind, Metric

log = logging.getLogger("airflow_steadfast.signals")

HEARTBEAT_SECONDS = 15.0
"""An unchanged file is rewritten this often, so that the sidecar can tell an idle writer from a dead one."""

WRITE_ERRORS = "steadfast_handoff_write_errors_total"


class Totals:
    """Grow-only counters, gauges and histograms of the catalogue; every series starts at 0.

    No method raises. Until ``configure`` has named a folder, and in a forked child, ``flush`` does
    nothing: two writers of one file would lose counts.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._flush_lock = threading.RLock()
        self._counters: dict[SeriesKey, float] = {}
        self._gauges: dict[SeriesKey, float] = {}
        self._histograms: dict[SeriesKey, HistogramTotals] = {}
        self._complaints: set[str] = set()
        self._path: Path | None = None
        self._owner = 0
        self._process: dict[str, str | int] = {}
        self._continued = False
        self._failing = False
        self._changes = 0
        self._written_changes = 0
        self._writing = False
        self._last_write = -math.inf
        for metric in BY_NAME.values():
            self._start_at_zero(metric)
        _instances.add(self)

    def increment(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter; a negative or unknown one is ignored and logged once."""
        try:
            key = self._key(name, "counter", labels)
            if key is None or not self._is_number(name, amount) or amount < 0:
                return
            with self._lock:
                self._counters[key] = self._counters.get(key, 0.0) + amount
                self._changes += 1
        except Exception:
            self._complain(f"{name} could not be counted", exc_info=True)

    def set_gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        try:
            key = self._key(name, "gauge", labels)
            if key is None or not self._is_number(name, value):
                return
            with self._lock:
                if self._gauges.get(key) != value:
                    self._gauges[key] = float(value)
                    self._changes += 1
        except Exception:
            self._complain(f"{name} could not be set", exc_info=True)

    def observe(self, name: str, seconds: float) -> None:
        """Add one duration to a histogram."""
        try:
            key = self._key(name, "histogram", {})
            if key is None or not self._is_number(name, seconds):
                return
            with self._lock:
                self._histograms[key].observe(seconds)
                self._changes += 1
        except Exception:
            self._complain(f"{name} could not be observed", exc_info=True)

    def value(self, name: str, **labels: str) -> float:
        """Return a counter's or gauge's value, or a histogram's count; 0 for one that does not exist."""
        try:
            key = series_key(name, BY_NAME[name].normalise(labels)[0])
            with self._lock:
                if key in self._histograms:
                    return self._histograms[key].count
                return self._counters.get(key, self._gauges.get(key, 0.0))
        except Exception:
            return 0.0

    def configure(self, directory: str | os.PathLike[str], component: str = "scheduler") -> None:
        """Name the hand-off folder, continue the totals of the file in it, and write it.

        Idempotent for one folder. For the scheduler's process alone. A folder that is missing or
        unreadable is tried again at each ``flush``; until then the totals stay in memory.
        """
        try:
            path = handoff.path_of(directory, component)
            if path == self._path and self._owner == os.getpid():
                return
            self._process = describe_process()
            self._path, self._owner, self._continued = path, os.getpid(), False
        except Exception:
            self._complain("the hand-off file could not be set up", exc_info=True)
            return
        self.flush(force=True)

    def flush(self, force: bool = False) -> None:
        """Write the file if a total changed, if the last write is 15 s old, or if ``force`` is set.

        A failed write is logged once per outage and counted; the next call tries again.
        """
        path = self._path
        if path is None or self._owner != os.getpid():
            return
        changed = self._changes != self._written_changes
        if not (force or changed or time.monotonic() - self._last_write >= HEARTBEAT_SECONDS):
            return
        with self._flush_lock:
            if self._writing:
                return  # a signal handler inside the write of its own thread: it would write the same file
            self._writing = True
            try:
                self._continue_from(path)
                self._write(path)
            except Exception as error:
                self._note_failure(path, error)
            finally:
                self._writing = False

    def _write(self, path: Path) -> None:
        snapshot, changes = self._snapshot()
        handoff.write(path, snapshot)
        self._last_write, self._written_changes = time.monotonic(), changes
        if self._failing:
            self._failing = False
            log.info("Steadfast: hand-off file %s is written again", path)

    def _snapshot(self) -> tuple[Snapshot, int]:
        with self._lock:
            snapshot = Snapshot(
                written_at=time.time(),
                process=dict(self._process),
                counters=dict(self._counters),
                gauges=dict(self._gauges),
                histograms={key: totals.copy() for key, totals in self._histograms.items()},
            )
            return snapshot, self._changes

    def _continue_from(self, path: Path) -> None:
        """Add the counts of the file that a predecessor left, once; gauges describe their own process only.

        Before the first write, never after: a folder that comes back late must not make a total fall.
        """
        if self._continued:
            return
        try:
            previous = handoff.read(path)
        except FileNotFoundError:
            self._continued = path.parent.is_dir()
            return
        except handoff.HandoffError as error:
            aside = path.with_name(f"{path.name}.unreadable")
            log.warning(
                "Steadfast: totals start at 0: %s is not usable (%s), kept as %s", path, error, aside.name
            )
            path.replace(aside)
            self._continued = True
            return
        with self._lock:
            for key, value in previous.counters.items():
                if key in self._counters:
                    self._counters[key] += value
            for key, totals in previous.histograms.items():
                if key in self._histograms and not self._histograms[key].add(totals):
                    log.info("Steadfast: %s has new buckets and starts at 0", key[0])
            self._continued = True

    def _note_failure(self, path: Path, error: Exception) -> None:
        self.increment(WRITE_ERRORS)
        if not self._failing:
            self._failing = True
            log.warning(
                "Steadfast: hand-off file %s cannot be written (%s); totals stay in memory until it can. "
                "Fix: mount a writable folder at [steadfast] handoff_dir",
                path,
                error,
            )

    def _key(self, name: str, kind: Kind, labels: dict[str, str]) -> SeriesKey | None:
        metric = BY_NAME.get(name)
        if metric is None or metric.kind != kind or metric.source == "sidecar":
            self._complain(f"{name!r} is no {kind} of the catalogue and was ignored")
            return None
        fitted, misfits = metric.normalise(labels)
        if misfits:
            self._complain(f"{name}: labels {sorted(misfits)} of {labels!r} are not in the catalogue")
        return series_key(name, fitted)

    def _is_number(self, name: str, value: float) -> bool:
        if isinstance(value, (int, float)) and math.isfinite(value):
            return True
        self._complain(f"{name}: {value!r} is no finite number and was ignored")
        return False

    def _complain(self, message: str, *, exc_info: bool = False) -> None:
        if message not in self._complaints and len(self._complaints) < 100:  # noqa: PLR2004 - a bound on memory
            self._complaints.add(message)
            log.warning("Steadfast: %s", message, exc_info=exc_info)

    def _start_at_zero(self, metric: Metric) -> None:
        if metric.source == "sidecar":
            return
        for labels in metric.series():
            key = series_key(metric.name, labels)
            if metric.kind == "counter":
                self._counters[key] = 0.0
            elif metric.kind == "gauge":
                self._gauges[key] = 0.0
            else:
                self._histograms[key] = HistogramTotals(metric.buckets, [0.0] * len(metric.buckets))

    def after_fork_in_child(self) -> None:
        """Replace locks that another thread of the parent may have held at the fork."""
        self._lock = threading.RLock()
        self._flush_lock = threading.RLock()
        self._writing = False


_instances: weakref.WeakSet[Totals] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for instance in _instances:
        instance.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
