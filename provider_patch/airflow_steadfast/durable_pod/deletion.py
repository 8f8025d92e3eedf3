# SPDX-License-Identifier: Apache-2.0
"""Writes to the task's pod that cannot hit another pod: each carries the uid."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from kubernetes.client.exceptions import ApiException

from airflow_steadfast.durable_pod import lookup, patience
from airflow_steadfast.kube import delete, pods

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

_ANOTHER = frozenset({404, 409, 422})
"""What the server answers to a patch that names the uid of a pod which is not there any more."""

HURRY_SECONDS = 3.0
"""For a task that was told to stop: its supervisor sends SIGKILL after 5 s."""


def delete_pod(
    operator: Any,
    name: str,
    namespace: str,
    uid: str | None,
    *,
    grace: int | None = None,
    seconds: float = patience.OUTAGE_SECONDS,
) -> None:
    """Delete the pod of this uid. Idempotent. Raises the client's error after ``seconds`` of patience."""
    outcome = patience.call(
        lambda: delete.delete_pod(
            operator.client,
            name,
            namespace,
            uid,
            grace_period_seconds=grace,
            _request_timeout=patience.REQUEST_TIMEOUT,
        ),
        f"delete of pod {namespace}/{name}",
        seconds=seconds,
    )
    if outcome == "gone":
        log.info("pod %s/%s (uid %s) was gone already", namespace, name, uid)


def delete_quietly(operator: Any, pod: Any) -> None:
    """Delete a pod that was read. Never raises: a failure is a log line."""
    try:
        delete_pod(operator, pod.metadata.name, pod.metadata.namespace, pods.uid(pod))
    except Exception:
        log.exception("unable to delete pod %s", pods.describe(pod))


def stamp_checked(operator: Any, pod: Any) -> None:
    """Label the pod as dealt with, so that no label search finds it again.

    The uid is in the patch: the server refuses to change it, so a namesake is left alone. Raises the
    client's error.
    """
    body = {"metadata": {"uid": pods.uid(pod), "labels": {operator.POD_CHECKED_KEY: "True"}}}
    name, namespace = pod.metadata.name, pod.metadata.namespace
    try:
        patience.call(
            lambda: operator.client.patch_namespaced_pod(
                name=name, namespace=namespace, body=body, _request_timeout=patience.REQUEST_TIMEOUT
            ),
            f"stamp on pod {namespace}/{name}",
        )
    except ApiException as error:
        if error.status not in _ANOTHER:
            raise
        log.info("pod %s was gone already: nothing to stamp", pods.describe(pod))


def delete_followed(session: Session, why: str) -> bool:
    """Delete the pod that this try follows or was creating, in a hurry. Never raises.

    Returns whether a delete was accepted or nothing was there; False where the operator keeps its pods
    or the server gave no answer.
    """
    operator = session.operator
    if is_kept_on_kill(operator):
        log.info("the pod is kept (on_kill_action=keep_pod), although %s", why)
        return False
    try:
        name, namespace, uid = _whom(session)
        if name is None:
            return True
        grace = getattr(operator, "termination_grace_period", None)
        log.info("deleting pod %s/%s (uid %s): %s", namespace, name, uid, why)
        delete_pod(operator, name, str(namespace), uid, grace=grace, seconds=HURRY_SECONDS)
    except Exception:
        log.exception("unable to delete the pod, although %s", why)
        return False
    return True


def is_kept_on_kill(operator: Any) -> bool:
    """Return whether the operator wants its pod to stay when it is killed (provider 10.15 and newer)."""
    action = getattr(operator, "on_kill_action", None)
    return action is not None and getattr(action, "value", None) != "delete_pod"


def _whom(session: Session) -> tuple[str | None, str | None, str | None]:
    """Return name, namespace and uid; a create without an answer is looked up by its launch."""
    known = session.identity
    if known is not None and known.uid is not None:
        return known.name, known.namespace, known.uid
    claim = known or session.intent
    if claim is None:
        return None, None, None
    pod = lookup.read(session, claim.name, claim.namespace, seconds=HURRY_SECONDS)
    if pod is None or pods.annotation(pod, pods.LAUNCH_ANNOTATION) != claim.launch:
        return None, None, None
    return claim.name, claim.namespace, pods.uid(pod)
