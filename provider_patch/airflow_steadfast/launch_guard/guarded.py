# SPDX-License-Identifier: Apache-2.0
"""The guarded executor: the stock one with another queue in the place of ``task_queue``.

Constructing it does what the stock executor does and nothing else, because the API server constructs
executors too; the guard comes with ``start()``. Nothing of the guard raises into the scheduler's loop.
"""

from __future__ import annotations

import functools
import inspect
import time
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor
from airflow.utils.session import create_session

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import stranded
from airflow_steadfast.launch_guard.attach import attach
from airflow_steadfast.launch_guard.workload import ti_id_of

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.guard import Guard


class GuardedKubernetesExecutor(KubernetesExecutor):
    """``KubernetesExecutor`` that launches no pod for work that has moved on."""

    _steadfast_guard: Guard | None = None
    _steadfast_lists_nothing = False

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
        guard.begin_loop()
        try:
            super().sync()
        finally:
            guard.end_loop(self.running)
            signals.totals().flush()

    def _should_create_pod_for_job(self, task: Any) -> bool:
        """Replace the stock check (provider 10.23 and newer) for jobs that the guard decided about."""
        if self._steadfast_guard is not None and self._steadfast_guard.vouches_for(task):
            return True
        return bool(super()._should_create_pod_for_job(task))

    def _change_state(self, results: Any, *args: Any, **kwargs: Any) -> None:
        """Take a pod's end for a launch's only if it is the pod of the key's current launch."""
        guard = self._steadfast_guard
        if guard is None or guard.observe:
            super()._change_state(results, *args, **kwargs)
            return
        handling = guard.handling(results)
        if handling == "tidy":
            guard.results.tidy(results)
        elif handling == "native" and guard.results.silent:
            guard.results.postpone(results)
        elif handling == "native":
            started = time.monotonic()
            try:
                super()._change_state(results, *args, **kwargs)
            except Exception as error:
                guard.results.refused(results, error, time.monotonic() - started)
            else:
                guard.quietly(lambda: guard.results.handled(results))

    def adopt_launched_task(self, kube_client: Any, pod: Any, tis_to_flush_by_key: dict[Any, Any]) -> None:
        """Adopt as the stock executor does; the adopted pod's launch is none of the guard's."""
        guard, before = self._steadfast_guard, dict(tis_to_flush_by_key)
        super().adopt_launched_task(kube_client, pod, tis_to_flush_by_key)
        if guard is not None:
            for key in before.keys() - tis_to_flush_by_key.keys():
                guard.quietly(functools.partial(self._steadfast_adopted, guard, before[key], pod))

    def _steadfast_adopted(self, guard: Guard, ti: Any, pod: Any) -> None:
        guard.adopted(self._steadfast_key(ti), ti, pod)

    def _alive_other_scheduler_job_ids(self) -> set[int]:
        """Answer for Airflow 2, whose ``create_session`` lacks the parameter that the stock query needs."""
        guard = self._steadfast_guard
        if guard is None or "scoped" in inspect.signature(create_session).parameters:
            return set(super()._alive_other_scheduler_job_ids())
        return guard.alive_schedulers(stranded.health_threshold())

    def _steadfast_key(self, ti: Any) -> Any:
        """The key of a task instance in this executor's books."""
        return self.get_task_key(ti) if getattr(self, "supports_task_instance_uuid", False) else ti.key

    def _flush_task_queue(self) -> None:
        """Empty the queue without asking the database, which may be gone by now."""
        guard = self._steadfast_guard
        if guard is None:
            super()._flush_task_queue()
            return
        guard.queue.drain(draining=True)
        guard.quietly(guard.results.put_back)
        try:
            super()._flush_task_queue()
        finally:
            guard.queue.drain(draining=False)

    def revoke_task(self, *, ti: Any) -> None:
        """Revoke as the stock executor does, after the task instance's queued jobs have left the queue.

        An API server that fails ends no scheduler: what it refuses is tried again.
        """
        guard = self._steadfast_guard
        if guard is None or guard.observe:
            super().revoke_task(ti=ti)
            return
        guard.quietly(lambda: guard.queue.purge(ti_id_of(ti)))
        if guard.revocations.silent:
            guard.quietly(lambda: guard.revocations.postpone(ti))
            self._steadfast_lists_nothing = True
        started = time.monotonic()
        try:
            super().revoke_task(ti=ti)
        except Exception as error:
            guard.revocations.refused(ti, error, time.monotonic() - started)
        finally:
            self._steadfast_lists_nothing = False
            guard.quietly(lambda: guard.revoked_by_scheduler(self._steadfast_key(ti)))

    def _list_pods(self, query_kwargs: Any) -> Any:
        """List pods; none for a revocation that clears the books and leaves a silent server alone."""
        return [] if self._steadfast_lists_nothing else super()._list_pods(query_kwargs)

    def end(self) -> None:
        """End the stock executor, write the totals a last time, close the guard's connection."""
        guard = self._steadfast_guard
        try:
            super().end()
        finally:
            if guard is not None:
                guard.close()
