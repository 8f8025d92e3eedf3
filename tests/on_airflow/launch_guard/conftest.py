# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support import kube_side
from tests.support.guard_fixtures import database, fresh_process_state, server, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["database", "fresh_process_state", "server", "tasks"]


@pytest.fixture
def start_executor(database: str) -> Iterator[Callable[..., Any]]:
    """Start a guarded executor (``stock=True``: the provider's own); ended after the test."""
    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

    from airflow_steadfast.launch_guard.executor import GuardedKubernetesExecutor

    started = []

    def start(*, stock: bool = False, job_id: int | str | None = 1, batch: int = 16) -> Any:
        executor = (KubernetesExecutor if stock else GuardedKubernetesExecutor)(parallelism=1_000)
        kube_side.start(executor, job_id, batch)
        started.append(executor)
        return executor

    yield start
    for executor in started:
        executor.end()


@pytest.fixture
def statements() -> Iterator[Callable[[Any], list[str]]]:
    """SELECTs of task instances that the guard's own engine has sent for an executor, in order."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    sent: list[tuple[Any, str]] = []

    def note(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append((connection.engine, statement))

    event.listen(Engine, "before_cursor_execute", note)

    def of(executor: Any) -> list[str]:
        engine = executor._steadfast_guard._snapshot._engine
        return [text for used, text in sent if used is engine and text.lstrip().startswith("SELECT")]

    yield of
    event.remove(Engine, "before_cursor_execute", note)
