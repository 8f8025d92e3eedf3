# SPDX-License-Identifier: Apache-2.0
"""What the dag processor, a user and the triggerer do to the database, and what is there at the end."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from dataclasses import dataclass

DAG_ID = "soak"
SLOTS = 1_000


@dataclass(frozen=True)
class Row:
    """A task instance at the end; ``state`` is None for one without a state."""

    ti_id: str
    task_id: str
    run_id: str
    map_index: int
    try_number: int
    state: str | None


def prepare() -> None:
    """Store the Dag as the dag processor does."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db

    manager = DagBundlesManager()
    manager.sync_bundles_to_db()
    for bundle in manager.get_all_dag_bundles():
        bundle.initialize()
        bag = BundleDagBag(dag_folder=bundle.path, bundle_path=bundle.path, bundle_name=bundle.name)
        if bag.import_errors:
            raise RuntimeError(f"the soak's Dag cannot be read: {bag.import_errors}")
        sync_bag_to_db(bag, bundle.name, bundle.version)


def trigger_runs(count: int) -> None:
    """Create queued runs, as ``airflow dags trigger`` does."""
    from airflow._shared.timezones import timezone
    from airflow.models.dagbag import DBDagBag
    from airflow.utils.session import create_session
    from airflow.utils.state import DagRunState
    from airflow.utils.types import DagRunTriggeredByType, DagRunType
    from sqlalchemy import text

    with create_session() as session:
        session.execute(text("UPDATE dag SET is_paused = false"))
        session.execute(text(f"UPDATE slot_pool SET slots = {SLOTS}"))
        dag = DBDagBag().get_latest_version_of_dag(DAG_ID, session=session)
        for number in range(count):
            dag.create_dagrun(
                run_id=f"run_{number:03}",
                run_after=timezone.utcnow(),
                run_type=DagRunType.MANUAL,
                triggered_by=DagRunTriggeredByType.TEST,
                state=DagRunState.QUEUED,
                session=session,
            )


def clear_queued(most: int) -> int:
    """Clear queued task instances, as a user does who wants them run anew; returns how many."""
    from airflow.models.taskinstance import TaskInstance, clear_task_instances
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session(scoped=False) as session:
        queued = select(TaskInstance).where(TaskInstance.state == "queued").limit(most)
        chosen = session.scalars(queued.with_for_update(of=TaskInstance, skip_locked=True)).all()
        clear_task_instances(chosen, session)
        return len(chosen)


class Triggerer(threading.Thread):
    """Fires the trigger of each deferred task instance soon after it was deferred, until ``stop``."""

    def __init__(self) -> None:
        super().__init__(name="triggerer", daemon=True)
        self._stopping = threading.Event()

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.wait(0.7):
            with contextlib.suppress(Exception):  # a database that is away: a triggerer would be restarted
                self._fire()

    @staticmethod
    def _fire() -> None:
        from airflow.models.taskinstance import TaskInstance
        from airflow.models.trigger import Trigger
        from airflow.triggers.base import TriggerEvent
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session(scoped=False) as session:
            due = select(TaskInstance.trigger_id).where(TaskInstance.state == "deferred")
            for trigger_id in session.scalars(due).all():
                Trigger.submit_event(trigger_id, TriggerEvent("done"), session=session)


def run_states() -> Counter[str]:
    """Count the runs by state; raises what SQLAlchemy raises."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    with create_session(scoped=False) as session:
        return Counter(
            {
                str(getattr(state, "value", state)): number
                for state, number in session.execute(
                    select(DagRun.state, func.count()).group_by(DagRun.state)
                )
            }
        )


def task_states() -> Counter[str]:
    """Count the task instances by state, "none" for those without; raises what SQLAlchemy raises."""
    return Counter(row.state or "none" for row in rows())


def rows() -> list[Row]:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    columns = (
        TaskInstance.id,
        TaskInstance.task_id,
        TaskInstance.run_id,
        TaskInstance.map_index,
        TaskInstance.try_number,
        TaskInstance.state,
    )
    with create_session(scoped=False) as session:
        return [
            Row(str(ti_id), task_id, run_id, map_index, try_number, None if state is None else str(state))
            for ti_id, task_id, run_id, map_index, try_number, state in session.execute(select(*columns))
        ]


def audit_events() -> Counter[str]:
    """Count the rows of Airflow's audit log by event."""
    from airflow.models.log import Log
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    with create_session(scoped=False) as session:
        return Counter(dict(session.execute(select(Log.event, func.count()).group_by(Log.event)).all()))


def moved_on() -> dict[str, float]:
    """When each id that is history was given up, in unix seconds: the commit that wrote the history.

    Needs a PostgreSQL with ``track_commit_timestamp``.
    """
    from airflow.utils.session import create_session
    from sqlalchemy import text

    committed = "extract(epoch FROM pg_xact_commit_timestamp(xmin))"
    statement = f"SELECT task_instance_id, {committed} FROM task_instance_history"
    with create_session(scoped=False) as session:
        return {str(ti_id): float(at) for ti_id, at in session.execute(text(statement)) if at is not None}
