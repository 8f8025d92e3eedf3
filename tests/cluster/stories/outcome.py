# SPDX-License-Identifier: Apache-2.0
"""How a story ends: as told, with its figures, or as a failure that says what was expected and seen."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Value = TypeVar("Value")


class StoryFailedError(Exception):
    """A story did not come out as told; the message names what was expected and what was seen."""


@dataclass
class Outcome:
    """What a story measured: ``figures`` in the order of the telling, ``expected`` checked against them."""

    story: str
    figures: dict[str, str] = field(default_factory=dict)

    def record(self, what: str, value: object) -> None:
        """Note a figure that nothing is expected of (a time, an id)."""
        self.figures[what] = str(value)

    def expect(self, what: str, expected: object, seen: object) -> None:
        """Note a figure and raise StoryFailedError unless it is the expected one."""
        self.figures[what] = str(seen)
        if seen != expected:
            self._fail(what, repr(expected), seen)

    def expect_at_least(self, what: str, least: float, seen: float) -> None:
        """Note a figure and raise StoryFailedError where it is below the least that the story allows."""
        self.figures[what] = str(seen)
        if seen < least:
            self._fail(what, f"at least {least}", seen)

    def _fail(self, what: str, expected: str, seen: object) -> None:
        raise StoryFailedError(f"{self.story}: {what}: expected {expected}, seen {seen!r}")


def wait_for(
    what: str,
    probe: Callable[[], Value],
    done: Callable[[Value], bool],
    seconds: float,
    interval: float = 1.0,
) -> Value:
    """Ask ``probe`` until ``done`` holds for its answer and return that answer.

    Raises StoryFailedError after ``seconds`` with the last answer; a probe's own exception goes through.
    """
    deadline = time.monotonic() + seconds
    while True:
        seen = probe()
        if done(seen):
            return seen
        if time.monotonic() > deadline:
            raise StoryFailedError(f"{what}: expected within {seconds:.0f} s, last seen {seen!r}")
        time.sleep(interval)


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, str]:
    """Name each key whose value differs, with ``before -> after``; empty when nothing changed."""
    return {
        key: f"{before.get(key, 0.0):g} -> {after.get(key, 0.0):g}"
        for key in sorted({*before, *after})
        if before.get(key, 0.0) != after.get(key, 0.0)
    }
