# SPDX-License-Identifier: Apache-2.0
"""The end of a try that is not the end of its pod: told to stop, timed out, cut off from a server.

The pod is deleted on positive evidence only: the execution timeout has passed, no further try will
follow the pod, or Airflow's server says that the work is unwanted. Everything else leaves the pod to
the next try. After a SIGKILL nothing of this runs, and the pod stays.

``on_kill`` itself only raises: it runs in a signal handler on the main thread, where nothing can be
asked. The decision is made when the operator's own code has been left.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from airflow_steadfast.durable_pod import deletion, ended, evidence
from airflow_steadfast.durable_pod.record import SupersededError
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

_REPEAT_SECONDS = 0.1
_REPEATS = 50


class TaskKilledError(AirflowException):
    """The task was told to stop before its pod had ended."""


class PodReplacedError(AirflowException):
    """Another pod now has the name of the pod that this try follows."""


class StopFollowing(SystemExit):
    """Leaves the operator's code, through every ``except Exception`` and out of any event loop."""


def _named(*places: tuple[str, str]) -> tuple[type[BaseException], ...]:
    """Return the classes that exist, of these modules and names."""
    found: list[type[BaseException]] = []
    for module, name in places:
        try:
            found.append(getattr(importlib.import_module(module), name))
        except Exception:  # noqa: S112, PERF203 - which of them this Airflow has is the question
            continue
    return tuple(found)


def _sdk_or_core(name: str) -> tuple[type[BaseException], ...]:
    """Return Airflow 3's class, else Airflow 2's: the older name is a deprecated alias where both exist."""
    return _named(("airflow.sdk.exceptions", name)) or _named(("airflow.exceptions", name))


_CALLER_RAISES = importlib.util.find_spec("airflow.sdk") is None
"""Airflow 2 raises AirflowTaskTerminated itself once ``on_kill`` has returned."""

TIMEOUTS = _sdk_or_core("AirflowTaskTimeout")
STOPS: tuple[type[BaseException], ...] = (
    StopFollowing,
    *(_sdk_or_core("AirflowTaskTerminated")),
)
DEFERRALS = _sdk_or_core("TaskDeferred")
OUTAGES: tuple[type[BaseException], ...] = (
    ApiException,
    HTTPError,
    ConnectionError,
    TimeoutError,
    *_named(
        ("airflow.providers.cncf.kubernetes.kubernetes_helper_functions", "KubernetesApiException"),
        ("airflow.providers.cncf.kubernetes.operators.pod", "PodCredentialsExpiredFailure"),
    ),
)
"""Errors that say nothing about the pod, although the provider raises some as its own kind."""

ABOUT_THE_TASK = _named(
    ("airflow.exceptions", "AirflowException"), ("airflow.sdk.exceptions", "AirflowException")
)
"""What the provider raises when the pod itself is at fault, and what users raise on purpose."""


def on_kill(session: Session) -> None:
    """Leave the operator's code. Raises StopFollowing, except where the caller raises, or nothing is left."""
    if session.closed:
        log.info("told to stop after the pod was dealt with: nothing is left to do")
        return
    if isinstance(sys.exc_info()[1], TIMEOUTS):
        time_out(session)
        return
    session.operator._killed = True  # noqa: SLF001 - the provider's clean-up asks it
    session.stop_requested = True
    if session.unwinding or _CALLER_RAISES or threading.current_thread() is not threading.main_thread():
        return
    if evidence.is_talking_to_supervisor():
        _remind(session)
        return
    raise_stop(session)


def refuse_a_killed_task(operator: Any) -> None:
    """Raise TaskKilledError where the task was told to stop before it asked for its pod."""
    if operator._killed:  # noqa: SLF001 - what the provider's on_kill has set
        raise TaskKilledError("the task was told to stop before it had a pod")


def raise_stop(session: Session) -> None:
    """Raise StopFollowing, once: what comes while the task is on its way out must not disturb it."""
    session.unwinding = True
    raise StopFollowing("the task was told to stop")


def _remind(session: Session) -> None:
    """Send the signal again until the exchange that it interrupted is over."""

    def again() -> None:
        for _ in range(_REPEATS):
            time.sleep(_REPEAT_SECONDS)
            if session.unwinding or session.closed:
                return
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=again, name="steadfast-reminder", daemon=True).start()


def conclude(session: Session) -> TaskKilledError:
    """Decide about the pod of a task that was told to stop, act, and return the error to raise.

    Never raises, and is done within the five seconds that the supervisor gives.
    """
    session.unwinding = True
    which = _which(session)
    try:
        why = _why_unwanted(session)
        if why is None:
            log.warning("told to stop, and nothing says that the work is unwanted: %s is left", which)
            return TaskKilledError(f"the task was told to stop; {which} is left to the next try")
        if deletion.delete_followed(session, why):
            return TaskKilledError(f"the task was told to stop, and {which} was deleted: {why}")
    except Exception:
        log.exception("what is to become of %s could not be decided: it is left", which)
    return TaskKilledError(f"the task was told to stop; {which} is left as it is")


def _why_unwanted(session: Session) -> str | None:
    """Return the evidence that nobody wants the pod's work any more, None where there is none."""
    state = evidence.server_state(session)
    if state in evidence.UNWANTED:
        if state == "gone":
            return "Airflow no longer has the task instance"
        return f"Airflow has the task instance as {state}"
    if session.task.will_retry is False:
        return "this was the last try, nobody follows the pod after it"
    if session.chosen("on_unknown_kill") == "delete":
        return f"on_unknown_kill=delete, with the task instance as {state or 'unknown'}"
    return None


def time_out(session: Session) -> None:
    """Delete a pod that has used up the task's time, and see that no try attaches to it. Never raises."""
    if session.timed_out:
        return
    session.timed_out = True
    deletion.delete_followed(session, "the task's execution timeout has passed")
    if session.identity is not None:
        session.record.mark_finished(session.identity)


def forgive_late_stop(session: Session, remote_pod: Any) -> None:
    """Forget that the task was told to stop where its pod had ended by then: the outcome is known."""
    if not session.stop_requested or session.unwinding or _may_run(session, remote_pod):
        return
    session.stop_requested = False
    session.operator._killed = False  # noqa: SLF001 - the provider's clean-up asks it


def why_left(session: Session, error: BaseException | None, remote_pod: Any) -> str | None:
    """Return why the provider's clean-up must not run now, None where it is right. Never raises.

    ``error`` is what the try ends with, ``remote_pod`` its pod as last seen.
    """
    if session.is_orphaned:
        return "the task's supervisor is gone"
    if session.stop_requested or isinstance(error, STOPS):
        return "the task was told to stop"
    if session.deadline_passed or isinstance(error, TIMEOUTS):
        time_out(session)
        return "the execution timeout has passed"
    if isinstance(error, (PodReplacedError, SupersededError)):
        return str(error)
    unrelated = error is not None and (isinstance(error, OUTAGES) or not isinstance(error, ABOUT_THE_TASK))
    if unrelated and session.task.will_retry is not False and _may_run(session, remote_pod):
        return f"{type(error).__name__} says nothing about the pod, the next try finds it"
    return None


def _may_run(session: Session, pod: Any) -> bool:
    return pod is None or pods.phase(pod) is None or ended.outcome(session.operator, pod) == "live"


def _which(session: Session) -> str:
    known = session.identity or session.intent
    return f"pod {known.namespace}/{known.name}" if known is not None else "its pod"
