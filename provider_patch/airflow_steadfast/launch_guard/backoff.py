# SPDX-License-Identifier: Apache-2.0
"""The pause between checks that get no answer."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("airflow_steadfast.launch_guard")

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0


class Backoff:
    """When a database that did not answer is asked again: after 1, 2, 4, 8, then every 10 s."""

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        trouble: str = "The launch check gets no answer, queued launches are held",
        over: str = "The launch check gets answers again",
    ) -> None:
        self._clock = clock
        self._trouble = trouble
        self._over = over
        self._pause = 0.0
        self._next_at = 0.0
        self.failing = False

    def due(self) -> bool:
        """Whether it may be asked now."""
        return not self.failing or self._clock() >= self._next_at

    def fail(self, error: Exception) -> None:
        """Note a failure; the first in a row is logged."""
        first, self.failing = not self.failing, True
        if first:
            log.warning("%s: %s", self._trouble, error)
        self._pause = FIRST_PAUSE if first else min(LONGEST_PAUSE, self._pause * 2)
        self._next_at = self._clock() + self._pause

    def succeed(self) -> None:
        """Note an answer; the first after a failure is logged."""
        if self.failing:
            log.info("%s", self._over)
        self.failing = False
