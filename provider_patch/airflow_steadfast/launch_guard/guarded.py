# SPDX-License-Identifier: Apache-2.0
"""The guarded executor: the stock one with another queue in the place of ``task_queue``.

Constructing it does what the stock executor does and nothing else, because the API server constructs
executors too; the guard comes with ``start()``. Nothing of the guard raises into the scheduler's loop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

from airflow_steadfast import signals
from airflow_steadfast.launch_guard.attach import Guard, attach
from airflow_steadfast.launch_guard.workload import ti_id_of

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("airflow_steadfast.launch_guard")


class GuardedKubernetesExecutor(KubernetesExecutor):
    """``KubernetesExecutor`` that launches no pod for work that has moved on."""

    _steadfast_guard: Guard | None = None

    def start(self) -> None:
        """Start the stock executor, then put the guard in."""
        super().start()
        self._steadfast_guard = attach(self, KubernetesExecutor)

    def sync(self) -> None:
        """Run one stock loop between the guard's begin and end."""
        guard = self._steadfast_guard
        if guard is None:
            super().sync()
            return
        _quietly(guard.begin_loop)
        try:
            super().sync()
        finally:
            _quietly(lambda: guard.end_loop(self.running))
            signals.totals().flush()

    def _should_create_pod_for_job(self, task: Any) -> bool:
        """Replace the stock check (provider 10.23 and newer) for jobs that the guard decided about."""
        if self._steadfast_guard is not None and self._steadfast_guard.vouches_for(task):
            return True
        return bool(super()._should_create_pod_for_job(task))

    def _flush_task_queue(self) -> None:
        """Empty the queue without asking the database, which may be gone by now."""
        guard = self._steadfast_guard
        if guard is None:
            super()._flush_task_queue()
            return
        guard.queue.drain(draining=True)
        try:
            super()._flush_task_queue()
        finally:
            guard.queue.drain(draining=False)

    def revoke_task(self, *, ti: Any) -> None:
        """Revoke as the stock executor does, after the task instance's queued jobs have left the queue."""
        guard = self._steadfast_guard
        if guard is not None and not guard.observe:
            _quietly(lambda: guard.queue.purge(ti_id_of(ti)))
        super().revoke_task(ti=ti)

    def end(self) -> None:
        """End the stock executor, write the totals a last time, close the guard's connection."""
        guard = self._steadfast_guard
        try:
            super().end()
        finally:
            if guard is not None:
                guard.close()


def _quietly(action: Callable[[], None]) -> None:
    try:
        action()
    except Exception:
        log.exception("The launch guard's bookkeeping failed, the scheduler goes on")
