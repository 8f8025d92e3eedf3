# SPDX-License-Identifier: Apache-2.0
"""The end of a sidecar: /metrics is served until the scrape that takes the last counts."""

from __future__ import annotations

import signal
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from steadfast_sidecar.poller import Poller

_TICK = 0.1
"""Seconds between two looks; an end need not be quicker."""
_ON_ITS_WAY = 1.0
"""Seconds in which a first scrape that is being answered when the end comes may still be noted."""


class Linger:
    """Remembers scrapes while the sidecar runs, and waits for the last one at its end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = 0.0
        self._given = 0.0

    @property
    def given(self) -> float:
        """When the numbers were taken that anybody was given last, all of them or some; 0 for never."""
        return self._given

    def scraped(self, taken: float, whole: bool) -> None:
        """Note an answered scrape, of everything or not, whose numbers were taken at a time (monotonic)."""
        with self._lock:
            self._given = max(self._given, taken)
            if whole:
                self._taken = max(self._taken, taken)

    def wait(self, pollers: Sequence[Poller], signals: Iterable[signal.Signals], most: float) -> str:
        """Wait for every source to be read once more and for a scrape after that; say what ended it.

        Ends after ``most`` seconds, at one of the (blocked) signals, and soon where nobody has ever
        scraped: no increase can be seen in a series with one sample.
        """
        begun = time.monotonic()
        while not self._last():
            if time.monotonic() - begun >= min(most, _ON_ITS_WAY):
                return "nobody scrapes"
            if signal.sigtimedwait(signals, _TICK) is not None:
                return "told a second time"
        for poller in pollers:
            poller.hurry()
        complete: float | None = None
        while time.monotonic() - begun < most:
            if complete is None and all(poller.has_read_since(begun) for poller in pollers):
                complete = time.monotonic()
            if complete is not None and self._last() >= complete:
                return "the last counts were scraped"
            if signal.sigtimedwait(signals, _TICK) is not None:
                return "told a second time"
        return f"no scrape within {most:g} s"

    def _last(self) -> float:
        with self._lock:
            return self._taken
