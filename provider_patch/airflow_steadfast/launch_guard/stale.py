# SPDX-License-Identifier: Apache-2.0
"""Void pods on their way to be deleted, over as many loops as the API server makes it take.

A pod is tried at once when it is found void, and again for ``PATIENCE`` while the server gives no usable
answer. The tries are made in the scheduler's loop: a server that fails is left alone for a while, and of
many pods only a few are tried at it each time, in turn.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.launch import LaunchId, PodRef
    from airflow_steadfast.launch_guard.revoke import Outcome
    from airflow_steadfast.launch_guard.verdict import Verdict

log = logging.getLogger("airflow_steadfast.launch_guard")

PATIENCE = 600.0
"""Seconds for which a pod is tried. A pod that has not started by then waits for its cluster, not for us."""

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 10.0
"""Seconds between two rounds of tries at a server that fails; each pause is twice the one before."""

FEW = 3
"""Failed tries in a row after which a round ends."""

SLOW = 1.0
"""Seconds of a failed try after which the server is not asked for another pod in the same loop."""


class Revokes(Protocol):
    """Deletes a pod that has not started; see ``revoke.Revoker``."""

    def revoke(self, ref: PodRef, launch: str | None) -> Outcome:
        """Never raises."""


class Void(NamedTuple):
    """A pod that is of no use: whose launch made it, and what the row said."""

    entry: Entry
    launch_id: LaunchId
    ref: PodRef
    verdict: Verdict


class StalePods:
    """See the module's text; ``claimed``, ``revoked`` and ``gone`` as in ``recheck.Recheck``.

    No method raises where those do not.
    """

    def __init__(
        self,
        revoker: Revokes,
        claimed: Callable[[Entry, PodRef, LaunchId], bool],
        revoked: Callable[[Entry, LaunchId, Verdict], None],
        gone: Callable[[Entry, LaunchId, Verdict], None],
        clock: Callable[[], float],
    ) -> None:
        self._revoker = revoker
        self._claimed = claimed
        self._revoked = revoked
        self._gone = gone
        self._clock = clock
        self._waiting: deque[tuple[Void, float]] = deque()
        self._pause = 0.0
        self._next_round = 0.0
        self._silent = False

    def revoke(self, void: Void) -> None:
        """Try it now, and later again if need be."""
        until = self._clock() + PATIENCE
        if self._silent or not self._ended(void):
            self._waiting.append((void, until))

    def later(self, void: Void) -> None:
        """Try it in the next round."""
        self._waiting.append((void, self._clock() + PATIENCE))

    def round(self) -> None:
        """Try those that wait, once in a loop, unless the server failed a moment ago."""
        self._silent = False
        if not self._waiting or self._clock() < self._next_round:
            return
        failures = 0
        for _ in range(len(self._waiting)):
            void, until = self._waiting.popleft()
            if self._ended(void):
                failures = 0
                continue
            self._keep(void, until)
            failures += 1
            if failures == FEW or self._silent:
                break
        self._pause = min(LONGEST_PAUSE, self._pause * 2 or FIRST_PAUSE) if failures else 0.0
        self._next_round = self._clock() + self._pause

    def _keep(self, void: Void, until: float) -> None:
        if self._clock() < until:
            self._waiting.append((void, until))
        else:
            log.warning("Pod %s/%s is void (%s) and cannot be revoked", *void.ref, void.verdict.reason)

    def _ended(self, void: Void) -> bool:
        """Try once; whether nothing is left to do."""
        entry, launch_id, ref, verdict = void
        if self._claimed(entry, ref, launch_id):
            return True
        started = self._clock()
        outcome = self._revoker.revoke(ref, launch_id.text())
        if outcome == "failed":
            # each try at a server that is silent takes seconds: one is enough for a loop
            self._silent = self._clock() - started >= SLOW
            return False
        if outcome == "revoked":
            self._revoked(entry, launch_id, verdict)
        elif outcome == "gone":
            # the watcher says nothing of a pod that is deleted while it is pending
            self._gone(entry, launch_id, verdict)
        elif outcome == "started":
            log.info(
                "Pod %s/%s is of no use any more (%s), but has started: left alone", *ref, verdict.reason
            )
        return True
