# SPDX-License-Identifier: Apache-2.0
"""A new token for a workload that waited too long.

The scheduler gives each workload a token for the execution API when it queues the task instance, good
for ``[scheduler] task_queued_timeout`` (Airflow 3.2 and newer) or ``[execution_api]
jwt_expiration_time`` (3.0, 3.1). A worker that comes with an expired one is refused with 403 and its
task fails. The executor holds the generator that the scheduler uses, so it can issue another token for
the same task instance; that is what the scheduler would do when it queued the task instance again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

from airflow_steadfast.launch_guard import token, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_steadfast.launch_guard.entry import Entry
    from airflow_steadfast.launch_guard.launch import Launch

log = logging.getLogger("airflow_steadfast.launch_guard")

REFRESH_BELOW = 120.0
"""Seconds that a token should still be good for at hand-out: a pod needs time to be scheduled and start."""


class TokenRenewal:
    """Renews with one executor's ``jwt_generator``. No method raises: what fails leaves the old token."""

    def __init__(self, executor: Any, wall: Callable[[], float] = time.time) -> None:
        self._executor = executor
        self._wall = wall
        self._failed = False

    def expired(self, entry: Entry) -> bool:
        """Whether the entry's token is no longer good; False where that cannot be told."""
        launch = entry.launch
        return launch is not None and _ends_within(launch, self._wall(), 0.0)

    def renew(self, entry: Entry) -> Any | None:
        """Return a copy of the entry's job with a new token, None where none can be made.

        The executor's launch attempt refers to the copy from now on.
        """
        try:
            return self._renewed(entry)
        except Exception as error:
            if not self._failed:
                self._failed = True
                log.warning("Expired launch tokens cannot be renewed, said once: %s", error)
            return None

    def refresh(self, entry: Entry) -> None:
        """Give the entry's job a new token in place where little of the old one's time is left.

        Little is less than two minutes, or half of a token's time where that is shorter.
        """
        launch = entry.launch
        if launch is None or launch.token_expires_at is None:
            return
        wanted = min(REFRESH_BELOW, (token.lifetime(entry.job.command[0].token) or 0.0) / 2)
        if not _ends_within(launch, self._wall(), wanted):
            return
        job = self.renew(entry)
        if job is not None:
            entry.job = job
            entry.launch = workload.launch_of(job)

    def _renewed(self, entry: Entry) -> Any | None:
        old = entry.job.command[0]
        fresh = _issue(old, self._executor.jwt_generator)
        expires = token.expires_at(fresh)
        if expires is None or expires <= self._wall():
            return None
        job = entry.job._replace(command=[old.model_copy(update={"token": fresh})])
        attempts = getattr(self._executor, "pod_launch_attempts", {})
        attempt = attempts.get(job.key)
        if attempt is not None and attempt.job is entry.job:
            attempt.job = job
        return job


def _ends_within(launch: Launch, now: float, seconds: float) -> bool:
    return launch.token_expires_at is not None and launch.token_expires_at - now <= seconds


def _issue(old: Any, generator: Any) -> str:
    """Issue a token as this Airflow's own ``ExecuteTask.make`` does, for the same task instance.

    Airflow 3.2 and newer have a method for it, which limits scope and time; before, the workload's
    maker calls the generator with the subject alone.
    """
    make = getattr(type(old), "generate_token", None)
    if make is not None:
        return str(make(str(old.ti.id), generator))
    return str(generator.generate({"sub": str(old.ti.id)}))
