# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the launch guard's tests: a migrated database, real task instances, a process as if new."""

from __future__ import annotations

import itertools
import os
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from airflow_steadfast import settings, signals
from tests.support import airflow_database
from tests.support.postgres import PostgresServer, postgres_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="steadfast-airflow-"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "False")

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with postgres_server() as running:
        airflow_database.migrate(running, tmp_path_factory.mktemp("airflow"))
        yield running


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    """The name of a fresh metadata database that this process's Airflow uses."""
    name = f"guard_{next(_NUMBERS)}"
    with airflow_database.airflow_on(airflow_database.copy(server, name)):
        yield name


@pytest.fixture(autouse=True)
def fresh_process_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[None]:
    """Totals at zero, settings read anew, hand-off in a folder of the test's own."""
    monkeypatch.setenv("AIRFLOW__STEADFAST__HANDOFF_DIR", str(tmp_path))
    totals = signals.Totals()
    monkeypatch.setattr(signals, "_TOTALS", totals)
    settings.reset()
    yield
    settings.reset()


@pytest.fixture
def tasks(database: str) -> Any:
    from tests.support.queued_tasks import QueuedTasks

    return QueuedTasks()


@pytest.fixture
def start_executor(database: str) -> Iterator[Callable[..., Any]]:
    """Start a guarded executor (``stock=True``: the provider's own); ended after the test."""
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

    from airflow_steadfast.launch_guard.executor import GuardedKubernetesExecutor
    from tests.support import kube_side

    started = []

    def start(*, stock: bool = False, job_id: int | str | None = 1, batch: int = 16) -> Any:
        executor = kube_side.make(KubernetesExecutor if stock else GuardedKubernetesExecutor, 1_000)
        kube_side.start(executor, job_id, batch)
        started.append(executor)
        return executor

    yield start
    for executor in started:
        executor.end()
