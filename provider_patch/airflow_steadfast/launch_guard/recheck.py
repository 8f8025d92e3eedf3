# SPDX-License-Identifier: Apache-2.0
"""The check after creation: between the verdict and the pod, the work may have moved on.

At the end of a loop, and every ``INTERVAL`` of a long one, the rows of the pods created since are read
again, in one SELECT; where a check of the queue is due anyway, in that check's own. Where loops follow
one another quickly and launches are queued, that is the next loop's, and no SELECT is spent. A launch
without a verdict (made while the database was down) is not asked about. A database that gives no answer
is counted; the pods are looked at when it answers again.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.backoff import Backoff
from airflow_steadfast.launch_guard.recheck_verdict import judge_created
from airflow_steadfast.launch_guard.snapshot import MAX_IDS, SnapshotError
from airflow_steadfast.launch_guard.stale import StalePods, Void

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_steadfast.launch_guard.check import RowSource
    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.launch import LaunchId, PodRef
    from airflow_steadfast.launch_guard.rows import Row
    from airflow_steadfast.launch_guard.stale import Revokes
    from airflow_steadfast.launch_guard.verdict import Verdict

log = logging.getLogger("airflow_steadfast.launch_guard")

INTERVAL = 2.0
"""Seconds of creation after which the pods created so far are looked at without waiting for its end.

Longer than a verdict lives (``guard_recheck_age``): where launches are left, the queue asks first, and
its SELECT answers for the created pods as well.
"""

SOON = 1.0
"""Longest time, in seconds, for which the pods of a loop may wait for the next loop's check.

A container takes longer than that to start, and a pod that has started is not revoked.
"""

MOST_SELECTS = 2
"""Checks of the queue in a loop after which its pods wait for the next one's, where loops are quick."""

MOST_UNSEEN = 10_000
"""Created pods that are remembered while the database gives no answer; beyond it the oldest are let go."""

TROUBLE = "The check after creation gets no answer, created pods are looked at later"
OVER = "The check after creation gets answers again"


