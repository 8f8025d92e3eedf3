# SPDX-License-Identifier: Apache-2.0
"""The decision about a pod that has just been created, without side effects.

It is not the decision before creation: the worker may have started, and finished, in the meantime. A
launch is stale only if the row shows that this pod's work is void. RUNNING is never stale, whoever runs;
an owner that changed alone is not, since another scheduler adopts pods with their task instances; a
state in which a task ends up after it ran (success, failed, up_for_retry, deferred, ...) is not, since
it may have run in this very pod.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_steadfast.launch_guard.verdict import QUEUED, Verdict

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.launch import LaunchId
    from airflow_steadfast.launch_guard.rows import Row

NEVER_RAN: frozenset[str | None] = frozenset({None, "scheduled", "removed", "upstream_failed"})
"""States that a task instance gets only from outside of a worker: cleared, requeued, taken out."""


def judge_created(launch: LaunchId, row: Row | None) -> Verdict:
    """Compare a created launch with its task instance row; a reason means that its pod is void."""
    if row is None:
        return Verdict("task_instance_missing")
    if row.state == "running":
        return Verdict(None, row)
    if row.try_number != launch.try_number:
        return Verdict("try_superseded", row)
    if row.state in NEVER_RAN:
        return Verdict("state_changed", row)
    if row.state == QUEUED and _queued_anew(launch, row):
        return Verdict("superseded", row)
    return Verdict(None, row)


def _queued_anew(launch: LaunchId, row: Row) -> bool:
    if launch.queued_dttm is None or row.queued_dttm is None:
        return False
    return launch.queued_dttm != row.queued_dttm
