# SPDX-License-Identifier: Apache-2.0
"""The stage on Airflow 2: Dags, a scheduler and workers as they are there. It has no Execution API."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from tests.faults.dags import START
from tests.faults.scheduler import Scheduler
from tests.faults.stage import ALIAS, RUN, Stage
from tests.faults.table import Row, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults import dags
    from tests.faults.kube import Pods


class Scheduler2(Scheduler):
    """Airflow 2's loop: the executors' heartbeat is inside the session that scheduled."""

    def _runner(self) -> Any:
        self.job.executor = self.executors[0]
        return super()._runner()

    def heartbeat(self) -> None:
        """Let the executors work, inside an open session of the scheduler's."""
        from airflow.utils.session import create_session

        with create_session() as session:
            super().heartbeat()
            session.expunge_all()


@dataclass
class Workers2:
    """What runs in a worker pod: it sees and sets its task instance in the database, by primary key."""

    table: Table
    pods: Pods
    refused: Counter[int] = field(default_factory=Counter)

    def play(self) -> int:
        """Start the worker of each pending pod and let it succeed; returns how many moved."""
        self.pods.reap()
        moved = 0
        for pod in self.pods.pending():
            said = pod["metadata"]["annotations"]
            row = Row("", said["task_id"], said["run_id"], int(said.get("map_index", -1)), 0, None, None)
            self.pods.bind(pod)
            self.pods.started(pod)
            ran = self.table.change([row], "state = 'success', end_date = now()", "state = 'queued'")
            self.pods.finished(pod, 0 if ran else 1)
            moved += 1
        return moved


class Stage2(Stage):
    """See the module's text."""

    with_ids = False

    def _open_api(self) -> Any:
        return None

    def _workers(self) -> Any:
        return Workers2(self.table, self.pods)

    def close(self) -> None:
        """There is nothing to close."""

    def scheduler(self, *, aliases: Sequence[str] = (ALIAS,)) -> Scheduler:
        """Start a scheduler with one executor for each alias."""
        scheduler = Scheduler2(lambda: [self._executor(alias) for alias in aliases])
        self.schedulers.append(scheduler)
        return scheduler

    def dag(self, kind: dags.Kind = "plain", size: int = 0, executors: Sequence[str] = ()) -> None:
        """Store the Dag and start its run; there are only plain ones here."""
        from airflow.models.dag import DAG, DagModel
        from airflow.models.serialized_dag import SerializedDagModel
        from airflow.operators.bash import BashOperator
        from airflow.utils.session import create_session
        from airflow.utils.state import DagRunState
        from airflow.utils.types import DagRunType

        assert kind == "plain"
        assert not executors
        with DAG(self.dag_id, schedule=None, start_date=START, max_active_tasks=10_000) as dag:  # noqa: AIR311 - Airflow 2's own name
            for number in range(size or self.size):
                BashOperator(task_id=f"t{number}", bash_command="true")  # noqa: AIR312 - the same
        with create_session() as session:
            session.add(
                DagModel(dag_id=self.dag_id, is_paused=False, is_active=True, max_active_tasks=10_000)
            )
            session.flush()
            SerializedDagModel.write_dag(dag, session=session)
            session.flush()
            moment = START + timedelta(minutes=1)
            stored = SerializedDagModel.get(self.dag_id, session=session)
            assert stored is not None
            stored.dag.create_dagrun(
                run_id=RUN,
                run_type=DagRunType.MANUAL,
                state=DagRunState.RUNNING,
                execution_date=moment,
                data_interval=(moment, moment),
                session=session,
            )

    def clear_rows(self, rows: Sequence[Row]) -> None:
        """Clear task instances as a user does."""
        from airflow.models.taskinstance import TaskInstance, clear_task_instances
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            found = session.scalars(
                select(TaskInstance).where(
                    TaskInstance.dag_id == self.dag_id,
                    TaskInstance.run_id == RUN,
                    TaskInstance.task_id.in_([row.task_id for row in rows]),
                )
            ).all()
            clear_task_instances(list(found), session)
