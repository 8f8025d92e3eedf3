# SPDX-License-Identifier: Apache-2.0
"""The identity of one launch, and which launch an executor's key stands for now.

A key of the executor (Dag, task, run, try, map index; below Airflow 3.4) outlives a task instance: a
run that is deleted and triggered again under its run id has the same keys with other ids. So what is
kept under a key may be forgotten only together with the launch that it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable

PRUNE_ABOVE = 1_000
"""Entries of the registry beyond twice the live keys that make it look for dead ones."""


@dataclass(frozen=True)
class Launch:
    """What one queued workload was made for: a task instance (its immutable id) and a try of it.

    ``key`` is the task instance's Dag, task, run, try and map index, as the audit log wants it.
    """

    ti_id: str
    try_number: int
    key: Any

    @property
    def identity(self) -> tuple[str, int]:
        """Equal for two copies of the same launch order, whichever of them is newer."""
        return self.ti_id, self.try_number

    def __str__(self) -> str:
        key = self.key
        return (
            f"dag_id={key.dag_id} task_id={key.task_id} run_id={key.run_id} map_index={key.map_index} "
            f"try_number={self.try_number} task_instance_id={self.ti_id}"
        )


class CurrentLaunches:
    """The newest job of each key; jobs are compared as objects, because equal ones may be two launches."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, Any] = {}

    def begin(self, key: Hashable, job: Any) -> None:
        """Make ``job`` the launch that ``key`` stands for."""
        self._jobs[key] = job

    def is_current(self, key: Hashable, job: Any) -> bool:
        """Whether what is kept under ``key`` belongs to ``job``."""
        return self._jobs.get(key) is job

    def forget(self, key: Hashable, job: Any) -> None:
        """Drop the entry, unless the key stands for another job by now."""
        if self.is_current(key, job):
            del self._jobs[key]

    def prune(self, live: Callable[[], Collection[Hashable]], live_count: int) -> None:
        """Forget keys that are neither running nor queued, once there are many; ``live`` names the rest."""
        if len(self._jobs) <= 2 * live_count + PRUNE_ABOVE:
            return
        kept = live()
        self._jobs = {key: job for key, job in self._jobs.items() if key in kept}
