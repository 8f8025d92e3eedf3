# SPDX-License-Identifier: Apache-2.0
"""A TCP proxy that falls silent on demand, as a firewall that drops packets of an open connection does."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class SilentProxy:
    """Forwards to a port of this machine; while ``silent`` it accepts and reads, and answers nothing."""

    def __init__(self, target: int) -> None:
        self.silent = threading.Event()
        self._target = target
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Close every connection and the port."""
        for used in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)
            used.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._sockets += [client, server]
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                if not self.silent.is_set():
                    sink.sendall(data)
            if not self.silent.is_set():
                sink.shutdown(socket.SHUT_WR)


@contextlib.contextmanager
def silent_proxy(target: int) -> Iterator[SilentProxy]:
    """Run a proxy before the port ``target``; closed afterwards."""
    proxy = SilentProxy(target)
    try:
        yield proxy
    finally:
        proxy.close()
