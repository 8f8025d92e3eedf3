# SPDX-License-Identifier: Apache-2.0
"""Dags of many alike tasks in the database, and what users do to their runs. Airflow 3."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

BUNDLE = "faults"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
Kind = Literal["plain", "sensor", "mapped", "fixed_name"]


def store(dag_id: str, size: int, kind: Kind = "plain", executors: Sequence[str] = ()) -> None:
    """Store a Dag of ``size`` task instances as the dag processor does.

    There are no retries, but one for "fixed_name", whose pods are named by ``pod_override``.
    ``executors`` are given to the tasks in turn.
    """
    from airflow.models.dag import DagModel
    from airflow.models.dagbundle import DagBundleModel
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.providers.standard.operators.bash import BashOperator
    from airflow.providers.standard.sensors.bash import BashSensor
    from airflow.sdk import DAG
    from airflow.serialization.serialized_objects import LazyDeserializedDAG
    from airflow.utils.session import create_session
    from kubernetes.client import models as k8s

    with DAG(
        dag_id, schedule=None, start_date=START, max_active_tasks=10_000, default_args={"retries": 0}
    ) as dag:
        if kind == "mapped":
            BashOperator.partial(task_id="mapped").expand(
                bash_command=[f"echo {number}" for number in range(size)]
            )
        for number in range(0 if kind == "mapped" else size):
            more: dict[str, Any] = {"executor": executors[number % len(executors)]} if executors else {}
            if kind == "sensor":
                BashSensor(task_id=f"t{number}", bash_command="true", mode="reschedule", poke_interval=0.1)
            elif kind == "fixed_name":
                name = k8s.V1ObjectMeta(name=f"fixed-{number}")
                more = {"executor_config": {"pod_override": k8s.V1Pod(metadata=name)}}
                BashOperator(
                    task_id=f"t{number}",
                    bash_command="true",
                    retries=1,
                    retry_delay=timedelta(milliseconds=1),
                    **more,
                )
            else:
                BashOperator(task_id=f"t{number}", bash_command="true", **more)
    with create_session() as session:
        if session.get(DagBundleModel, BUNDLE) is None:
            session.add(DagBundleModel(name=BUNDLE))
            session.flush()
        session.add(
            DagModel(
                dag_id=dag_id,
                bundle_name=BUNDLE,
                relative_fileloc="faults.py",
                is_paused=False,
                is_stale=False,
                max_active_tasks=10_000,
            )
        )
        session.flush()
        stored: Any = LazyDeserializedDAG.from_dag(dag) if hasattr(LazyDeserializedDAG, "from_dag") else dag
        SerializedDagModel.write_dag(stored, bundle_name=BUNDLE, session=session)  # the Dag itself on 3.0


def trigger(dag_id: str, run_id: str) -> None:
    """Create a running run."""
    from airflow.models.serialized_dag import SerializedDagModel
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    with create_session() as session:
        found = SerializedDagModel.get(dag_id, session=session)
        assert found is not None
        found.dag.create_dagrun(
            run_id=run_id,
            run_after=START,
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.RUNNING,
            session=session,
        )


def clear(dag_id: str, run_id: str, task_ids: Sequence[str], map_indexes: Sequence[int] = (-1,)) -> None:
    """Clear task instances as a user does."""
    from airflow.models.taskinstance import TaskInstance, clear_task_instances
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        found = session.scalars(
            select(TaskInstance).where(
                TaskInstance.dag_id == dag_id,
                TaskInstance.run_id == run_id,
                TaskInstance.task_id.in_(task_ids),
                TaskInstance.map_index.in_(map_indexes),
            )
        ).all()
        clear_task_instances(list(found), session)


def delete_run(dag_id: str, run_id: str) -> None:
    """Delete a run as a user does."""
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(
            delete(TaskInstance).where(TaskInstance.dag_id == dag_id, TaskInstance.run_id == run_id)
        )
        session.execute(delete(DagRun).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id))


def fire_triggers(dag_id: str) -> None:
    """Let the trigger of each deferred task instance fire, as the triggerer does."""
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.trigger import Trigger
    from airflow.triggers.base import TriggerEvent
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        due = select(TaskInstance.trigger_id).where(
            TaskInstance.dag_id == dag_id, TaskInstance.state == "deferred"
        )
        for trigger_id in session.scalars(due).all():
            assert trigger_id is not None
            Trigger.submit_event(trigger_id, TriggerEvent("done"), session=session)
