# SPDX-License-Identifier: Apache-2.0
"""What a dropped launch leaves behind: nothing in the executor, a line in the log, a row in the audit log.

The executor keeps its books by key, and a key may stand for a newer, live launch by now. So the books
are cleared only where they are this launch's own.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.queue import GuardedQueue
    from airflow_steadfast.launch_guard.verdict import Verdict

log = logging.getLogger("airflow_steadfast.launch_guard")

AUDIT_EVENT = "steadfast stale launch dropped"


def clear_books(executor: Any, entry: Entry, verdict: Verdict, queue: GuardedQueue, job_id: int) -> None:
    """Clear what the executor keeps for this launch: running, QUEUED event, attempt, publish retries.

    Nothing is cleared for a launch that is not its key's current one, and what another launch of the
    same key still needs stays: its slot in ``running``, and its attempt.
    """
    job = entry.job
    key = job.key
    if queue.launches.current(key) is not entry:
        return
    other = queue.other_live(entry)
    attempts = getattr(executor, "pod_launch_attempts", {})
    attempt = attempts.get(key)
    if attempt is not None and attempt.job is job:
        if other is None:
            attempts.pop(key, None)
        else:
            attempt.job = other.job
    retries = getattr(executor, "task_publish_retries", None)
    if retries is not None:
        retries.pop(key, None)
    event = executor.event_buffer.get(key)
    if event is not None and str(getattr(event[0], "value", event[0])) == "queued":
        executor.event_buffer.pop(key, None)
    if other is None and not _runs_under_this_scheduler(entry, verdict, job_id):
        executor.running.discard(key)


def _runs_under_this_scheduler(entry: Entry, verdict: Verdict, job_id: int) -> bool:
    """Whether an earlier pod of the same try is at work and its end is still to arrive under this key."""
    row = verdict.row
    return (
        row is not None
        and entry.launch is not None
        and row.state == "running"
        and row.try_number == entry.launch.try_number
        and row.queued_by_job_id == job_id
    )


def report(executor: Any, entry: Entry, verdict: Verdict, job_id: int) -> list[Any]:
    """Write the log line, and the audit-log row through the executor's own channel.

    Returns the pending rows. The caller keeps them until the scheduler has saved them: it hands them
    to SQLAlchemy through a generator, and an object that nobody else refers to is saved as an empty row,
    which the database refuses (seen with Airflow 3.3.2 and SQLAlchemy 2).
    """
    row = verdict.row
    log.info(
        "Dropped a stale launch: reason=%s %s scheduler_job_id=%s state=%s "
        "row_try_number=%s queued_by_job_id=%s queued_dttm=%s",
        verdict.reason,
        entry.launch,
        job_id,
        row.state if row else None,
        row.try_number if row else None,
        row.queued_by_job_id if row else None,
        row.queued_dttm if row else None,
    )
    if entry.launch is None:
        return []
    extra: dict[str, Any] = {
        "reason": verdict.reason,
        "task_instance_id": entry.launch.ti_id,
        "try_number": entry.launch.try_number,
        "scheduler_job_id": job_id,
    }
    if row is not None:
        extra["now"] = {
            "state": row.state,
            "try_number": row.try_number,
            "queued_by_job_id": row.queued_by_job_id,
        }
    executor.log_task_event(event=AUDIT_EVENT, extra=json.dumps(extra), ti_key=entry.launch.key)
    pending = getattr(executor, "_task_event_logs", ())
    return [pending[-1]] if pending else []
