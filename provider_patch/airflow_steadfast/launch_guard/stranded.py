# SPDX-License-Identifier: Apache-2.0
"""Counts task instances that were dropped for another owner, and that no living owner has.

A drop as ``owner_changed`` trusts that the new owner launches the task instance. One that stays QUEUED,
as it was queued then, without an owner or with an owner whose job is not alive, is stranded: the
scheduler's own recovery (adopting orphans) does not find a task instance without an owner.
"""

from __future__ import annotations

import logging
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.rows import by_primary_key, row_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.verdict import Verdict

log = logging.getLogger("airflow_steadfast.launch_guard")

INTERVAL = 30.0
"""Seconds between two looks, and before the first: the new owner gets that long to act."""

MOST = 1_000
"""Task instances that are remembered; beyond it the oldest is forgotten."""

_counts: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


@dataclass(frozen=True)
class Queued:
    """A task instance that is still QUEUED; ``owner_alive`` is False without an owner."""

    queued_dttm: datetime | None
    owner_alive: bool


class Stranded:
    """``look`` returns those of at most 1,000 row keys that are still queued; it may raise."""

    def __init__(
        self, look: Callable[[Sequence[Any]], dict[Any, Queued]], clock: Callable[[], float]
    ) -> None:
        self._look = look
        self._clock = clock
        self._dropped: dict[Any, datetime | None] = {}
        self._next_at = 0.0

    def dropped(self, entry: Entry, verdict: Verdict) -> None:
        """Note a drop; only those for another owner matter."""
        if verdict.reason != "owner_changed" or verdict.row is None or entry.launch is None:
            return
        if not self._dropped:
            self._next_at = self._clock() + INTERVAL
        elif len(self._dropped) >= MOST:
            del self._dropped[next(iter(self._dropped))]
        self._dropped[entry.launch.row_key] = verdict.row.queued_dttm

    def end_loop(self) -> None:
        """Look, if there is anything to look for and it is time, and set the gauge. Never raises."""
        if not self._dropped or self._clock() < self._next_at:
            return
        self._next_at = self._clock() + INTERVAL
        try:
            found = self._look(list(self._dropped))
        except Exception:
            log.debug("stranded task instances cannot be looked for now", exc_info=True)
            return
        self._dropped = {
            key: queued_dttm
            for key, queued_dttm in self._dropped.items()
            if key in found and found[key].queued_dttm == queued_dttm
        }
        self._publish(sum(not found[key].owner_alive for key in self._dropped))

    def _publish(self, count: int) -> None:
        if count and not _counts.get(self):
            log.warning("%d task instances are queued and no living scheduler has them", count)
        _counts[self] = count
        signals.totals().set_gauge("steadfast_stranded_task_instances", sum(_counts.values()))


def query(keys: Iterable[Any]) -> Any:
    """Return the SELECT of ``look``: those still queued, with their owner's job."""
    from airflow.jobs.job import Job
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    primary_key, found = by_primary_key(keys)
    return (
        select(*primary_key, TaskInstance.queued_dttm, Job.state, Job.latest_heartbeat)
        .select_from(TaskInstance)
        .outerjoin(Job, Job.id == TaskInstance.queued_by_job_id)
        .where(found, TaskInstance.state == "queued")
    )


def as_queued(result: Iterable[Any], alive_since: datetime) -> dict[Any, Queued]:
    """Return the SELECT's lines by row key; a job is alive that runs and beat since ``alive_since``."""
    found: dict[Any, Queued] = {}
    for *primary_key, queued_dttm, job_state, beat in result:
        running = str(getattr(job_state, "value", job_state)) == "running"
        found[row_key(primary_key)] = Queued(
            queued_dttm, running and beat is not None and beat >= alive_since
        )
    return found


def query_schedulers(alive_since: datetime) -> Any:
    """Return the SELECT of the job ids of schedulers that run and beat since ``alive_since``."""
    from airflow.jobs.job import Job
    from sqlalchemy import select

    return select(Job.id).where(
        Job.job_type == "SchedulerJob", Job.state == "running", Job.latest_heartbeat >= alive_since
    )


def health_threshold() -> float:
    """Return for how many seconds without a heartbeat a scheduler counts as alive."""
    from airflow.configuration import conf

    return float(conf.getint("scheduler", "scheduler_health_check_threshold"))


def forget_all() -> None:
    """Forget every executor's count (tests)."""
    _counts.clear()
