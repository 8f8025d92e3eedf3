# SPDX-License-Identifier: Apache-2.0
"""One check of a batch of launches: the rows, a verdict for each, and what it cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Protocol

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.snapshot import MAX_IDS, SnapshotError
from airflow_steadfast.launch_guard.verdict import Verdict, judge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_steadfast.launch_guard.launch import Launch
    from airflow_steadfast.launch_guard.rows import Row

BATCH = MAX_IDS


class RowSource(Protocol):
    """What answers a check: the metadata database, or a table in a test."""

    def read(self, keys: Sequence[Any]) -> dict[Any, Row]:
        """Return rows by row key; raises ``SnapshotError``."""


class CheckFailedError(Exception):
    """There is no verdict for the batch; ``reason`` is its value in the metrics."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class LaunchCheck:
    """Asks about batches for one scheduler, and counts checks, errors and durations."""

    def __init__(self, rows: RowSource, job_id: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._rows = rows
        self._job_id = job_id
        self._clock = clock

    @property
    def job_id(self) -> int:
        """The scheduler's job id, which a fresh launch's row names as its owner."""
        return self._job_id

    def ask(self, launches: Sequence[Launch]) -> list[Verdict]:
        """Return a verdict for each of at most ``BATCH`` launches; raises ``CheckFailedError`` only."""
        totals = signals.totals()
        started = self._clock()
        try:
            rows = self._rows.read(list({launch.row_key: None for launch in launches}))
            return [judge(launch, rows.get(launch.row_key), self._job_id) for launch in launches]
        except Exception as error:
            reason = error.reason if isinstance(error, SnapshotError) else "internal_error"
            totals.increment("steadfast_launch_check_errors_total", len(launches), reason=reason)
            raise CheckFailedError(reason, str(error)) from error
        finally:
            totals.increment("steadfast_launch_checks_total", len(launches))
            totals.observe("steadfast_launch_check_duration_seconds", self._clock() - started)
