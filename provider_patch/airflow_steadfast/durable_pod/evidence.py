# SPDX-License-Identifier: Apache-2.0
"""What Airflow's server says about the task instance of a task that was told to stop.

A SIGTERM has at least six causes, and only the server knows which of them means that the work is
unwanted. Asked after the unwinding, from another thread, and for ANSWER_SECONDS: silence is an answer.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

ANSWER_SECONDS = 2.0

UNWANTED = frozenset({"failed", "success", "removed", "restarting", "skipped", "upstream_failed", "gone"})
"""States in which nobody follows the pod any more; "gone" is a task instance that does not exist."""

_COMMS_MODULE = "airflow.sdk.execution_time.comms"


def server_state(session: Session) -> str | None:
    """Return the state in the database, "gone" where there is no row, None where nothing was said.

    Never raises, and does not block longer than ANSWER_SECONDS where Airflow's channel to its
    supervisor may be used by two threads (task SDK 1.2 and newer).
    """
    ti = session.context["ti"]
    ask = _from_supervisor if hasattr(type(ti), "get_task_states") else _from_database
    if ask is _from_supervisor and not _has_lock():
        return _answer(lambda: ask(session, ti))
    found: list[str | None] = []
    thread = threading.Thread(
        target=lambda: found.append(_answer(lambda: ask(session, ti))), name="steadfast-evidence", daemon=True
    )
    thread.start()
    thread.join(ANSWER_SECONDS)
    return found[0] if found else None


def is_talking_to_supervisor() -> bool:
    """Return whether this thread is in the middle of an exchange with the supervisor.

    Leaving it half done would make the next request read this one's answer.
    """
    # The interrupted stack is what a signal handler is about.
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - see above
    while frame is not None:
        if frame.f_globals.get("__name__") == _COMMS_MODULE:
            return True
        frame = frame.f_back
    return False


def _answer(ask: Callable[[], str | None]) -> str | None:
    try:
        return ask()
    except Exception as error:
        log.warning("the server did not say what became of the task instance: %s", error)
        return None


def _from_supervisor(session: Session, ti: Any) -> str | None:
    task = session.task
    states = ti.get_task_states(
        dag_id=task.dag_id, map_index=task.map_index, task_ids=[task.task_id], run_ids=[task.run_id]
    )
    if not isinstance(states, dict):
        return None
    of_run = states.get(task.run_id)
    key = task.task_id if task.map_index < 0 else f"{task.task_id}_{task.map_index}"
    if not of_run or key not in of_run:
        return "gone"
    return None if of_run[key] is None else str(of_run[key])


def _from_database(session: Session, ti: Any) -> str | None:  # noqa: ARG001 - the other way needs the session
    state = ti.current_state()
    return None if state is None else str(getattr(state, "value", state))


def _has_lock() -> bool:
    """Return whether two threads may use the channel at once; where there is none, nothing is at stake."""
    try:
        from airflow.sdk.execution_time import task_runner
    except ImportError:
        return True
    channel = getattr(task_runner, "SUPERVISOR_COMMS", None)
    return channel is None or hasattr(channel, "_thread_lock")
