# SPDX-License-Identifier: Apache-2.0
"""Progress on a terminal: each step with the time since the start and its own."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Progress:
    """Prints ``[  12.3s] text``; ``step`` adds how long its block took. Remembers the steps for a summary."""

    def __init__(self) -> None:
        """Start the clock."""
        self._start = time.monotonic()
        self.steps: list[tuple[str, float]] = []

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        """Print one line under the running step."""
        print(f"[{self.elapsed:6.1f}s] {text}", flush=True)

    @contextlib.contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Frame one step; on an error the step is named as failed and the error goes on."""
        began = time.monotonic()
        self.say(f"{name} ...")
        try:
            yield
        except BaseException:
            self.say(f"{name}: FAILED after {time.monotonic() - began:.1f}s")
            raise
        took = time.monotonic() - began
        self.steps.append((name, took))
        self.say(f"{name}: done in {took:.1f}s")
