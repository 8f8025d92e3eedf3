# SPDX-License-Identifier: Apache-2.0
"""The scheduler's hand-off file as a source."""

from __future__ import annotations

import logging
import stat
import time
from typing import TYPE_CHECKING

from airflow_steadfast.signals import handoff
from airflow_steadfast.signals.catalogue import BY_NAME
from airflow_steadfast.signals.handoff import SeriesKey, series_key
from steadfast_sidecar.sources.base import NOT_YET, Reading, Reason, SourceError

if TYPE_CHECKING:
    from pathlib import Path

log = logging.getLogger(__name__)


class HandoffSource:
    """Reads ``scheduler.json``; a file that nobody has written for ``max_age`` seconds is degraded."""

    name = "handoff"

    def __init__(self, directory: Path, max_age: float) -> None:
        self._path = handoff.path_of(directory)
        self._max_age = max_age
        self._unknown: set[str] = set()
        self._seen = False

    def read(self) -> Reading:
        """Return the file's totals; raises SourceError where there is no file, or none of ours."""
        try:
            status = self._path.stat()
            if not stat.S_ISREG(status.st_mode):
                # Opening a pipe would wait for a writer for ever.
                raise SourceError("unreadable", f"{self._path} is no regular file: remove it")
            snapshot = handoff.read(self._path)
        except FileNotFoundError as error:
            waiting = not self._seen and self._path.parent.is_dir()
            raise SourceError(NOT_YET if waiting else "missing", self._why_missing()) from error
        except OSError as error:
            raise SourceError("unreadable", f"{self._path} cannot be read: {error.strerror}") from error
        except handoff.HandoffError as error:
            raise SourceError("malformed", f"{self._path} is no hand-off file: {error}") from error
        self._seen = True
        reading = Reading(process=snapshot.process, mtime=status.st_mtime)
        for key, value in [*snapshot.counters.items(), *snapshot.gauges.items()]:
            known = self._known(key, reading)
            if known:
                reading.values[known] = reading.values.get(known, 0.0) + value
        for key, totals in snapshot.histograms.items():
            known = self._known(key, reading)
            if known and totals.bounds == BY_NAME[known[0]].buckets:
                reading.histograms[known] = totals
        age = time.time() - status.st_mtime
        if age > self._max_age:
            reading.degraded = Reason(
                "stale",
                f"{self._path} was last written {age:.0f} s ago: the scheduler is down or cannot write there",
            )
        return reading

    def try_out(self) -> Reading:
        """Read: it changes nothing; raises SourceError."""
        return self.read()

    def interrupt(self) -> None:
        """Do nothing: a read of a local file cannot be cut off."""

    def _why_missing(self) -> str:
        if self._path.parent.is_dir():
            return f"{self._path} is not there yet: the scheduler has not started, or runs without the patch"
        return (
            f"folder {self._path.parent} is missing: mount the volume that the scheduler writes to, "
            "or set --handoff-dir"
        )

    def _known(self, key: SeriesKey, reading: Reading) -> SeriesKey | None:
        """Fit a series into the catalogue; a newer writer's label value becomes "other"."""
        name, labels = key
        metric = BY_NAME.get(name)
        misfits: tuple[str, ...] = ()
        if metric is not None and metric.source != "sidecar":
            fitted, misfits = metric.normalise(dict(labels))
            key = series_key(name, fitted)
        if (metric is None or metric.source == "sidecar" or misfits) and str(
            (name, labels)
        ) not in self._unknown:
            self._unknown.add(str((name, labels)))
            reading.misunderstood += 1
            log.warning("handoff: %s%s is not in this version's catalogue", name, dict(labels))
        return None if metric is None or metric.source == "sidecar" else key
