# SPDX-License-Identifier: Apache-2.0
"""The running sidecar: two work loops, a tally, a server, a watch over them, and an orderly end."""

from __future__ import annotations

import logging
import signal
import threading
from typing import TYPE_CHECKING

from steadfast_sidecar import exposition
from steadfast_sidecar.access import access_of
from steadfast_sidecar.linger import Linger
from steadfast_sidecar.pages import Site
from steadfast_sidecar.poller import Poller
from steadfast_sidecar.server import LOOK_SECONDS, Server
from steadfast_sidecar.sources import HandoffSource, OutboxSource, outbox_bypass
from steadfast_sidecar.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Callable

    from steadfast_sidecar.settings import Settings
    from steadfast_sidecar.sources import Source

log = logging.getLogger(__name__)

STOP_SECONDS = 2.0
WATCH_SECONDS = 1.0
"""How often the work loops and the files of certificates and tokens are looked at."""
_ENDING = (signal.SIGTERM, signal.SIGINT)


def sources_of(settings: Settings, may_claim: Callable[[], bool] = lambda: True) -> tuple[Source, ...]:
    """Return the sources that the settings name; ``may_claim`` is the outbox's."""
    return (
        HandoffSource(settings.handoff_dir, settings.handoff_max_age),
        OutboxSource(settings.database_url, settings.consumer, outbox_bypass, may_claim),
    )


class Service:
    """One sidecar. ``run`` serves until SIGTERM or SIGINT and then until the scrape that takes all.

    Raises FileError for a certificate or token that cannot be used, OSError where the address cannot be
    bound.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._tally = Tally()
        self._stopping = False
        self._over = threading.Event()
        self._linger = Linger()
        self._pollers = [
            Poller(source, self._tally, settings.poll_interval)
            for source in sources_of(settings, self._may_claim)
        ]
        self._access = access_of(settings)
        site = Site(
            exposition.registry(self._tally),
            {"/livez": self._livez, "/readyz": self._readyz},
            self._tally.was_read,
            self._access,
            self._linger.scraped,
        )
        self._server = Server(settings.listen, site)

    @property
    def port(self) -> int:
        """The bound port, also where the settings ask for any (0)."""
        return self._server.server_port

    def run(self) -> None:
        """Serve; returns after an orderly end."""
        # Waited for, not handled: a handler that touches a lock may interrupt the holder of that very lock.
        signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        for work, name in ((self._serve, "http"), (self._watch, "watch")):
            threading.Thread(target=work, name=name, daemon=True).start()
        for poller in self._pollers:
            poller.start()
        log.info(
            "serving metrics on port %d (%s) as consumer %s", self.port, self._access, self._settings.consumer
        )
        signal.sigwait(_ENDING)
        self._stopping = True
        log.info("stopping: waiting up to %g s for the last scrape", self._settings.shutdown_linger)
        cause = self._linger.wait(self._pollers, _ENDING, self._settings.shutdown_linger)
        log.info("stopped: %s", cause)
        self._over.set()
        for poller in self._pollers:
            poller.stop(STOP_SECONDS)
        self._server.shutdown()
        self._server.server_close()

    def _serve(self) -> None:
        self._server.serve_forever(LOOK_SECONDS)

    def _watch(self) -> None:
        while not self._over.wait(WATCH_SECONDS):
            self._access.refresh()
            for poller in self._pollers:
                poller.watch()

    def _may_claim(self) -> bool:
        """Say whether a count that rises now will be seen to: after its first sample, before its last.

        A new consumer whose first sample has the counts already shows no increase, and neither does one
        whose end comes before the next scrape. The events wait in the table for the sidecar that is scraped.
        """
        return self._linger.given >= self._tally.known_since(OutboxSource.name) and not self._stopping

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
