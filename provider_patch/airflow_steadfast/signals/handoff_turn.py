# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is to write a hand-off file, where several processes of a pod count into one.

The lock file beside it holds a number that grows with each write: who finds another one than after its own
last write reads the file anew before it writes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TICK = 0.0005
_WIDTH = 8


class BusyError(OSError):
    """Another process writes, and did not end in time."""


@dataclass(frozen=True)
class Turn:
    """The right to write, as long as it is held; ``number`` is that of the last write."""

    number: int
    descriptor: int

    def announce(self) -> int:
        """Return the number of the write that follows. Called before it: one that is cut short is noticed."""
        number = self.number + 1
        os.pwrite(self.descriptor, number.to_bytes(_WIDTH, "big"), 0)
        return number


@contextlib.contextmanager
def turn(path: Path, patience: float) -> Iterator[Turn]:
    """Wait for the turn to write ``path``; raises BusyError after some seconds, OSError without a folder.

    One thread of a process at a time. The system takes the turn back from a process that dies.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        # A record lock: a child that is forked meanwhile does not hold it, as it would with flock(2).
        _acquire(descriptor, patience)
        yield Turn(int.from_bytes(os.pread(descriptor, _WIDTH, 0), "big"), descriptor)
    finally:
        os.close(descriptor)


def _acquire(descriptor: int, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not _is_ours(descriptor):
        if time.monotonic() >= deadline:
            raise BusyError("another process holds the turn to write it")
        time.sleep(_TICK)  # a write takes less than this, and the caller bounds the wait


def _is_ours(descriptor: int) -> bool:
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # what POSIX allows for "held by another"
        return False
    return True
