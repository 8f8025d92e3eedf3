# SPDX-License-Identifier: Apache-2.0
"""The hand-off file: the scheduler's totals, as a state that the sidecar reads.

A file of grow-only totals can be read twice or not at all without a wrong count, survives SIGKILL of
either side, and can be read with ``cat``. JSON, version 1:

    {"version": 1, "written_at": <unix seconds>,
     "process": {"pid", "airflow", "provider", "python", "steadfast"},
     "counters": [{"name", "labels", "value"}], "gauges": [the same],
     "histograms": [{"name", "labels", "buckets": [[upper bound, cumulative count], ...], "sum", "count"}]}
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1
MAX_BYTES = 1 << 20
"""A file of this catalogue has some 10 KiB; anything far beyond is not ours and is not read."""

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]
"""A metric's name and its sorted labels."""


class HandoffError(Exception):
    """The file is not a hand-off file of this version; the message says what is wrong."""


@dataclass
class HistogramTotals:
    """Cumulative counts by upper bound (seconds, without ``+Inf``), their sum and count."""

    bounds: tuple[float, ...]
    counts: list[float]
    sum: float = 0.0
    count: float = 0.0

    def observe(self, seconds: float) -> None:
        """Add one observation."""
        for index, bound in enumerate(self.bounds):
            if seconds <= bound:
                self.counts[index] += 1
        self.sum += seconds
        self.count += 1

    def add(self, other: HistogramTotals) -> bool:
        """Add another histogram's totals; False, and nothing added, where the bounds differ."""
        if self.bounds != other.bounds:
            return False
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum
        self.count += other.count
        return True

    def beyond(self, other: HistogramTotals) -> HistogramTotals:
        """Return by how much this one is ahead of another with the same bounds; nowhere below 0."""
        return HistogramTotals(
            self.bounds,
            [max(mine - theirs, 0.0) for mine, theirs in zip(self.counts, other.counts, strict=True)],
            max(self.sum - other.sum, 0.0),
            max(self.count - other.count, 0.0),
        )

    def copy(self) -> HistogramTotals:
        """Return an independent copy."""
        return HistogramTotals(self.bounds, list(self.counts), self.sum, self.count)


@dataclass
class Snapshot:
    """The content of one hand-off file."""

    written_at: float = 0.0
    process: dict[str, str | int] = field(default_factory=dict)
    counters: dict[SeriesKey, float] = field(default_factory=dict)
    gauges: dict[SeriesKey, float] = field(default_factory=dict)
    histograms: dict[SeriesKey, HistogramTotals] = field(default_factory=dict)


def series_key(name: str, labels: Mapping[str, str]) -> SeriesKey:
    """Return the key of one series."""
    return name, tuple(sorted(labels.items()))


def path_of(directory: str | os.PathLike[str], component: str = "scheduler") -> Path:
    """Return the path of a component's file."""
    return Path(directory) / f"{component}.json"


def encode(snapshot: Snapshot) -> bytes:
    """Return the file's bytes; the order of entries is fixed, so equal snapshots give equal bytes."""
    document = {
        "version": VERSION,
        "written_at": snapshot.written_at,
        "process": snapshot.process,
        "counters": _entries(snapshot.counters),
        "gauges": _entries(snapshot.gauges),
        "histograms": [
            {
                "name": name,
                "labels": dict(labels),
                "buckets": [list(pair) for pair in zip(totals.bounds, totals.counts, strict=True)],
                "sum": totals.sum,
                "count": totals.count,
            }
            for (name, labels), totals in sorted(snapshot.histograms.items(), key=lambda item: item[0])
        ],
    }
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def decode(data: bytes) -> Snapshot:
    """Return the snapshot; raises HandoffError for anything but a file of version 1."""
    try:
        document = json.loads(data)
    except ValueError as error:
        raise HandoffError(f"not JSON: {error}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        found = document.get("version") if isinstance(document, dict) else type(document).__name__
        raise HandoffError(f"format version {found!r}, this reader knows {VERSION}")
    try:
        return Snapshot(
            written_at=_number(document["written_at"]),
            process=dict(document["process"]),
            counters=_series(document["counters"]),
            gauges=_series(document["gauges"]),
            histograms={_key(entry): _histogram(entry) for entry in document["histograms"]},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HandoffError(f"malformed entry: {type(error).__name__}: {error}") from error


def read(path: Path) -> Snapshot:
    """Read one file; raises OSError where it cannot be read, HandoffError where it is not ours."""
    with path.open("rb") as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise HandoffError(f"larger than {MAX_BYTES} bytes")
    return decode(data)


def write(path: Path, snapshot: Snapshot) -> None:
    """Replace the file in one step (mode 0644); raises OSError, and then the old file is untouched.

    No fsync: the file outlives any process, and with the node its emptyDir goes as well.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        with open(descriptor, "wb", closefd=True) as stream:  # noqa: PTH123 - a descriptor, not a path
            # Airflow runs under umask 0077 in places; the sidecar may have another uid.
            os.fchmod(descriptor, 0o644)
            stream.write(encode(snapshot))
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def _entries(values: Mapping[SeriesKey, float]) -> list[dict[str, object]]:
    return [
        {"name": name, "labels": dict(labels), "value": value}
        for (name, labels), value in sorted(values.items())
    ]


def _series(entries: list[dict[str, Any]]) -> dict[SeriesKey, float]:
    return {_key(entry): _number(entry["value"]) for entry in entries}


def _key(entry: dict[str, Any]) -> SeriesKey:
    name = entry["name"]
    if not isinstance(name, str):
        raise TypeError(f"name {name!r} is no text")
    return series_key(name, {str(label): str(value) for label, value in entry["labels"].items()})


def _histogram(entry: dict[str, Any]) -> HistogramTotals:
    pairs = [(_number(bound), _number(count)) for bound, count in entry["buckets"]]
    return HistogramTotals(
        bounds=tuple(bound for bound, _ in pairs),
        counts=[count for _, count in pairs],
        sum=_number(entry["sum"]),
        count=_number(entry["count"]),
    )


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no finite number")
    return float(value)
