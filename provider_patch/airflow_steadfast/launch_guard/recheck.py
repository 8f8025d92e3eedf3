# SPDX-License-Identifier: Apache-2.0
"""The check after creation: between the verdict and the pod, the work may have moved on.

Once at the end of a loop, and once per second that creation takes, the rows of the pods created since
are read again, in one SELECT. A launch without a verdict (made while the database was down) is not asked
about. A database that gives no answer is counted and leaves the pods alone.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.recheck_verdict import judge_created
from airflow_steadfast.launch_guard.snapshot import MAX_IDS, SnapshotError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_steadfast.launch_guard.check import RowSource
    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.launch import LaunchId, PodRef
    from airflow_steadfast.launch_guard.revoke import Outcome
    from airflow_steadfast.launch_guard.verdict import Verdict

log = logging.getLogger("airflow_steadfast.launch_guard")

INTERVAL = 1.0
"""Seconds of creation after which the pods created so far are looked at without waiting for its end."""

TRIES = 5
"""Loops in which a stale pod is tried to be revoked while the API server gives no usable answer."""


class Revokes(Protocol):
    """Deletes a pod that has not started; see ``revoke.Revoker``."""

    def revoke(self, ref: PodRef, launch: str) -> Outcome:
        """Never raises."""


class Recheck:
    """The pods created since the last look.

    ``claimed`` says whether a pod is another launch's by now, ``revoked`` is told of each one deleted;
    neither may raise, and no method does.
    """

    def __init__(
        self,
        rows: RowSource,
        revoker: Revokes,
        claimed: Callable[[Entry, PodRef, LaunchId], bool],
        revoked: Callable[[Entry, LaunchId, Verdict], None],
        clock: Callable[[], float],
    ) -> None:
        self._rows = rows
        self._revoker = revoker
        self._claimed = claimed
        self._revoked = revoked
        self._clock = clock
        self._created: list[Entry] = []
        self._since = 0.0
        self._stale: list[tuple[Entry, LaunchId, PodRef, Verdict, int]] = []

    def created(self, entry: Entry) -> None:
        """Note a created pod; may look at those before it."""
        if entry.launch_id is None or entry.launch_id.nonce or entry.pod is None:
            return
        if self._created and self._clock() - self._since >= INTERVAL:
            self._look()
        if not self._created:
            self._since = self._clock()
        self._created.append(entry)

    def end_loop(self) -> None:
        """Look at the pods that are left, and try again to revoke those that could not be."""
        waiting, self._stale = self._stale, []
        for entry, launch_id, ref, verdict, tries in waiting:
            self._revoke(entry, launch_id, ref, verdict, tries)
        while self._created:
            self._look()

    def void(self, entry: Entry, verdict: Verdict) -> None:
        """Revoke, at the end of the loop, the pod that a dropped launch may have made."""
        if entry.launch_id is not None and entry.pod is not None:
            self._stale.append((entry, entry.launch_id, entry.pod, verdict, TRIES))

    def _look(self) -> None:
        batch, self._created = self._created[:MAX_IDS], self._created[MAX_IDS:]
        self._since = self._clock()
        totals = signals.totals()
        try:
            rows = self._rows.read(list({entry.launch.row_key: None for entry in batch if entry.launch}))
        except Exception as error:
            reason = error.reason if isinstance(error, SnapshotError) else "internal_error"
            totals.increment("steadfast_launch_check_errors_total", len(batch), reason=reason)
            log.debug("the check after creation got no answer", exc_info=True)
            return
        for entry in batch:
            if entry.launch is None or entry.launch_id is None or entry.pod is None:
                continue
            verdict = judge_created(entry.launch_id, rows.get(entry.launch.row_key))
            if not verdict.fresh:
                self._revoke(entry, entry.launch_id, entry.pod, verdict, TRIES)

    def _revoke(self, entry: Entry, launch_id: LaunchId, ref: PodRef, verdict: Verdict, tries: int) -> None:
        if self._claimed(entry, ref, launch_id):
            return
        outcome = self._revoker.revoke(ref, launch_id.text())
        if outcome == "failed" and tries > 1:
            self._stale.append((entry, launch_id, ref, verdict, tries - 1))
        elif outcome == "revoked":
            self._revoked(entry, launch_id, verdict)
        elif outcome == "started":
            log.info(
                "Pod %s/%s is of no use any more (%s), but has started: left alone", *ref, verdict.reason
            )
