# SPDX-License-Identifier: Apache-2.0
"""The HTTP server: ``/metrics``, ``/livez``, ``/readyz`` and a landing page."""

from __future__ import annotations

import gzip
import html
import logging
import socket
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import airflow_steadfast
from steadfast_sidecar import exposition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from steadfast_sidecar.settings import Address

log = logging.getLogger(__name__)

MAX_REQUESTS = 16
"""Requests answered at once; more get 503 at once instead of a growing pile of threads."""


class Server(ThreadingHTTPServer):
    """Serves a registry; ``probes`` maps a path to a check that returns (good, text).

    Raises OSError where the address cannot be bound. An empty host means IPv6 and IPv4, or IPv4 alone
    where the machine has no IPv6.
    """

    daemon_threads = True
    allow_reuse_address = True

    def __init__(
        self,
        address: Address,
        registry: CollectorRegistry,
        probes: Mapping[str, Callable[[], tuple[bool, str]]],
        has_numbers: Callable[[], bool] = lambda: True,
    ) -> None:
        self.registry = registry
        self.probes = probes
        self.has_numbers = has_numbers
        self.slots = threading.BoundedSemaphore(MAX_REQUESTS)
        host, self.address_family = _family(address.host)
        try:
            super().__init__((host, address.port), _Handler)
        except OSError:
            if address.host or self.address_family == socket.AF_INET:
                raise
            self.address_family = socket.AF_INET
            super().__init__(("0.0.0.0", address.port), _Handler)  # noqa: S104 - Prometheus scrapes it - asked for by an empty host

    def server_bind(self) -> None:
        """Bind without a reverse look-up of the name, and to IPv4 as well where the host is empty."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - the base class's
        """A client that went away is no news."""
        log.debug("request from %s failed", client_address, exc_info=True)  # noqa: LOG014 - called in one


def _family(host: str) -> tuple[str, socket.AddressFamily]:
    if not host:
        return ("::", socket.AF_INET6) if socket.has_ipv6 else ("0.0.0.0", socket.AF_INET)  # noqa: S104 - Prometheus scrapes it
    return host, socket.AF_INET6 if ":" in host else socket.AF_INET


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 10
    server_version = "steadfast-sidecar"
    sys_version = ""

    def do_GET(self) -> None:
        if not self.server.slots.acquire(blocking=False):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"too many requests at once\n")
            return
        try:
            self._route(urlsplit(self.path).path)
        finally:
            self.server.slots.release()

    do_HEAD = do_GET  # noqa: N815 - the base class finds methods by this name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        """Scrapes and probes are no news."""

    def _route(self, path: str) -> None:
        if path == "/metrics" and not self.server.has_numbers():
            # Zeros here would look like a counter reset, and rate() would count everything again.
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"first read not done\n")
        elif path == "/metrics":
            body, content_type = exposition.render(self.server.registry, self.headers.get("Accept", ""))
            self._answer(HTTPStatus.OK, body, content_type)
        elif path in self.server.probes:
            good, text = self.server.probes[path]()
            self._answer(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, f"{text}\n".encode())
        elif path == "/":
            self._answer(HTTPStatus.OK, _landing(self.server.probes), "text/html; charset=utf-8")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"not found; see /\n")

    def _answer(
        self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _landing(probes: Mapping[str, object]) -> bytes:
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in ["/metrics", *probes])
    version = html.escape(airflow_steadfast.__version__)
    return (
        "<!doctype html><html lang=en><title>Steadfast sidecar</title>"
        f"<h1>Steadfast sidecar {version}</h1><ul>{links}</ul></html>\n"
    ).encode()
