# SPDX-License-Identifier: Apache-2.0
"""Real task instances in a real metadata database, and workloads for them as the scheduler makes them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.executors.workloads import ExecuteTask
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from airflow.utils.types import DagRunTriggeredByType, DagRunType
from sqlalchemy import delete, select, update

if TYPE_CHECKING:
    from collections.abc import Sequence

BUNDLE = "tests"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)


@dataclass
class QueuedTasks:
    """One Dag of many tasks; its runs and what happens to them, committed as another process would."""

    size: int = 8
    dag_id: str = "guarded"
    _runs: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        with DAG(self.dag_id, schedule=None, start_date=START) as dag:
            for number in range(self.size):
                EmptyOperator(task_id=f"task_{number}")
        with create_session() as session:
            session.add(DagBundleModel(name=BUNDLE))
            session.flush()
            session.add(DagModel(dag_id=self.dag_id, bundle_name=BUNDLE))
            session.flush()
            SerializedDagModel.write_dag(
                LazyDeserializedDAG.from_dag(dag), bundle_name=BUNDLE, session=session
            )

    def run(self, run_id: str = "") -> list[str]:
        """Create a run and return the ids of its task instances, in the tasks' order."""
        run_id = run_id or f"run_{next(self._runs)}"
        with create_session() as session:
            dag = SerializedDagModel.get(self.dag_id, session=session).dag
            run = dag.create_dagrun(
                run_id=run_id,
                run_after=START,
                run_type=DagRunType.MANUAL,
                triggered_by=DagRunTriggeredByType.TEST,
                state=DagRunState.RUNNING,
                session=session,
            )
            found = run.get_task_instances(session=session)
            return [str(ti.id) for ti in sorted(found, key=lambda ti: int(ti.task_id.split("_")[1]))]

    def queue(self, ids: Sequence[str], job_id: int = 1) -> list[ExecuteTask]:
        """Let scheduler ``job_id`` queue them (a first try where they had none); return its workloads."""
        with create_session() as session:
            found = {str(ti.id): ti for ti in session.scalars(_with_ids(ids))}
            for ti in found.values():
                ti.state = TaskInstanceState.QUEUED
                ti.try_number = ti.try_number or 1
                ti.queued_by_job_id = job_id
                ti.queued_dttm = datetime.now(timezone.utc)
            session.flush()
            return [ExecuteTask.make(found[ti_id]) for ti_id in ids]

    def change(self, ids: Sequence[str], **columns: Any) -> None:
        """Change columns behind the executor's back."""
        with create_session() as session:
            session.execute(update(TaskInstance).where(TaskInstance.id.in_(_uuids(ids))).values(**columns))

    def clear(self, ids: Sequence[str]) -> list[str]:
        """Clear them as a user does; return the ids that they have now."""
        with create_session() as session:
            found = list(session.scalars(_with_ids(ids)))
            clear_task_instances(found, session)
            session.flush()
            return [str(ti.id) for ti in found]

    def delete_run(self, run_id: str) -> None:
        from airflow.models.dagrun import DagRun

        with create_session() as session:
            session.execute(delete(TaskInstance).where(TaskInstance.run_id == run_id))
            session.execute(delete(DagRun).where(DagRun.run_id == run_id))


def _uuids(ids: Sequence[str]) -> list[Any]:
    python_type = TaskInstance.id.type.python_type
    return [python_type(ti_id) for ti_id in ids]


def _with_ids(ids: Sequence[str]) -> Any:
    return select(TaskInstance).where(TaskInstance.id.in_(_uuids(ids)))
