# SPDX-License-Identifier: Apache-2.0
"""Create a task's pod exactly once: intent, create, uid, in that order.

A create whose reply was lost is repeated under the same name, and the server's 409 then says that a
pod of that name exists. It is taken as ours only if it carries the launch that we asked for.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from airflow_steadfast.durable_pod import ended, patience
from airflow_steadfast.durable_pod.lookup import is_checked, read
from airflow_steadfast.durable_pod.task import TASK_ANNOTATION, note_of
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.identity import Identity
    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

NAME_WAIT_SECONDS = 90.0
"""How long a terminating pod's name is waited for: Kubernetes' default grace of 30 s and a margin."""

_CONFLICT = 409


class PodNameTakenError(AirflowException):
    """Another pod holds the name; it was neither adopted nor deleted."""


def create(session: Session, request: Any, intent: Identity) -> tuple[Any, bool]:
    """Create the pod of an intent; return the server's pod and whether it had been there already.

    ``request`` is changed: name, namespace and annotations become the intent's. Raises SupersededError
    and RecordForbiddenError before anything is created, PodNameTakenError, or the client's error.
    """
    _annotate(session, request, intent)
    session.record.write_intent(intent)
    session.intent = intent
    pod, adopted = _post_until_answered(session, request, intent)
    uid = pods.uid(pod)
    known = intent.with_uid(uid) if uid is not None else intent
    session.follow(pod, known)
    session.record.write_known(known)
    return pod, adopted


def _annotate(session: Session, request: Any, intent: Identity) -> None:
    request.metadata.name = intent.name
    request.metadata.namespace = intent.namespace
    request.metadata.annotations = {
        **(request.metadata.annotations or {}),
        pods.LAUNCH_ANNOTATION: str(intent.launch),
        TASK_ANNOTATION: session.task.annotation(),
    }


def _post_until_answered(session: Session, request: Any, intent: Identity) -> tuple[Any, bool]:
    """Return the pod and whether it had been there; a lost or transient answer is asked for again."""
    name_deadline = time.monotonic() + NAME_WAIT_SECONDS
    deadline = time.monotonic() + patience.OUTAGE_SECONDS
    what = f"create of pod {intent.namespace}/{intent.name}"
    failures = 0
    while True:
        try:
            pod = session.operator.pod_manager.run_pod_async(
                request, _request_timeout=patience.REQUEST_TIMEOUT
            )
        except (ApiException, HTTPError) as error:  # noqa: PERF203 - each round is a request
            if _says_already_exists(error):
                found = _settle_conflict(session, intent, name_deadline, asked_before=failures > 0)
                if found is not None:
                    return found, True
                continue
            failures += 1
            repeatable = patience.is_transient(error) or getattr(error, "status", None) == _CONFLICT
            if not repeatable or not patience.wait(error, failures, deadline, what):
                raise
        else:
            return pod, False


def _settle_conflict(session: Session, intent: Identity, deadline: float, *, asked_before: bool) -> Any:
    """Return our own pod where it holds the name, None once the name may be tried again.

    Raises PodNameTakenError for a pod of another launch, or one that does not go away in time.
    """
    pod = read(session, intent.name, intent.namespace)
    if pod is None:
        return None
    terminating = pods.is_terminating(pod)
    if not terminating and _is_this_launch(session, intent, pod, asked_before=asked_before):
        log.info("the create had reached the server before: pod %s is this launch's own", pods.describe(pod))
        return pod
    if terminating and time.monotonic() < deadline:
        log.info("waiting for the name of terminating pod %s", pods.describe(pod))
        time.sleep(1.0)
        return None
    raise PodNameTakenError(
        f"the name of the pod to create is taken by {pods.describe(pod)}, which "
        + ("is still terminating" if terminating else "another launch has made")
        + ". It was neither adopted nor deleted. Use random_name_suffix=True, or remove that pod"
    )


def _is_this_launch(session: Session, intent: Identity, pod: Any, *, asked_before: bool) -> bool:
    """Return whether a pod that lives is the one that we have asked for.

    An exact identity has the same launch in every try, and in a dag run that was deleted and made anew:
    there the annotation must name this very task instance, and the pod must not be over, unless it was
    this try that asked for it.
    """
    if pods.annotation(pod, pods.LAUNCH_ANNOTATION) != intent.launch:
        return False
    if not session.exact:
        return True
    noted, task = note_of(pod), session.task
    same_row = None in (noted.get("ti"), task.ti_id) or noted.get("ti") == task.ti_id
    if asked_before and same_row and noted.get("try") == task.try_number:
        return True
    if task.try_number <= 1 and not same_row:
        return False
    return not is_checked(session, pod) and ended.outcome(session.operator, pod) == "live"


def _says_already_exists(error: Exception) -> bool:
    """Tell "AlreadyExists" from the 409 of a quota changed at the same moment, which may be repeated."""
    if getattr(error, "status", None) != _CONFLICT:
        return False
    try:
        return json.loads(getattr(error, "body", "") or "{}").get("reason") == "AlreadyExists"
    except (ValueError, AttributeError):
        return True
