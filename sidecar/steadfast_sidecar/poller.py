# SPDX-License-Identifier: Apache-2.0
"""The work loops: each source is read on a timer by a thread of its own, never by a scrape."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from steadfast_sidecar.sources.base import STALLED, Reason, SourceError

if TYPE_CHECKING:
    from steadfast_sidecar.sources.base import Source
    from steadfast_sidecar.tally import Tally

log = logging.getLogger(__name__)

STALLED_AFTER_SECONDS = 20.0
"""A read that takes longer is cut off: above connecting (2 s an address) and a few statements of 5 s."""
STUCK_AFTER_SECONDS = 60.0
"""A loop that is later than this with its next turn could not be cut off and needs a new process."""
LASTING_TURNS = 12
"""Intervals until a source is asked again whose condition lasts: each question is a new connection."""


class Poller:
    """Reads one source every ``interval`` seconds until stopped; no failure of the source ends the loop."""

    def __init__(self, source: Source, tally: Tally, interval: float) -> None:
        self._source = source
        self._tally = tally
        self._interval = interval
        self._stopping = False
        self._hurry = threading.Event()
        self._begun: float | None = None
        self._last_begun = 0.0
        self._due = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"read-{source.name}", daemon=True)

    def start(self) -> None:
        """Start the loop; its first read begins at once."""
        self._thread.start()

    def stop(self, wait: float) -> None:
        """Let the loop end after the read it is in; wait at most ``wait`` seconds for it."""
        self._stopping = True
        self._hurry.set()
        self._thread.join(wait)

    def hurry(self) -> None:
        """Begin the next read now, or right after the one under way."""
        self._hurry.set()

    def progresses(self) -> bool:
        """Say whether the loop is less than 60 s late with its next turn; True once it was asked to stop."""
        if self._stopping:
            return True
        return self._thread.is_alive() and time.monotonic() < self._due + STUCK_AFTER_SECONDS

    def has_read_since(self, moment: float) -> bool:
        """Say whether a read that began after ``moment`` (monotonic seconds) is over, well or badly."""
        return self._last_begun >= moment

    def watch(self) -> None:
        """From another thread: call a source down whose read does not come back, and cut the read off."""
        begun = self._begun
        if begun is None or time.monotonic() - begun < STALLED_AFTER_SECONDS:
            return
        text = f"a read has not come back for {STALLED_AFTER_SECONDS:g} s and is cut off"
        self._tally.reject(self._source.name, Reason(STALLED, text))
        self._source.interrupt()

    def poll(self) -> float:
        """Read once, pass on the outcome, and return the seconds until the next read. Never raises."""
        begun = self._begun = time.monotonic()
        pause = self._interval
        try:
            self._tally.accept(self._source.name, self._source.read())
        except SourceError as error:
            self._tally.reject(self._source.name, error.reason)
            if error.reason.is_lasting:
                pause *= LASTING_TURNS
        except Exception as error:
            log.debug("read of %s", self._source.name, exc_info=True)
            reason = Reason(f"internal:{type(error).__name__}", f"unexpected {type(error).__name__}: {error}")
            self._tally.reject(self._source.name, reason)
        self._begun, self._last_begun = None, begun
        return pause

    def _run(self) -> None:
        while not self._stopping:
            pause = self.poll()
            self._due = time.monotonic() + pause
            self._hurry.wait(pause)
            self._hurry.clear()
