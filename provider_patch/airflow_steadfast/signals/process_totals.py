# SPDX-License-Identifier: Apache-2.0
"""The totals of this process, and their way into the hand-off file.

Totals may be changed from any thread, also from a signal handler. Nothing here raises: a number that
cannot be kept is dropped, with one log line, and the caller goes on.
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING

from airflow_steadfast.signals import handoff, handoff_turn
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


PATIENCE_SECONDS = 0.003
"""How long a loop of the scheduler waits while another process writes, which takes a tenth of that."""
LAST_PATIENCE_SECONDS = 0.5
"""The same where it is asked for a write, at the start and the end."""
BUSY_SECONDS = 2.0
"""From then on a file that another process does not let go is a failure, counted and logged."""


class Totals:
    """Grow-only counters, gauges and histograms of the catalogue; every series starts at 0.

    No method raises. Until ``configure`` has named a folder, and in a forked child that has not called it,
    ``flush`` does nothing. Processes that were given one folder count into one file: each adds what it
    counted since its last write, so their sum is there.
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
        self._known = Snapshot()
        self._turn: int | None = None
        self._busy_since: float | None = None
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
            self._path, self._owner, self._turn = path, os.getpid(), None
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
                self._write(path, LAST_PATIENCE_SECONDS if force else PATIENCE_SECONDS)
            except handoff_turn.BusyError as error:
                self._note_busy(path, error)
            except Exception as error:
                self._note_failure(path, error)
            finally:
                self._writing = False

    def _write(self, path: Path, patience: float) -> None:
        if self._turn is None:
            # also where nothing can be written: who asks this process for its totals sees them continued
            with contextlib.suppress(handoff.HandoffError):
                self._catch_up(path)
        with handoff_turn.turn(path, patience) as turn:
            if turn.number != self._turn:
                self._catch_up_or_begin_anew(path)
            snapshot, changes = self._snapshot()
            number = turn.announce()
            try:
                handoff.write(path, snapshot)
                self._turn, self._known = number, snapshot
            except BaseException:
                # The exception may be a signal's and have come after the file was there.
                if self._is_there(path, snapshot):
                    self._known = snapshot
                raise
        self._busy_since = None
        self._last_write, self._written_changes = time.monotonic(), changes
        if self._failing:
            self._failing = False
            log.info("Steadfast: hand-off file %s is written again", path)

    @staticmethod
    def _is_there(path: Path, snapshot: Snapshot) -> bool:
        with contextlib.suppress(Exception):
            found = handoff.read(path)
            return (found.written_at, found.process) == (snapshot.written_at, snapshot.process)
        return False

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

    def _catch_up_or_begin_anew(self, path: Path) -> None:
        try:
            self._catch_up(path)
        except handoff.HandoffError as error:
            aside = path.with_name(f"{path.name}.unreadable")
            log.warning(
                "Steadfast: totals start at 0: %s is not usable (%s), kept as %s", path, error, aside.name
            )
            path.replace(aside)

    def _catch_up(self, path: Path) -> None:
        """Add what the file has beyond what is known of it: a predecessor's counts, or another process's.

        Idempotent. Gauges describe their own process only. A file that has less, as in a folder that comes
        back late, takes nothing away. Raises HandoffError, OSError.
        """
        try:
            found = handoff.read(path)
        except FileNotFoundError:
            return
        with self._lock:
            known = self._known
            for key in self._counters.keys() & found.counters.keys():
                ahead = found.counters[key] - known.counters.get(key, 0.0)
                if ahead > 0:
                    self._counters[key] += ahead
                    known.counters[key] = found.counters[key]
            for key in self._histograms.keys() & found.histograms.keys():
                mine, theirs = self._histograms[key], found.histograms[key]
                if mine.bounds != theirs.bounds:
                    self._complain(f"{key[0]} has new buckets and starts at 0")
                    continue
                ahead_by = theirs.beyond(known.histograms.setdefault(key, _nothing(mine)))
                mine.add(ahead_by)
                known.histograms[key].add(ahead_by)

    def _note_busy(self, path: Path, error: Exception) -> None:
        """Let the next call try again; a process that keeps its turn is a failure."""
        now = time.monotonic()
        self._busy_since = now if self._busy_since is None else self._busy_since
        if now - self._busy_since >= BUSY_SECONDS:
            self._note_failure(path, error)

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
        """Replace locks that another thread of the parent may have held at the fork.

        Counts that the parent will still write are the parent's, and not the child's too.
        """
        if self._owner:
            known = self._known
            self._counters = {key: known.counters.get(key, 0.0) for key in self._counters}
            self._histograms = {
                key: (known.histograms.get(key) or _nothing(totals)).copy()
                for key, totals in self._histograms.items()
            }
        self._lock = threading.RLock()
        self._flush_lock = threading.RLock()
        self._writing = False


def _nothing(like: HistogramTotals) -> HistogramTotals:
    return HistogramTotals(like.bounds, [0.0] * len(like.bounds))


_instances: weakref.WeakSet[Totals] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for instance in _instances:
        instance.after_fork_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
