# SPDX-License-Identifier: Apache-2.0
"""A scheduler: Airflow's own job runner and executor, its loop taken step by step by a scenario."""

from __future__ import annotations

import contextlib
import inspect
import logging
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("tests.faults")

END_SECONDS = 40.0


class Scheduler:
    """One scheduler process's worth of objects. The job states and the task states are decided by core.

    ``exits`` counts exceptions that left the loop: they end the process of a real scheduler, so ``loop``
    ends the executor as the runner does and is not called again.
    """

    def __init__(self, make_executors: Callable[[], list[Any]]) -> None:
        from airflow.jobs.job import Job

        self.executors = make_executors()
        self.job = Job()
        self.runner: Any = self._runner()
        self.job.prepare_for_execution()
        self.job_id = int(self.job.id)
        for executor in self.executors:
            executor.job_id = self.job.id
            executor.start()
        self.alive = True
        self.replaced = False
        self.exits = 0
        self.hung = False
        self._background: threading.Thread | None = None

    def _runner(self) -> Any:
        from airflow.jobs.scheduler_job_runner import SchedulerJobRunner

        if "executors" in inspect.signature(SchedulerJobRunner.__init__).parameters:
            return SchedulerJobRunner(job=self.job, executors=self.executors)
        self.job.executors = self.executors  # Airflow 2 and 3.0 have them in the job
        runner: Any = SchedulerJobRunner(job=self.job)
        # it would load the configured executors, one each for the whole process: two schedulers share none
        runner._try_to_load_executor = lambda *_, **__: self.executors[0]
        return runner

    @property
    def executor(self) -> Any:
        return self.executors[0]

    def adopt(self) -> int:
        """What a scheduler does at its start; returns how many task instances were reset."""
        return int(self.runner.adopt_or_reset_orphaned_tasks())

    def schedule(self) -> int:
        """Bring task instances to QUEUED and their workloads into the executor; returns how many."""
        from airflow.utils.session import create_session

        with create_session() as session:
            queued = int(self.runner._do_scheduling(session))
            session.expunge_all()
        return queued

    def heartbeat(self) -> None:
        """Let the executors work: launches and watcher results."""
        for executor in self.executors:
            executor.heartbeat()

    def in_background(self, part: Callable[[], object] | None = None) -> threading.Thread:
        """Begin a part of the loop, a heartbeat where none is given, while the scenario goes on.

        ``await_background`` waits for its end.
        """
        self._background = threading.Thread(target=self.survives, args=(part or self.heartbeat,))
        self._background.start()
        return self._background

    def await_background(self) -> None:
        """Wait for the heartbeat that is under way. Idempotent."""
        if self._background is not None:
            self._background.join()
            self._background = None

    def events(self) -> None:
        """Let core take the executors' events, and its own heartbeat."""
        from airflow.utils.session import create_session

        with create_session() as session:
            for executor in self.executors:
                self.runner._process_executor_events(executor=executor, session=session)
        with create_session() as session:
            for executor in self.executors:
                self.runner._process_task_event_logs(executor._task_event_logs, session)
        self.beat()

    def beat(self) -> None:
        """Say in the database that this scheduler is alive."""
        from airflow.jobs.job import Job
        from airflow.utils import timezone
        from airflow.utils.session import create_session
        from sqlalchemy import update

        with create_session() as session:
            session.execute(
                update(Job).where(Job.id == self.job_id).values(latest_heartbeat=timezone.utcnow())
            )

    def loop(self) -> bool:
        """One turn of the scheduler's loop; False where it ended the scheduler."""
        return self.survives(self._turn)

    def work(self) -> None:
        """The part of a turn after scheduling: the executors, then what core makes of their events."""
        self.heartbeat()
        self.events()

    def _turn(self) -> None:
        self.schedule()
        self.work()

    def survives(self, part: Callable[[], object]) -> bool:
        """Do a part of the loop; an exception ends the scheduler."""
        if not self.alive:
            return False
        try:
            part()
        except Exception:
            log.exception("the scheduler's loop ended")
            self.exits += 1
            self.end()
            return False
        return True

    def stuck(self, after: float = 0.0) -> None:
        """Let core look for task instances that were queued longer than ``after`` seconds ago."""
        self.runner._task_queued_timeout = after
        self.runner._handle_tasks_stuck_in_queued()

    def end(self) -> None:
        """End the executors as the runner does when its loop ended; ``hung`` where that did not return."""
        if not self.alive:
            return
        self.alive = False
        for executor in self.executors:
            ending = threading.Thread(target=self._end_one, args=(executor,), daemon=True)
            ending.start()
            ending.join(END_SECONDS)
            self.hung = self.hung or ending.is_alive()
            if ending.is_alive():
                self.kill(executor)

    @staticmethod
    def _end_one(executor: Any) -> None:
        try:
            executor.end()
        except Exception:
            log.exception("the executor did not end")

    @staticmethod
    def kill(executor: Any) -> None:
        """End the processes of an executor that does not end by itself."""
        watchers = getattr(executor.kube_scheduler, "kube_watchers", {}) or {}
        for process in (*watchers.values(), getattr(executor._manager, "_process", None)):
            with contextlib.suppress(Exception):
                process.kill()

    def crash(self) -> None:
        """End it as SIGKILL would: nothing is flushed, nothing said to the database."""
        if not self.alive:
            return
        self.alive = False
        for executor in self.executors:
            self.kill(executor)
