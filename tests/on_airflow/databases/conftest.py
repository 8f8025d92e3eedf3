# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_steadfast.launch_guard.snapshot import Snapshot
from tests.support.guard_fixtures import database, fresh_process_state, server, start_executor, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["database", "fresh_process_state", "server", "start_executor", "tasks"]


@pytest.fixture
def snapshot() -> Iterator[Callable[[float], Snapshot]]:
    """Make a snapshot of the database that this process's Airflow uses; closed after the test."""
    made: list[Snapshot] = []

    def make(timeout: float = 2) -> Snapshot:
        made.append(Snapshot(timeout))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def keys(tasks: Any) -> list[Any]:
    """The row keys of a fresh run, as ``Launch.row_key`` has them on this Airflow."""
    from tests.support import airflow_lines

    ids = tasks.run()
    if airflow_lines.HAS_WORKLOADS:
        return ids
    parts = (ti_id.split("/") for ti_id in ids)
    return [(dag_id, task_id, run_id, int(map_index)) for dag_id, task_id, run_id, map_index in parts]
