# SPDX-License-Identifier: Apache-2.0
"""The launch guard's decision, without side effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.launch import Launch, LaunchId
    from airflow_steadfast.launch_guard.rows import Row

DropReason = Literal[
    "task_instance_missing",
    "try_superseded",
    "state_changed",
    "owner_changed",
    "superseded",
    "token_expired",
    "other",
]
QUEUED = "queued"


@dataclass(frozen=True)
class Verdict:
    """``reason`` is why the launch is stale, None where it is fresh; ``row`` is what the database said."""

    reason: DropReason | None
    row: Row | None = None

    @property
    def fresh(self) -> bool:
        """Whether the launch may be made."""
        return self.reason is None


def judge(launch: Launch, row: Row | None, job_id: int) -> Verdict:
    """Compare a launch with its task instance row.

    Four checks, the most telling one first: the row is gone (cleared into a new id, run deleted), its
    try is another, it is no longer queued, another scheduler owns it.
    """
    if row is None:
        return Verdict("task_instance_missing")
    if row.try_number != launch.try_number:
        return Verdict("try_superseded", row)
    if row.state != QUEUED:
        return Verdict("state_changed", row)
    if row.queued_by_job_id != job_id:
        return Verdict("owner_changed", row)
    return Verdict(None, row)


def order_replaced(launch_id: LaunchId | None, row: Row | None) -> bool:
    """Whether a launch that was tried before belongs to an order that its scheduler has replaced.

    Its identity was fixed by the first try to create its pod; by now the task instance was taken out of
    the queue and queued again, for which the scheduler hands over a workload of its own.
    """
    if launch_id is None or row is None or launch_id.queued_dttm is None or row.queued_dttm is None:
        return False
    return launch_id.queued_dttm != row.queued_dttm
