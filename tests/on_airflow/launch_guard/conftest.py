# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.guard_fixtures import database, fresh_process_state, server, start_executor, tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["database", "fresh_process_state", "server", "start_executor", "tasks"]


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Any], list[str]]]:
    """SELECTs of task instances that the guard's own engine has sent for an executor, in order.

    Verdicts of executors started from now on grow old after a minute: on a slow machine a loop takes
    longer than the second after which they are asked for again.
    """
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_RECHECK_AGE", "60")
    sent: list[tuple[Any, str]] = []

    def note(connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append((connection.engine, statement))

    event.listen(Engine, "before_cursor_execute", note)

    def of(executor: Any) -> list[str]:
        engine = executor._steadfast_guard._snapshot._engine
        return [text for used, text in sent if used is engine and "SELECT " in text]

    yield of
    event.remove(Engine, "before_cursor_execute", note)
