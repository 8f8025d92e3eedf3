# SPDX-License-Identifier: Apache-2.0
"""The HTTP server's sockets: addresses, TLS, and bounds that no client can stretch."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from steadfast_sidecar.pages import PageHandler

if TYPE_CHECKING:
    from steadfast_sidecar.pages import Site
    from steadfast_sidecar.settings import Address

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 32
"""Connections served at once; more are turned away at once instead of a growing pile of threads."""
CONNECTION_SECONDS = 10.0
"""The longest that one connection may take, its TLS handshake included; a scrape takes milliseconds."""

LOOK_SECONDS = 0.5
"""How often connections that are late are looked for, and the end of the server."""

_BUSY = b"HTTP/1.0 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"


class Server(ThreadingHTTPServer):
    """Serves a site.

    Raises OSError where the address cannot be bound. An empty host means IPv6 and IPv4, or IPv4 alone
    where the machine has no IPv6. A handshake never holds up another connection: it is made in the
    connection's own thread.
    """

    daemon_threads = True
    allow_reuse_address = True
    # The base class's 5 is soon full, and the client whose connection is dropped asks again after a second.
    request_queue_size = MAX_CONNECTIONS

    def __init__(self, address: Address, site: Site) -> None:
        self.site = site
        self._lock = threading.Lock()
        self._open: dict[socket.socket, float] = {}
        host, self.address_family = _family(address.host)
        try:
            super().__init__((host, address.port), PageHandler)
        except OSError:
            if address.host or self.address_family == socket.AF_INET:
                raise
            self.address_family = socket.AF_INET
            super().__init__(("0.0.0.0", address.port), PageHandler)  # noqa: S104 - asked for by an empty host

    def server_bind(self) -> None:
        """Bind without a reverse look-up of the name, and to IPv4 as well where the host is empty."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, or turn it away."""
        with self._lock:
            accepted = len(self._open) < MAX_CONNECTIONS
            if accepted:
                self._open[request] = time.monotonic()
        if accepted:
            try:
                super().process_request(request, client_address)
            except BaseException:
                self._leave(request)  # no thread could be started
                raise
            return
        if self.site.access.tls is None:
            with contextlib.suppress(OSError):
                request.sendall(_BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection; its place is free afterwards."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def _leave(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Make the handshake where TLS is on, and answer."""
        context = self.site.access.tls
        if context is None:
            super().finish_request(request, client_address)
            return
        request.settimeout(CONNECTION_SECONDS)
        # The descriptor is the duplicate's: the original stays ours, so that it can be cut off below.
        with context.wrap_socket(request.dup(), server_side=True) as secure:
            super().finish_request(secure, client_address)

    def service_actions(self) -> None:
        """Cut connections off whose time is over, however slowly they send or read."""
        late = time.monotonic() - CONNECTION_SECONDS
        with self._lock:
            for request, begun in self._open.items():
                if begun < late:
                    with contextlib.suppress(OSError):
                        request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """A client that went away or does not speak TLS is no news."""
        log.debug("request from %s failed", client_address, exc_info=True)  # noqa: LOG014 - called in one


def _family(host: str) -> tuple[str, socket.AddressFamily]:
    if not host:
        return ("::", socket.AF_INET6) if socket.has_ipv6 else ("0.0.0.0", socket.AF_INET)  # noqa: S104 - Prometheus scrapes it
    return host, socket.AF_INET6 if ":" in host else socket.AF_INET
