# SPDX-License-Identifier: Apache-2.0
"""What the dag processor and the scheduler would do to the metadata database, done when a test says so."""

from __future__ import annotations

from typing import Any

DAG_ID = "durable"


def prepare_database() -> None:
    """Store the Dag as the dag processor does."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

    manager = DagBundlesManager()
    manager.sync_bundles_to_db()
    for bundle in manager.get_all_dag_bundles():
        bundle.initialize()
        bag = BundleDagBag(dag_folder=bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
        assert not bag.import_errors, bag.import_errors
        sync_bag_to_db(bag, bundle.name, bundle.version)


def create_dagrun(run_id: str) -> None:
    from airflow._shared.timezones import timezone
    from airflow.models.dagbag import DBDagBag
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType

    with create_session() as session:
        dag = DBDagBag().get_latest_version_of_dag(DAG_ID, session=session)
        dag.create_dagrun(
            run_id=run_id,
            run_after=timezone.utcnow(),
            run_type=DagRunType.MANUAL,
            triggered_by=DagRunTriggeredByType.TEST,
            state=DagRunState.RUNNING,
            session=session,
        )


def _task_instance(session: Any, run_id: str, task_id: str) -> Any:
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import select

    return session.scalars(select(TaskInstance).filter_by(run_id=run_id, task_id=task_id)).one()


def queue(run_id: str, task_id: str) -> dict[str, Any]:
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    with create_session() as session:
        ti = _task_instance(session, run_id, task_id)
        ti.try_number += 1
        ti.state = TaskInstanceState.QUEUED
        return {
            "id": ti.id,
            "task_id": ti.task_id,
            "dag_id": ti.dag_id,
            "run_id": ti.run_id,
            "try_number": ti.try_number,
            "map_index": ti.map_index,
            "dag_version_id": ti.dag_version_id,
            "pool_slots": 1,
            "queue": "default",
            "priority_weight": 1,
        }


def prepare_next_try(run_id: str, task_id: str) -> None:
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    with create_session() as session:
        ti = _task_instance(session, run_id, task_id)
        ti.prepare_db_for_next_try(session)
        ti.state = TaskInstanceState.UP_FOR_RETRY


def clear(run_id: str, task_id: str) -> None:
    from airflow.models.taskinstance import clear_task_instances
    from airflow.utils.session import create_session

    with create_session() as session:
        clear_task_instances([_task_instance(session, run_id, task_id)], session)


def set_state(run_id: str, task_id: str, state: str) -> None:
    """Set the state as a user who marks the task, or the scheduler, does."""
    from airflow.utils.session import create_session
    from airflow.utils.state import TaskInstanceState

    with create_session() as session:
        _task_instance(session, run_id, task_id).state = TaskInstanceState(state)


def delete_dagrun(run_id: str) -> None:
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(DagRun).where(DagRun.run_id == run_id))
