# SPDX-License-Identifier: Apache-2.0
"""What the server negotiates, and the bounds that no client can stretch. Real sockets."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import socket
import threading
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from steadfast_sidecar import exposition, server
from steadfast_sidecar.pages import Site
from steadfast_sidecar.server import Server
from steadfast_sidecar.settings import Address
from steadfast_sidecar.tally import Tally

OPENMETRICS = "application/openmetrics-text"
# what Prometheus 3 sends
PROMETHEUS = (
    f"{OPENMETRICS};version=1.0.0;escaping=allow-utf-8;q=0.6,{OPENMETRICS};version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@contextlib.contextmanager
def serving(**site):
    made = Site(exposition.registry(Tally()), **site)
    with Server(Address("127.0.0.1", 0), made) as running:
        threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield running
        finally:
            running.shutdown()


def ask(port, path="/metrics", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers={key.replace("_", "-"): text for key, text in headers.items()})
    answer = connection.getresponse()
    return answer, answer.read()


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (PROMETHEUS, OPENMETRICS),
        (f"{OPENMETRICS}; version=1.0.0", OPENMETRICS),
        ("text/plain;version=0.0.4", "text/plain"),
        ("*/*", "text/plain"),
        ("", "text/plain"),
        ("application/json", "text/plain"),
    ],
)
def test_the_format_follows_the_accept_header(accept, expected):
    with serving() as running:
        answer, body = ask(running.server_port, Accept=accept)
    assert answer.getheader("Content-Type").startswith(expected)
    assert answer.getheader("Vary") == "Accept, Accept-Encoding"
    assert body.endswith(b"# EOF\n") == (expected == OPENMETRICS)
    if expected == OPENMETRICS:
        assert list(parse_openmetrics(body.decode()))


@pytest.mark.parametrize(
    ("accepted", "compressed"),
    [("gzip", True), ("deflate, GZIP;q=0.5", True), ("identity", False), ("x-gzipped", False), ("", False)],
)
def test_gzip_only_where_it_is_accepted(accepted, compressed):
    with serving() as running:
        answer, body = ask(running.server_port, Accept_Encoding=accepted)
    assert (answer.getheader("Content-Encoding") == "gzip") == compressed
    assert b"steadfast_launches_decided_total" in (gzip.decompress(body) if compressed else body)


def test_head_has_the_length_and_no_body_and_is_no_scrape():
    scrapes = []
    with serving(scraped=lambda _, whole: scrapes.append(whole)) as running:
        answer, body = ask(running.server_port, method="HEAD")
        assert int(answer.getheader("Content-Length")) > 0
        assert body == b""
        assert scrapes == []
        ask(running.server_port)
        deadline = time.monotonic() + 30
        while len(scrapes) != 1:  # it is noted after the answer
            assert time.monotonic() < deadline


def test_a_request_may_name_the_series_it_wants():
    scrapes = []
    with serving(scraped=lambda _, whole: scrapes.append(whole)) as running:
        body = ask(running.server_port, "/metrics?name[]=steadfast_launches_decided_total")[1].decode()
        deadline = time.monotonic() + 30
        while scrapes != [False]:  # no scrape that takes everything
            assert time.monotonic() < deadline
    assert [line for line in body.splitlines() if not line.startswith("#")] == [
        "steadfast_launches_decided_total 0.0"
    ]


def test_a_client_that_sends_slowly_is_cut_off(monkeypatch):
    monkeypatch.setattr(server, "CONNECTION_SECONDS", 0.3)
    with serving() as running, socket.create_connection(("127.0.0.1", running.server_port), 30) as slow:
        begun = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - begun < 30:
                slow.sendall(b"G")
                slow.settimeout(0.05)
                try:
                    if slow.recv(1) == b"":
                        break
                except TimeoutError:
                    continue
        assert time.monotonic() - begun < 25


def test_more_connections_than_there_are_places_are_turned_away(monkeypatch):
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    with serving() as running:
        with contextlib.ExitStack() as silent:
            for _ in range(3):
                silent.enter_context(socket.create_connection(("127.0.0.1", running.server_port), 30))
            deadline = time.monotonic() + 30
            while len(running._open) < 3:
                assert time.monotonic() < deadline
            with socket.create_connection(("127.0.0.1", running.server_port), 30) as late:
                assert late.recv(100).startswith(b"HTTP/1.0 503")
        deadline = time.monotonic() + 30
        while running._open:
            assert time.monotonic() < deadline
        assert ask(running.server_port)[0].status == 200


def test_a_burst_of_connections_waits_and_is_not_dropped():
    # nobody accepts: all that there are places for must fit into the queue
    with (
        Server(Address("127.0.0.1", 0), Site(exposition.registry(Tally()))) as busy,
        contextlib.ExitStack() as all_,
    ):
        for _ in range(server.MAX_CONNECTIONS):
            all_.enter_context(socket.create_connection(("127.0.0.1", busy.server_port), timeout=0.5))


def test_a_connection_for_which_there_is_no_thread_leaves_its_place_free(monkeypatch):
    class NoThread:
        def __init__(self, **_):
            raise RuntimeError("can't start new thread")

    with serving() as running:
        with monkeypatch.context() as patch:
            patch.setattr("socketserver.threading.Thread", NoThread)
            with socket.create_connection(("127.0.0.1", running.server_port), 30) as unlucky:
                assert unlucky.recv(1) == b"", "closed, and the server goes on"
        assert running._open == {}
        assert ask(running.server_port)[0].status == 200
