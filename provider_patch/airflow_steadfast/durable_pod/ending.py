# SPDX-License-Identifier: Apache-2.0
"""The bookkeeping at the end of a try: the finished mark, and events that are still unsent."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_steadfast.durable_pod import session as sessions

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")


def end_try(operator: Any, context: Any, pod: Any, remote_pod: Any, *, succeeded: bool) -> None:
    """Mark the identity as finished where a later try could meet it, and send unsent events. Never raises.

    Called after the provider's clean-up. A kill is no end: whether the pod still runs is for the next
    try to see. A success whose pod is deleted needs no mark: only a user's clear leads to another try,
    and that one is told by ``max_tries``.
    """
    try:
        dealt_with = remote_pod is not None and not operator._killed  # noqa: SLF001 - the seam
        session = sessions.current(operator)
        if session is None and not succeeded:
            session = _resumed_session(operator, context, pod)
        if session is None:
            return
        outlives = operator.on_finish_action.value != "delete_pod"
        if dealt_with and session.identity is not None and (outlives or not succeeded):
            session.record.mark_finished(session.identity)
        session.events.flush()
    except Exception:
        log.warning("the end of the try could not be recorded", exc_info=True)


def _resumed_session(operator: Any, context: Any, pod: Any) -> Session | None:
    """Return a session for a task that resumed from a deferral: another process had found the pod."""
    deferrable = getattr(operator, "deferrable", False) and getattr(operator, "reattach_on_restart", False)
    if not deferrable or not context or pod is None:
        return None
    session = sessions.begin(operator, context)
    if session is not None and getattr(pod.metadata, "uid", None) is not None:
        session.identity = session.identity_of(pod)
    return session
