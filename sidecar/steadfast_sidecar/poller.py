# SPDX-License-Identifier: Apache-2.0
"""The work loops: each source is read on a timer by a thread of its own, never by a scrape."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from steadfast_sidecar.sources.base import Reason, SourceError

if TYPE_CHECKING:
    from steadfast_sidecar.sources.base import Source
    from steadfast_sidecar.tally import Tally

log = logging.getLogger(__name__)

STUCK_AFTER_SECONDS = 60.0
"""Far above the longest bounded read: connect 2 s, then at most a few statements of 5 s."""


class Poller:
    """Reads one source every ``interval`` seconds until stopped; no failure of the source ends the loop."""

    def __init__(self, source: Source, tally: Tally, interval: float) -> None:
        self._source = source
        self._tally = tally
        self._interval = interval
        self._stop = threading.Event()
        self._beat = time.monotonic()
        self._thread = threading.Thread(target=self._run, name=f"read-{source.name}", daemon=True)

    def start(self) -> None:
        """Start the loop; its first read begins at once."""
        self._thread.start()

    def stop(self, wait: float) -> None:
        """Let the loop end after the read it is in; wait at most ``wait`` seconds for it."""
        self._stop.set()
        self._thread.join(wait)

    def progresses(self) -> bool:
        """Say whether the loop went round within its interval and 60 s; True once it was asked to stop."""
        if self._stop.is_set():
            return True
        return (
            self._thread.is_alive() and time.monotonic() - self._beat < self._interval + STUCK_AFTER_SECONDS
        )

    def poll(self) -> None:
        """Read once and pass on the outcome. Never raises."""
        try:
            self._tally.accept(self._source.name, self._source.read())
        except SourceError as error:
            self._tally.reject(self._source.name, error.reason)
        except Exception as error:
            log.debug("read of %s", self._source.name, exc_info=True)
            reason = Reason(f"internal:{type(error).__name__}", f"unexpected {type(error).__name__}: {error}")
            self._tally.reject(self._source.name, reason)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.poll()
            self._beat = time.monotonic()
            self._stop.wait(self._interval)
