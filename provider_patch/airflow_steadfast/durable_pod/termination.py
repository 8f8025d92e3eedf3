# SPDX-License-Identifier: Apache-2.0
"""Deletes of the task's pod that cannot hit another pod, and the end of a try.

When a pod is deleted is the provider's decision here (``on_kill_action``, ``on_finish_action``); what
differs is that the delete carries the uid. After a SIGKILL nothing of this runs, and the pod stays.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import generic_api_retry

from airflow_steadfast.durable_pod import session as sessions
from airflow_steadfast.kube import delete, pods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")


def kill(session: Session, native: Callable[[], None]) -> None:
    """Do what the provider's ``on_kill`` does, the delete bound to this try's pod.

    Falls to ``native`` where no uid is known yet and where the pod is to be kept.
    """
    operator, identity = session.operator, session.identity
    if identity is None or identity.uid is None or operator.on_kill_action.value != "delete_pod":
        native()
        return
    operator._killed = True  # noqa: SLF001 - what the provider's own on_kill sets first
    grace = getattr(operator, "termination_grace_period", None)
    try:
        _delete(operator.client, identity.name, identity.namespace, identity.uid, grace)
    except Exception:
        log.exception("unable to delete pod %s/%s", identity.namespace, identity.name)


def delete_quietly(session: Session, pod: Any) -> None:
    """Delete a live pod of an earlier try. Never raises."""
    try:
        _delete(session.operator.client, pod.metadata.name, pod.metadata.namespace, pods.uid(pod), None)
    except Exception:
        log.exception("unable to delete pod %s", pods.describe(pod))


@contextlib.contextmanager
def uid_bound_deletes(operator: Any) -> Iterator[None]:
    """Within this block the operator's pod manager deletes a pod only under its uid.

    The provider's ``process_pod_deletion`` decides whether to delete and calls the manager, which
    knows the name only. The manager is the operator's own, so nothing else sees the difference.
    """
    manager = operator.pod_manager

    def delete_pod(pod: Any) -> None:
        _delete(operator.client, pod.metadata.name, pod.metadata.namespace, pods.uid(pod), None)

    manager.delete_pod = delete_pod
    try:
        yield
    finally:
        manager.__dict__.pop("delete_pod", None)


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
    if session is not None and pods.uid(pod) is not None:
        session.identity = session.identity_of(pod)
    return session


@generic_api_retry
def _delete(api: Any, name: str, namespace: str, uid: str | None, grace: int | None) -> None:
    outcome = delete.delete_pod(api, name, namespace, uid, grace_period_seconds=grace)
    if outcome == "gone":
        log.info("pod %s/%s (uid %s) was gone already", namespace, name, uid)
