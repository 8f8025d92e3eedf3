# SPDX-License-Identifier: Apache-2.0
"""Real task instances in a real metadata database, and orders for them as the scheduler makes them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.utils.session import create_session
from airflow.utils.state import TaskInstanceState
from sqlalchemy import delete, select, update

from tests.support import airflow_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

# A change that another process makes: nothing of this session's is to be brought up to date.
_BLIND = {"synchronize_session": False}


@dataclass
class QueuedTasks:
    """One Dag of many tasks; its runs and what happens to them, committed as another process would.

    Task instances are named by the ids of ``airflow_lines``.
    """

    size: int = 8
    dag_id: str = "guarded"
    _runs: itertools.count[int] = field(default_factory=lambda: itertools.count(1))
    _created: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        dag = airflow_lines.make_dag(self.dag_id, (f"task_{number}" for number in range(self.size)))
        with create_session() as session:
            airflow_lines.store_dag(dag, session)

    def run(self, run_id: str = "") -> list[str]:
        """Create a run and return the ids of its task instances, in the tasks' order."""
        run_id = run_id or f"run_{next(self._runs)}"
        with create_session() as session:
            run = airflow_lines.create_run(self.dag_id, run_id, next(self._created), session)
            found = run.get_task_instances(session=session)
            in_order = sorted(found, key=lambda ti: int(ti.task_id.split("_")[1]))
            return [airflow_lines.id_of(ti) for ti in in_order]

    def queue(self, ids: Sequence[str], job_id: int = 1) -> list[Any]:
        """Let scheduler ``job_id`` queue them (a first try where they had none); return its orders."""
        with create_session() as session:
            found = {airflow_lines.id_of(ti): ti for ti in session.scalars(_rows(ids))}
            for ti in found.values():
                ti.state = TaskInstanceState.QUEUED
                ti.try_number = ti.try_number or 1
                ti.queued_by_job_id = job_id
                ti.queued_dttm = datetime.now(timezone.utc)
            session.flush()
            return [airflow_lines.order_of(found[ti_id]) for ti_id in ids]

    def change(self, ids: Sequence[str], **columns: Any) -> None:
        """Change columns behind the executor's back."""
        statement = update(TaskInstance).where(airflow_lines.with_ids(ids)).values(**columns)
        with create_session() as session:
            session.execute(statement.execution_options(**_BLIND))

    def clear(self, ids: Sequence[str]) -> list[str]:
        """Clear them as a user does; return the ids that they have now."""
        with create_session() as session:
            found = list(session.scalars(_rows(ids)))
            clear_task_instances(found, session)
            session.flush()
            return [airflow_lines.id_of(ti) for ti in found]

    def delete_run(self, run_id: str) -> None:
        from airflow.models.dagrun import DagRun

        with create_session() as session:
            for model in (TaskInstance, DagRun):
                statement = delete(model).where(model.run_id == run_id)
                session.execute(statement.execution_options(**_BLIND))


def _rows(ids: Sequence[str]) -> Any:
    return select(TaskInstance).where(airflow_lines.with_ids(ids))
