# SPDX-License-Identifier: Apache-2.0
"""The task instances as the database has them, read past Airflow on a connection of the scenario's own."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

_PATIENCE = 60.0
FINISHED = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})


@dataclass(frozen=True)
class Row:
    """A task instance; ``ti_id`` is "" on Airflow 2, ``state`` None for one without a state."""

    ti_id: str
    task_id: str
    run_id: str
    map_index: int
    try_number: int
    state: str | None
    queued_by_job_id: int | None

    @property
    def at(self) -> tuple[str, str, int]:
        """Where it stands in its Dag; the same for every try and every id."""
        return self.run_id, self.task_id, self.map_index


class Table:
    """Reads and changes rows of one Dag; survives a database that is restarted."""

    def __init__(self, url: str, dag_id: str, *, with_ids: bool = True) -> None:
        from sqlalchemy import create_engine
        from sqlalchemy.pool import NullPool

        self._engine: Any = create_engine(url, poolclass=NullPool)
        self._dag_id = dag_id
        self._id = "id::text" if with_ids else "''"

    def rows(self) -> list[Row]:
        """All of the Dag, in a fixed order."""
        statement = (
            f"SELECT {self._id}, task_id, run_id, map_index, try_number, state, queued_by_job_id "
            "FROM task_instance WHERE dag_id = :dag_id ORDER BY run_id, length(task_id), task_id, map_index"
        )
        return [Row(*found) for found in self._execute(statement, dag_id=self._dag_id)]

    def change(self, rows: Sequence[Row], assignment: str, where: str = "true") -> int:
        """Set columns of task instances behind everybody's back: ``"state = 'success'"``.

        Returns how many rows were changed: those that ``where`` holds for.
        """
        return sum(
            len(
                self._execute(
                    f"UPDATE task_instance SET {assignment} WHERE dag_id = :dag_id AND run_id = :run_id "
                    f"AND task_id = :task_id AND map_index = :map_index AND {where} RETURNING 1",
                    dag_id=self._dag_id,
                    run_id=row.run_id,
                    task_id=row.task_id,
                    map_index=row.map_index,
                )
            )
            for row in rows
        )

    def execute(self, statement: str) -> list[Any]:
        return self._execute(statement)

    def _execute(self, statement: str, **values: Any) -> list[Any]:
        from sqlalchemy import text

        deadline = time.monotonic() + _PATIENCE
        while (answer := self._try(text(statement), values, deadline)) is None:
            time.sleep(0.2)
        return answer

    def _try(self, statement: Any, values: dict[str, Any], deadline: float) -> list[Any] | None:
        """The rows; None where the database is away and there is still time."""
        from sqlalchemy.exc import OperationalError

        try:
            with self._engine.begin() as connection:
                answer = connection.execute(statement, values)
                return list(answer) if answer.returns_rows else []
        except OperationalError:
            if time.monotonic() > deadline:
                raise
            return None
