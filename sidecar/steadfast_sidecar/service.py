# SPDX-License-Identifier: Apache-2.0
"""The running sidecar: two work loops, a tally, a server, and an orderly end."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING

from steadfast_sidecar import exposition
from steadfast_sidecar.poller import Poller
from steadfast_sidecar.server import Server
from steadfast_sidecar.sources import HandoffSource, OutboxSource, outbox_bypass
from steadfast_sidecar.tally import Tally

if TYPE_CHECKING:
    from steadfast_sidecar.settings import Settings
    from steadfast_sidecar.sources import Source

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
_ENDING = (signal.SIGTERM, signal.SIGINT)


def sources_of(settings: Settings) -> tuple[Source, ...]:
    """Return the sources that the settings name."""
    return (
        HandoffSource(settings.handoff_dir, settings.handoff_max_age),
        OutboxSource(settings.database_url, settings.consumer, outbox_bypass),
    )


class Service:
    """One sidecar. ``run`` serves until SIGTERM or SIGINT, then lingers until a second one or its time."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tally = Tally()
        self._pollers = [
            Poller(source, self._tally, settings.poll_interval) for source in sources_of(settings)
        ]
        self._stopping = False
        probes = {"/livez": self._livez, "/readyz": self._readyz}
        self._server = Server(settings.listen, exposition.registry(self._tally), probes, self._tally.was_read)

    @property
    def port(self) -> int:
        """The bound port, also where the settings ask for any (0)."""
        return self._server.server_port

    def run(self) -> None:
        """Serve; returns after an orderly end."""
        # Waited for, not handled: a handler that touches a lock may interrupt the holder of that very lock.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        server = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        server.start()
        for poller in self._pollers:
            poller.start()
        log.info("serving metrics on port %d as consumer %s", self.port, self._settings.consumer)
        signal.sigwait(_ENDING)
        self._stopping = True
        log.info("stopping: /metrics is served for %g s more", self._settings.shutdown_linger)
        signal.sigtimedwait(_ENDING, self._settings.shutdown_linger)
        for poller in self._pollers:
            poller.stop(STOP_SECONDS)
        self._server.shutdown()
        self._server.server_close()

    def _livez(self) -> tuple[bool, str]:
        if all(poller.progresses() for poller in self._pollers):
            return True, "ok"
        return False, "a work loop does not progress"

    def _readyz(self) -> tuple[bool, str]:
        if self._stopping:
            return False, "stopping"
        if not self._tally.was_read():
            return False, "first read not done"
        down = [name for name, reason in self._tally.health().items() if reason is not None]
        return True, f"ok; down: {', '.join(down)}" if down else "ok"
