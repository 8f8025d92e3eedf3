# SPDX-License-Identifier: Apache-2.0
"""What a test does differently on each line of Airflow: Dags, runs, and orders for the executor.

An *order* is what the scheduler hands to the executor for one task instance: an ``ExecuteTask`` on
Airflow 3, a command line on Airflow 2, for which ``CommandOrder`` stands.
An *id* is a task instance's ``id`` as text; on Airflow 2, which has none, its primary key with slashes.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from airflow.models.dag import DagModel
from airflow.models.serialized_dag import SerializedDagModel
from airflow.models.taskinstance import TaskInstance
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from sqlalchemy import and_, or_

try:
    from airflow.executors.workloads import ExecuteTask
except ImportError:  # Airflow 2
    ExecuteTask = None

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

BUNDLE = "tests"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
HAS_WORKLOADS = ExecuteTask is not None
"""Whether the executor gets workloads (Airflow 3) or command lines (Airflow 2)."""


@dataclass(frozen=True)
class CommandOrder:
    """An Airflow 2 order: the row as the scheduler holds it, and the command line made of it."""

    ti: TaskInstance
    command: list[str]


def make_dag(dag_id: str, task_ids: Iterable[str]) -> Any:
    """Return a Dag of empty tasks that do not depend on each other."""
    if HAS_WORKLOADS:
        from airflow.providers.standard.operators.empty import EmptyOperator
        from airflow.sdk import DAG
    else:
        from airflow.models.dag import DAG
        from airflow.operators.empty import EmptyOperator
    with DAG(dag_id, schedule=None, start_date=START) as dag:  # noqa: AIR311 - imported so on Airflow 2 only
        for task_id in task_ids:
            EmptyOperator(task_id=task_id)  # noqa: AIR312 - the same
    return dag


def store_dag(dag: Any, session: Any) -> None:
    """Write a Dag as the Dag processor does."""
    if not HAS_WORKLOADS:
        session.add(DagModel(dag_id=dag.dag_id))
        session.flush()
        SerializedDagModel.write_dag(dag, session=session)
        return
    from airflow.models.dagbundle import DagBundleModel
    from airflow.serialization.serialized_objects import LazyDeserializedDAG

    if session.get(DagBundleModel, BUNDLE) is None:
        session.add(DagBundleModel(name=BUNDLE))
        session.flush()
    session.add(DagModel(dag_id=dag.dag_id, bundle_name=BUNDLE, relative_fileloc="guarded.py"))
    session.flush()
    # 3.0 writes the Dag itself
    written = LazyDeserializedDAG.from_dag(dag) if hasattr(LazyDeserializedDAG, "from_dag") else dag
    SerializedDagModel.write_dag(written, bundle_name=BUNDLE, session=session)


def create_run(dag_id: str, run_id: str, number: int, session: Any) -> Any:
    """Create a running run with its task instances. ``number`` tells runs of one Dag apart in time."""
    dag = SerializedDagModel.get(dag_id, session=session).dag
    common = {
        "run_id": run_id,
        "run_type": DagRunType.MANUAL,
        "state": DagRunState.RUNNING,
        "session": session,
    }
    if not HAS_WORKLOADS:
        moment = START + timedelta(minutes=number)
        return dag.create_dagrun(execution_date=moment, data_interval=(moment, moment), **common)
    from airflow.utils.types import DagRunTriggeredByType

    return dag.create_dagrun(run_after=START, triggered_by=DagRunTriggeredByType.TEST, **common)


def order_of(ti: TaskInstance) -> Any:
    """Return the order that the scheduler makes for a queued row."""
    if ExecuteTask is not None:
        return ExecuteTask.make(ti)
    return CommandOrder(ti, ti.command_as_list(local=True))


def submit(executor: Any, orders: Iterable[Any]) -> None:
    """Hand orders to the executor as the scheduler does."""
    for order in orders:
        if isinstance(order, CommandOrder):
            executor.queue_command(order.ti, order.command, priority=1, queue=order.ti.queue)
        else:
            executor.queue_workload(order, None)


def id_of(ti: Any) -> str:
    """Return the id of a row, of an order's ``ti`` or of an executor key."""
    if HAS_WORKLOADS:
        return str(ti.id)
    return f"{ti.dag_id}/{ti.task_id}/{ti.run_id}/{ti.map_index}"


def id_of_job(job: Any) -> str:
    """Return the id of the task instance that a job of the executor's queue is for."""
    return id_of(job.command[0].ti if HAS_WORKLOADS else job.key)


def with_ids(ids: Sequence[str]) -> Any:
    """Return the condition that selects the rows with these ids."""
    if HAS_WORKLOADS:
        return TaskInstance.id.in_([_comparable(ti_id) for ti_id in ids])
    return or_(*(_is_row(*ti_id.split("/")) for ti_id in ids))


def _comparable(ti_id: str) -> Any:
    """Return the id as the column has it: text before Airflow 3.2, a UUID since."""
    try:
        return TaskInstance.id.type.python_type(ti_id)
    except NotImplementedError:  # SQLAlchemy 1.4 does not say the type of a column that varies by dialect
        return ti_id


def _is_row(dag_id: str, task_id: str, run_id: str, map_index: str) -> Any:
    return and_(
        TaskInstance.dag_id == dag_id,
        TaskInstance.task_id == task_id,
        TaskInstance.run_id == run_id,
        TaskInstance.map_index == int(map_index),
    )
