# SPDX-License-Identifier: Apache-2.0
"""What the server answers: ``/metrics``, ``/livez``, ``/readyz`` and a landing page."""

from __future__ import annotations

import gzip
import html
import ssl
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urlsplit

from prometheus_client.exposition import gzip_accepted

import airflow_steadfast
from steadfast_sidecar import exposition
from steadfast_sidecar.access import Access

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from steadfast_sidecar.access import Refusal

TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Site:
    """What is served, to whom.

    ``probes`` maps a path to a check that returns (good, text). ``has_numbers`` says whether
    ``/metrics`` may answer. ``scraped`` is called after each answer of ``/metrics`` with the time at which
    its numbers were taken (monotonic seconds) and whether it had all of them.
    """

    registry: CollectorRegistry
    probes: Mapping[str, Callable[[], tuple[bool, str]]] = field(default_factory=dict)
    has_numbers: Callable[[], bool] = lambda: True
    access: Access = field(default_factory=Access)
    scraped: Callable[[float, bool], None] = lambda _taken, _whole: None


class _HasSite(Protocol):
    site: Site


class PageHandler(BaseHTTPRequestHandler):
    """Answers one request of one connection."""

    server: _HasSite  # type: ignore[assignment]  # the base class says any server
    timeout = 10
    server_version = "steadfast-sidecar"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer; HEAD gets the same without a body."""
        site = self.server.site
        url = urlsplit(self.path)
        if url.path == "/metrics":
            self._metrics(site, parse_qs(url.query).get("name[]", []))
        elif url.path in site.probes:
            good, text = site.probes[url.path]()
            self._answer(HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE, f"{text}\n".encode())
        elif url.path == "/":
            page = _landing(site.probes, show_version=self._refusal(site) is None)
            self._answer(HTTPStatus.OK, page, "text/html; charset=utf-8")
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"not found; see /\n")

    do_HEAD = do_GET  # noqa: N815 - the base class finds methods by this name

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's signature
        """Scrapes and probes are no news."""

    def _metrics(self, site: Site, names: list[str]) -> None:
        refusal = self._refusal(site)
        if refusal is not None:
            self._answer(refusal.status, f"{refusal.text}\n".encode(), headers=refusal.headers)
            return
        if not site.has_numbers():
            # Zeros here would look like a counter reset, and rate() would count everything again.
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, b"first read not done\n")
            return
        taken = time.monotonic()
        body, content_type = exposition.render(site.registry, self.headers.get("Accept", ""), names)
        self._answer(HTTPStatus.OK, body, content_type)
        if self.command == "GET":
            site.scraped(taken, not names)

    def _refusal(self, site: Site) -> Refusal | None:
        # The connection's certificate was verified in the handshake: an optional one is right or absent.
        certified = isinstance(self.connection, ssl.SSLSocket) and bool(self.connection.getpeercert())
        return site.access.refusal(self.headers.get("Authorization", ""), certified=certified)

    def _answer(
        self,
        status: HTTPStatus,
        body: bytes,
        content_type: str = TEXT,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Vary", "Accept, Accept-Encoding")
        for name, value in headers:
            self.send_header(name, value)
        if gzip_accepted(self.headers.get("Accept-Encoding", "")):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _landing(probes: Mapping[str, object], *, show_version: bool) -> bytes:
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in ["/metrics", *probes])
    version = html.escape(f" {airflow_steadfast.__version__}") if show_version else ""
    return (
        "<!doctype html><html lang=en><title>Steadfast sidecar</title>"
        f"<h1>Steadfast sidecar{version}</h1><ul>{links}</ul></html>\n"
    ).encode()