class Recheck:
    """The pods created since the last look.

    ``claimed`` says whether a pod is another launch's by now, ``revoked`` is told of each one deleted, and
    ``gone`` of each one that has gone without; none may raise, and no method does.
    """

    def __init__(
        self,
        rows: RowSource,
        revoker: Revokes,
        claimed: Callable[[Entry, PodRef, LaunchId], bool],
        revoked: Callable[[Entry, LaunchId, Verdict], None],
        clock: Callable[[], float],
        gone: Callable[[Entry, LaunchId, Verdict], None] = lambda *_: None,
    ) -> None:
        self._rows = rows
        self._clock = clock
        self._pods = StalePods(revoker, claimed, revoked, gone, clock)
        self._backoff = Backoff(clock, trouble=TROUBLE, over=OVER)
        self._created: list[Entry] = []
        self._since = 0.0
        self._put_off = 0
        self._loop_began = -math.inf
        self._quick = False
        self._asked = 0
        self._found: list[Void] = []

    def created(self, entry: Entry) -> None:
        """Note a created pod; may look at those before it."""
        if entry.launch_id is None or entry.launch_id.nonce or entry.pod is None:
            return
        if self._created and self._clock() - self._since >= INTERVAL:
            self._look()
        self._revoke_found()
        if not self._created:
            self._since = self._clock()
        self._created.append(entry)

    def begin_loop(self) -> None:
        """Start a scheduler loop; how long ago the last one started tells when the next one will."""
        now = self._clock()
        self._quick = now - self._loop_began <= SOON
        self._loop_began = now
        self._asked = 0

    def end_loop(self, *, asked_next: bool = False) -> None:
        """Look at the pods that are left, and try again to revoke those that could not be.

        ``asked_next`` says that the next loop will ask the database anyway: pods of this loop, and of no
        earlier one, then wait for it, if loops are quick. So they do where this loop has asked twice.
        """
        self._pods.round()
        soon = self._quick and self._clock() - self._loop_began <= SOON
        if soon and not self._put_off and (asked_next or self._asked >= MOST_SELECTS):
            self._put_off = len(self._created)
        else:
            while self._created and self._look():
                pass
        self._revoke_found()

    def void(self, entry: Entry, verdict: Verdict) -> None:
        """Revoke, at the end of the loop, the pod that a dropped launch may have made.

        Not where the row says that the task may run in that very pod, or that another scheduler has the
        task instance, and so may have adopted the pod: the rule of every created pod.
        """
        launch_id = entry.launch_id
        if launch_id is not None and not (verdict.row and judge_created(launch_id, verdict.row).fresh):
            self.revoke_later(entry, verdict)

    def revoke_later(self, entry: Entry, verdict: Verdict) -> None:
        """Revoke, at the end of the loop, the pod that a launch may have made, whatever its row says."""
        if entry.launch_id is not None and entry.pod is not None:
            self._pods.later(Void(entry, entry.launch_id, entry.pod, verdict))

    def due(self, room: int) -> list[Entry]:
        """The oldest entries, at most ``room``, of created pods that nobody has looked at yet.

        To be asked about in one SELECT, at once.
        """
        self._asked += 1
        return self._created[: max(room, 0)]

    def saw(self, batch: Sequence[Entry], rows: Mapping[Any, Row]) -> None:
        """Take the rows read for ``due``; what is stale is revoked with the next pod or loop end."""
        self._backoff.succeed()
        self._let_go(batch)
        try:
            self._judge(batch, rows)
        except Exception:
            # the queue's own verdicts do not depend on it
            log.debug("the check after creation failed", exc_info=True)
            signals.totals().increment("steadfast_launch_check_errors_total", reason="internal_error")

    def no_answer(self, error: Exception) -> None:
        """Leave the database alone for a while: it did not answer the queue, nor would it this."""
        if self._created:
            self._backoff.fail(error)
            del self._created[:-MOST_UNSEEN]
            self._put_off = min(self._put_off, len(self._created))

    def _look(self) -> bool:
        """Ask about the oldest created pods; False where there was no answer, or none is asked for now."""
        if not self._backoff.due():
            return False
        batch = self._created[:MAX_IDS]
        try:
            rows = self._rows.read(row_keys(batch))
        except Exception as error:
            reason = error.reason if isinstance(error, SnapshotError) else "internal_error"
            signals.totals().increment("steadfast_launch_check_errors_total", len(batch), reason=reason)
            if reason == "internal_error":
                self._let_go(batch)  # it would fail as often as it is asked for
            else:
                self.no_answer(error)
            return False
        self.saw(batch, rows)
        return True

    def _let_go(self, batch: Sequence[Entry]) -> None:
        self._created = self._created[len(batch) :]
        self._put_off = max(0, self._put_off - len(batch))
        self._since = self._clock()

    def _judge(self, batch: Sequence[Entry], rows: Mapping[Any, Row]) -> None:
        for entry in batch:
            if entry.launch is None or entry.launch_id is None or entry.pod is None:
                continue
            verdict = judge_created(entry.launch_id, rows.get(entry.launch.row_key))
            if not verdict.fresh:
                self._found.append(Void(entry, entry.launch_id, entry.pod, verdict))

    def _revoke_found(self) -> None:
        found, self._found = self._found, []
        for void in found:
            self._pods.revoke(void)


class Alongside:
    """The queue's row source: one SELECT for what it asks and for the pods created since the last look.

    Without it each second of creation would cost two, the queue's own and the one after creation.
    """

    def __init__(self, rows: RowSource, recheck: Recheck) -> None:
        self._rows = rows
        self._recheck = recheck

    def read(self, keys: Sequence[Any]) -> dict[Any, Row]:
        """Return the rows, some more than were asked for among them; raises ``SnapshotError``.

        Where it raises, the created pods are still to be looked at.
        """
        batch = self._recheck.due(MAX_IDS - len(keys))
        try:
            rows = self._rows.read(list(dict.fromkeys([*keys, *row_keys(batch)])))
        except Exception as error:
            self._recheck.no_answer(error)
            raise
        self._recheck.saw(batch, rows)
        return rows


def row_keys(batch: Sequence[Entry]) -> list[Any]:
    """The keys of the entries' rows, each once."""
    return list({entry.launch.row_key: None for entry in batch if entry.launch})
