# SPDX-License-Identifier: Apache-2.0
"""What every source gives: a reading, or a reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from airflow_steadfast.signals.handoff import HistogramTotals, SeriesKey


NOT_YET = "not_yet"
"""Code of a source that has never been there so far. A fresh start is one."""
NO_STATE_STORE = "no_state_store"
"""Code of an Airflow without a task state store: below 3.3, or not migrated yet."""
STALLED = "stalled"
"""Code of a read that does not come back."""

_EXPECTED = frozenset({NOT_YET, NO_STATE_STORE})
_LASTING = frozenset(
    {
        NO_STATE_STORE,
        "no_database",
        "bad_url",
        "no_driver",
        "unsupported_database",
        "no_tables",
        "state_store_changed",
        STALLED,
    }
)


@dataclass(frozen=True)
class Reason:
    """Why a source is down or only partly trusted; ``code`` is stable, ``text`` says what to do."""

    code: str
    text: str

    @property
    def is_expected(self) -> bool:
        """Whether the read found what a sound installation may have: the source is down, nothing failed."""
        return self.code in _EXPECTED

    @property
    def is_lasting(self) -> bool:
        """Whether it holds until somebody changes the installation: asking often finds the same."""
        return self.code in _LASTING


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

    def try_out(self) -> Reading:
        """Read as far as it leaves no count changed, in bounded time; raises SourceError."""
        ...

    def interrupt(self) -> None:
        """From another thread: make a read that hangs fail, where that can be done. Never raises."""
        ...
