# SPDX-License-Identifier: Apache-2.0
"""The re-entry of a deferred task: another process, perhaps on another node, and the same pod by uid.

The trigger's event echoes the uid, so nothing is asked of the store.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException

from airflow_steadfast.durable_pod import faults, following, leftovers, termination
from airflow_steadfast.durable_pod import session as sessions
from airflow_steadfast.durable_pod.identity import Identity
from airflow_steadfast.durable_pod.session import UID_KWARG

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

FAIL_METHOD = "__fail__"
"""What Airflow calls instead of the operator's method when a trigger has timed out or failed."""


class ResultGoneError(AirflowException):
    """The pod of a deferred task has succeeded and is gone, and its XCom with it."""


def wrap_reentry(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``trigger_reentry`` that follows the pod of the event's uid only."""

    @functools.wraps(native)
    def trigger_reentry(self: Any, context: Any, event: Any) -> Any:
        session = _begin(self, context, event)
        if session is None:
            return native(self, context, event)
        try:
            with following.checked_hook(session):
                result = native(self, context, event)
        except Exception as error:
            _make_sense(session, event, error)
            result = None
        finally:
            if session.deadline_passed:
                termination.time_out(session)
        if session.seen_gone and self.do_xcom_push and event.get("status") == "success":
            raise _gone(session, event)
        return result

    return trigger_reentry


def wrap_write_logs(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``_write_logs`` that does not follow the log of a pod whose time is up: it may never end."""

    @functools.wraps(native)
    def _write_logs(self: Any, pod: Any, follow: bool = False, since_time: Any = None) -> Any:
        session = sessions.current(self)
        follow = follow and not (session is not None and session.no_follow)
        return native(self, pod, follow=follow, since_time=since_time)

    return _write_logs


def wrap_resume_execution(native: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``resume_execution`` that deletes the pod of a task whose deferral has timed out."""

    @functools.wraps(native)
    def resume_execution(
        self: Any, next_method: str, next_kwargs: Mapping[str, Any] | None, context: Any
    ) -> Any:
        if next_method == FAIL_METHOD:
            with contextlib.suppress(Exception):
                _end_failed_deferral(self, context, dict(next_kwargs or {}))
        return native(self, next_method, next_kwargs, context)

    return resume_execution


def _make_sense(session: Session, event: Mapping[str, Any], error: Exception) -> None:
    """Return where the pod has succeeded and is gone; else raise what the re-entry really met."""
    if session.replaced is not None and error is not session.replaced:
        raise session.replaced from error
    if not session.seen_gone or event.get("status") != "success":
        raise error
    log.warning(
        "pod %s/%s has succeeded and is gone: its log cannot be had", event["namespace"], event["name"]
    )


def _begin(operator: Any, context: Any, event: Any) -> Session | None:
    """Return the session of this re-entry with the event's pod as its identity, None for a native one."""
    session: Session | None = None
    try:
        if not operator.reattach_on_restart or not isinstance(event, dict) or "name" not in event:
            return None
        session = sessions.begin(operator, context)
        if session is None:
            return None
        uid = event.get(UID_KWARG)
        if session.identity is None:
            session.identity = _identity(session, event, uid if isinstance(uid, str) else None)
        if session.identity.uid is not None:
            given = getattr(operator, "trigger_kwargs", None) or {}
            operator.trigger_kwargs = {**given, UID_KWARG: session.identity.uid}
        deadline = event.get("_execution_deadline") or math.inf
        session.no_follow = event.get("status") == "timeout"
        session.deadline_passed = session.no_follow and time.time() >= deadline - 1
    except Exception as error:
        faults.note("resuming from the deferral", error, session)
        return None
    return session


def _identity(session: Session, event: Mapping[str, Any], uid: str | None) -> Identity:
    """Return the identity of the event's pod; a trigger of an older version has no uid, the store may."""
    known = Identity(
        name=str(event["name"]),
        namespace=str(event["namespace"]),
        uid=uid,
        try_number=session.task.try_number,
        max_tries=session.task.max_tries,
    )
    if uid is not None:
        return known
    stored = session.record.read().identity
    if stored is None or (stored.name, stored.namespace) != (known.name, known.namespace):
        return known
    return replace(known, uid=stored.uid, launch=stored.launch, cluster=stored.cluster)


def _gone(session: Session, event: Mapping[str, Any]) -> AirflowException:
    which = f"{event['namespace']}/{event['name']}"
    if session.chosen("on_lost_xcom") == "fail":
        return leftovers.LostResultError(leftovers.lost_result(which))
    return ResultGoneError(
        f"pod {which} has succeeded, but it was removed before its XCom could be read: a retry does the work "
        "again (on_lost_xcom=rerun)"
    )


def _end_failed_deferral(operator: Any, context: Any, next_kwargs: Mapping[str, Any]) -> None:
    """Delete the recorded pod where the deferral has timed out; a trigger that failed says nothing of it."""
    reason = getattr(next_kwargs.get("error"), "value", next_kwargs.get("error"))
    if "timeout" not in str(reason).lower() or not operator.reattach_on_restart:
        return
    session = sessions.begin(operator, context)
    stored = session.record.read().identity if session is not None else None
    if session is None or stored is None or stored.uid is None or stored.state == "finished":
        return
    session.identity = stored
    termination.time_out(session)
    session.closed = True
