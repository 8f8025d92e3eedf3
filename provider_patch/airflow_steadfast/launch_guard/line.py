# SPDX-License-Identifier: Apache-2.0
"""The queued launches in the order in which they leave, and the newest copy of each launch order."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_steadfast.launch_guard.entry import Entry


class Line:
    """Three parts, first to last: ``held`` for want of an answer, ``ready`` to launch, ``waiting``.

    An entry is in one part at most. Iterating goes through all three; the length counts all three.
    """

    def __init__(self) -> None:
        self.held: deque[Entry] = deque()
        self.ready: deque[Entry] = deque()
        self.waiting: deque[Entry] = deque()
        self._newest: dict[tuple[str, int], Entry] = {}

    def __iter__(self) -> Iterator[Entry]:
        return itertools.chain(self.held, self.ready, self.waiting)

    def __len__(self) -> int:
        return len(self.held) + len(self.ready) + len(self.waiting)

    def join(self, entry: Entry) -> Entry | None:
        """Put ``entry`` at the end; return the copy of its order that is now the older of two, if any.

        The older copy, which may be ``entry`` itself, stays in the line until it is removed.
        """
        self.waiting.append(entry)
        entry.queued = True
        if entry.launch is None:
            return None
        other = self._newest.get(entry.launch.identity)
        if other is not None and other is not entry and other.number > entry.number:
            return entry
        self._newest[entry.launch.identity] = entry
        return None if other is entry else other

    def remove(self, entry: Entry) -> None:
        """Take ``entry`` out, wherever it is. Idempotent."""
        for part in (self.held, self.ready, self.waiting):
            if entry in part:
                part.remove(entry)
        self.left(entry)

    def left(self, entry: Entry) -> None:
        """Note that ``entry`` is in no part any more."""
        entry.queued = False
        if entry.launch is not None and self._newest.get(entry.launch.identity) is entry:
            del self._newest[entry.launch.identity]

    def move(self, entries: Iterable[Entry], source: deque[Entry]) -> None:
        """Take ``entries`` out of a part in one pass; they are about to join another."""
        leaving = set(map(id, entries))
        kept = [entry for entry in source if id(entry) not in leaving]
        source.clear()
        source.extend(kept)

    def all_wait(self) -> None:
        """Void what the parts stand for: all wait, in the same order."""
        self.waiting.extendleft(reversed(self.ready))
        self.waiting.extendleft(reversed(self.held))
        self.ready.clear()
        self.held.clear()

    def pop(self) -> Entry | None:
        """Take out the first entry of all, None from an empty line."""
        for part in (self.held, self.ready, self.waiting):
            if part:
                entry = part.popleft()
                self.left(entry)
                return entry
        return None
