# SPDX-License-Identifier: Apache-2.0
"""What every source gives: a reading, or a reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_steadfast.signals.handoff import HistogramTotals, SeriesKey


@dataclass(frozen=True)
class Reason:
    """Why a source is down or only partly trusted; ``code`` is stable, ``text`` says what to do."""

    code: str
    text: str


NOT_YET = "not_yet"
"""Code of a source that has never been there so far: down, but no error. A fresh start is one."""


class SourceError(Exception):
    """One read of a source failed; the last good reading stays in use."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.reason = Reason(code, text)


@dataclass
class Reading:
    """One good read: grow-only totals and gauges by series.

    ``degraded`` is set where the numbers are right but may be incomplete, which shows as
    ``steadfast_source_up 0``. ``misunderstood`` counts entries that were seen for the first time and
    not understood.
    """

    values: dict[SeriesKey, float] = field(default_factory=dict)
    histograms: dict[SeriesKey, HistogramTotals] = field(default_factory=dict)
    process: dict[str, str | int] = field(default_factory=dict)
    mtime: float = 0.0
    pending: int = 0
    degraded: Reason | None = None
    misunderstood: int = 0


class Source(Protocol):
    """Something to read on a timer."""

    @property
    def name(self) -> str:
        """Its value of the label ``source``."""
        ...

    def read(self) -> Reading:
        """Read once, in bounded time; raises SourceError."""
        ...
