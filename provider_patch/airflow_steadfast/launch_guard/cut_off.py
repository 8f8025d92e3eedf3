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
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

TICK = 0.25
"""Seconds by which a cut may come late."""

_IDLE = 60.0
"""Seconds without a check after which the thread ends."""


class CutOff:
    """A context manager that shuts watched connections down when its block takes longer than ``seconds``.

    The driver then raises what it raises for a lost connection; that leaves the block as
    ``TimeoutError``. No descriptor is left behind. One thread of the process serves all; it ends when it
    has had nothing to do for a minute.
    """

    def __init__(self, seconds: float) -> None:
        self.deadline = 0.0
        self._seconds = seconds
        self._lock = threading.Lock()
        self._fired = False
        self._over = False
        self._handles: list[socket.socket] = []

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

    def fire(self) -> None:
        """Cut what is watched; nothing once the block has ended."""
        with self._lock:
            if self._over:
                return
            self._fired = True
            for handle in self._handles:
                _shut(handle)

    def __enter__(self) -> Self:
        self.deadline = time.monotonic() + self._seconds
        _sentry.arm(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _sentry.disarm(self)
        with self._lock:
            self._over = True
            for handle in self._handles:
                handle.close()
        if self._fired and isinstance(error, Exception):
            raise TimeoutError(f"timed out: the database was silent for {self._seconds:.1f} s") from error


class _Sentry:
    """Fires what is armed and late, looking every ``TICK``.

    A thread for each check would cost more than the check.
    """

    def __init__(self) -> None:
        self._armed: set[CutOff] = set()
        self._used = 0.0
        self.forget()

    def forget(self) -> None:
        """In a forked child: the thread is the parent's, and the lock may have been held at the fork."""
        self._lock = threading.Lock()
        self._armed.clear()
        self._thread: threading.Thread | None = None

    def arm(self, one: CutOff) -> None:
        with self._lock:
            self._armed.add(one)
            if self._thread is None:
                thread = threading.Thread(target=self._look, name="steadfast-cut-off", daemon=True)
                thread.start()
                self._thread = thread

    def disarm(self, one: CutOff) -> None:
        with self._lock:
            self._armed.discard(one)
            self._used = time.monotonic()

    def _look(self) -> None:
        while True:
            time.sleep(TICK)
            now = time.monotonic()
            with self._lock:
                late = [one for one in self._armed if one.deadline <= now]
                self._armed.difference_update(late)
                if not self._armed and not late and now - self._used > _IDLE:
                    self._thread = None
                    return
            for one in late:
                one.fire()


_sentry = _Sentry()
os.register_at_fork(after_in_child=_sentry.forget)


def _shut(handle: socket.socket) -> None:
    with contextlib.suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)
