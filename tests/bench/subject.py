# SPDX-License-Identifier: Apache-2.0
"""One executor under measurement, in a process and an environment of its own: ``-m tests.bench.subject``.

It takes orders over a socket named in BENCH_SOCKET, so that several implementations can be measured in
turn, and in different environments. It imports nothing of the patch unless it is told to run it.
"""

from __future__ import annotations

import dataclasses
import os
import time
from multiprocessing.connection import Client
from typing import Any

from tests.bench.stopwatch import Stopwatch
from tests.support.queued_tasks import QueuedTasks

JOB_ID = 1
_SETTLED_LOOPS = 3


class Subject:
    """The orders; each method is one, its arguments and answers are plain values."""

    def __init__(self) -> None:
        # made by the orders "prepare", "start" and "scheduler_loops"
        self._tasks: Any = None
        self._executor: Any = None
        self._watch: Any = None
        self._scheduler: Any = None

    def prepare(self) -> None:
        """Put one Dag with one run of one task into the database."""
        self._tasks = QueuedTasks(size=1, dag_id="bench")
        self._tasks.run()

    def start(self, guarded: bool) -> str:
        """Start the executor; returns the versions at work."""
        from airflow.providers.cncf.kubernetes import __version__
        from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

        kind: Any = KubernetesExecutor
        if guarded:
            from airflow_steadfast.launch_guard.executor import GuardedKubernetesExecutor

            kind = GuardedKubernetesExecutor
        executor = kind(parallelism=100_000)
        executor.job_id = JOB_ID
        executor.start()
        if guarded and getattr(executor, "_steadfast_guard", None) is None:
            raise RuntimeError("the guard is not active: its log says why")
        # a loop of its own kind, every 300 s and the same in every implementation
        executor._last_completed_pod_adoption = float("inf")
        self._executor, self._watch = executor, Stopwatch(executor)
        return f"provider {__version__}"

    def configure(self, batch: int, concurrent: bool = False) -> None:
        """Set the creation batch, and whether pods are created by the asynchronous client."""
        self._executor.kube_config.worker_pods_creation_batch_size = batch
        self._executor.kube_config.async_pod_creation = concurrent
        self._executor.kube_scheduler.pod_creation_max_concurrency = min(batch, 16)

    def submit(self, ids: list[str]) -> None:
        """Queue them in the database as this scheduler's, and hand the workloads to the executor."""
        for workload in self._queued(ids):
            self._executor.queue_workload(workload, None)
        self._executor.trigger_tasks(len(ids))

    def _queued(self, ids: list[str]) -> list[Any]:
        """Return the workloads with launch tokens, as the scheduler makes them."""
        generator = self._executor.jwt_generator
        workloads: list[Any] = self._tasks.queue(ids, JOB_ID)
        for workload in workloads:
            workload.token = workload.generate_token(str(workload.ti.id), generator)
        return workloads

    def change(self, ids: list[str], state: str) -> None:
        """Change the state behind the executor's back."""
        self._tasks.change(ids, state=state)

    def loops(self, count: int) -> list[dict[str, Any]]:
        """Run that many scheduler loops; returns the times of each."""
        return [dataclasses.asdict(self._watch.loop()) for _ in range(count)]

    def scheduler_loops(self, count: int) -> list[dict[str, Any]]:
        """Run whole scheduler loops with nothing to schedule; ``total`` and ``cpu`` are the whole loop's.

        The steps are those of the scheduler's own loop, without its sleep where nothing was queued.
        """
        from airflow.utils.session import create_session

        found = []
        runner = self._scheduler = self._scheduler or self._make_scheduler()
        for _ in range(count):
            started, cpu = time.perf_counter(), time.process_time()
            with create_session() as session:
                runner._do_scheduling(session)
                session.expunge_all()
            times = dataclasses.asdict(self._watch.loop())
            with create_session() as session:
                runner._process_executor_events(executor=self._executor, session=session)
            whole = {"total": time.perf_counter() - started, "cpu": time.process_time() - cpu}
            found.append({**times, **whole})
        return found

    def _make_scheduler(self) -> Any:
        """Return the scheduler's own runner, with its job in the database and the Dag paused."""
        from airflow.jobs.job import Job
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
        from airflow.models.dag import DagModel
        from airflow.utils.session import create_session
        from sqlalchemy import update

        job = Job()
        with create_session() as session:
            session.add(job)
            session.execute(update(DagModel).values(is_paused=True))
            session.flush()
            if job.id != JOB_ID:
                raise RuntimeError(f"the scheduler's job is {job.id}, the executor was started for {JOB_ID}")
            session.expunge(job)
        return SchedulerJobRunner(job=job, executors=[self._executor])

    def until_created(self, limit: int) -> int:
        """Run loops until one has created a pod; returns how many it took, that one included."""
        for number in range(1, limit + 1):
            if self._watch.loop().creates:
                return number
        raise RuntimeError(f"no pod in {limit} loops")

    def settle(self) -> None:
        """After the pods are gone: take what the watchers report, then forget the tasks."""
        executor = self._executor
        executor._flush_task_queue()
        quiet = 0
        while quiet < _SETTLED_LOOPS:
            before = len(executor.running)
            executor.sync()
            quiet = quiet + 1 if len(executor.running) == before else 0
            time.sleep(0.1)
        for book in ("running", "event_buffer", "pod_launch_attempts", "task_publish_retries"):
            getattr(executor, book, set()).clear()
        # the scheduler would have saved them
        executor._task_event_logs.clear()

    def forget(self) -> None:
        """Forget what is still queued, so that the next loop checks the next batch alone."""
        self._executor._flush_task_queue()
        self._clear_books()

    def _clear_books(self) -> None:
        for book in ("running", "event_buffer", "pod_launch_attempts", "task_publish_retries"):
            getattr(self._executor, book, set()).clear()
        # the scheduler would have saved them
        self._executor._task_event_logs.clear()

    def statement(self) -> str:
        """Run a loop and return its first SELECT from a table with the values put in, for EXPLAIN."""
        from sqlalchemy import event
        from sqlalchemy.engine import Engine

        found: list[str] = []

        def note(_c: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
            # the guard's own has a time limit before it, in the same message
            _, select, rest = statement.partition("SELECT ")
            if "FROM" in rest:
                found.append(cursor.mogrify(select + rest, parameters).decode())

        event.listen(Engine, "before_cursor_execute", note)
        try:
            self._watch.loop()
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        return found[0] if found else ""

    def stop(self) -> None:
        """End the executor."""
        if self._executor is not None:
            self._executor.end()


def main() -> None:
    """Carry out orders until told to stop; an order that fails answers with the error's text."""
    subject = Subject()
    with Client(os.environ["BENCH_SOCKET"], authkey=os.environ["BENCH_KEY"].encode()) as driver:
        while True:
            order, arguments = driver.recv()
            try:
                driver.send((True, getattr(subject, order)(**arguments)))
            except Exception as error:
                import traceback

                traceback.print_exc()
                driver.send((False, f"{type(error).__name__}: {error}"))
            if order == "stop":
                return


if __name__ == "__main__":
    main()
