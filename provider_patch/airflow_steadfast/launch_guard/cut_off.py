# SPDX-License-Identifier: Apache-2.0
"""The last bound of a check: a connection whose peer stays silent is cut from this side.

A statement timeout is kept by the server, and TCP's own limits notice only a peer that acknowledges
nothing. A server that is paused, or a pooler that waits for one, acknowledges and never answers: libpq
then waits for ever, and the scheduler's loop with it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self


class CutOff:
    """A context manager that shuts watched connections down when its block takes longer than ``seconds``.

    The driver then raises what it raises for a lost connection; that leaves the block as
    ``TimeoutError``. No thread and no descriptor is left behind.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._lock = threading.Lock()
        self._fired = False
        self._handles: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._fire)
        self._timer.daemon = True

    def watch(self, dbapi_connection: Any) -> None:
        """Cut this connection too when the time is over, or at once if it is.

        One without a socket of its own (SQLite) is left alone. Never raises.
        """
        try:
            # a duplicate stays ours when the driver closes its own
            handle = socket.socket(fileno=os.dup(dbapi_connection.fileno()))
        except Exception:
            return
        with self._lock:
            self._handles.append(handle)
            if self._fired:
                _shut(handle)

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        for handle in self._handles:
            handle.close()
        if self._fired and isinstance(error, Exception):
            raise TimeoutError(f"timed out: the database was silent for {self._seconds:.1f} s") from error

    def _fire(self) -> None:
        with self._lock:
            self._fired = True
            for handle in self._handles:
                _shut(handle)


def _shut(handle: socket.socket) -> None:
    with contextlib.suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)
