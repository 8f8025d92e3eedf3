# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

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
