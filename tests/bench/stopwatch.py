# SPDX-License-Identifier: Apache-2.0
"""Where the time of a scheduler loop goes, measured from outside at seams that every implementation has.

Nothing here knows the guard: it times ``sync()`` of the stock class and of the executor at hand, the five
methods' ``get_nowait`` of the task queue, the stock check where there is one, and the HTTP requests.
"""

from __future__ import annotations

import functools
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Loop:
    """One scheduler loop; times in seconds.

    ``queue`` is spent in ``get_nowait`` (the guard checks there), ``first`` in its first call,
    ``stock_check`` in the stock executor's check, ``around`` outside of the stock ``sync()`` (what the guard
    does before and after creation), ``api`` in requests to the API server, of which ``creates`` were POST.
    ``cpu`` is this process's CPU time.
    """

    total: float = 0.0
    queue: float = 0.0
    first: float = 0.0
    stock_check: float = 0.0
    around: float = 0.0
    api: float = 0.0
    cpu: float = 0.0
    creates: int = 0
    handed_out: int = 0

    @property
    def check(self) -> float:
        """All that deciding costs: taking from the queue, checking, and the check after creation."""
        return self.queue + self.stock_check + self.around

    @property
    def own(self) -> float:
        """The loop without its requests to the API server."""
        return self.total - self.api


@dataclass
class Stopwatch:
    """Times the loops of one started executor."""

    executor: Any
    _loop: Loop = field(default_factory=Loop)
    _stock: float = 0.0

    def __post_init__(self) -> None:
        from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

        executor = self.executor
        executor.task_queue.get_nowait = self._timed_get(executor.task_queue.get_nowait)
        if hasattr(executor, "_should_create_pod_for_job"):
            executor._should_create_pod_for_job = self._timed_check(executor._should_create_pod_for_job)
        rest = executor.kube_client.api_client.rest_client
        rest.request = self._timed_request(rest.request)
        stock = KubernetesExecutor.sync

        @functools.wraps(stock)  # the next executor of the process looks for its seams through it
        def timed_sync(executor: Any) -> None:
            started = time.perf_counter()
            try:
                stock(executor)
            finally:
                self._stock += time.perf_counter() - started

        KubernetesExecutor.sync = timed_sync

    def loop(self) -> Loop:
        """Run one scheduler loop and return its times."""
        self._loop, self._stock = Loop(), 0.0
        started, cpu = time.perf_counter(), time.process_time()
        self.executor.sync()
        self._loop.total, self._loop.cpu = time.perf_counter() - started, time.process_time() - cpu
        self._loop.around = self._loop.total - self._stock
        return self._loop

    def _timed_get(self, inner: Callable[[], Any]) -> Callable[[], Any]:
        def get_nowait() -> Any:
            started = time.perf_counter()
            try:
                job = inner()
                self._loop.handed_out += 1
                return job
            finally:
                spent = time.perf_counter() - started
                self._loop.queue += spent
                self._loop.first = self._loop.first or spent

        return get_nowait

    def _timed_check(self, inner: Callable[[Any], bool]) -> Callable[[Any], bool]:
        def check(job: Any) -> bool:
            started = time.perf_counter()
            try:
                return inner(job)
            finally:
                self._loop.stock_check += time.perf_counter() - started

        return check

    def _timed_request(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        def request(method: str, *arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return inner(method, *arguments, **named)
            finally:
                self._loop.api += time.perf_counter() - started
                self._loop.creates += method == "POST"

        return request
