# SPDX-License-Identifier: Apache-2.0
"""The walk of one try: the stored identity, else one label search, else a fresh pod.

What is counted (outbox rows; none on a plain first try):

* identity hit: the pod was found by its stored identity and is followed, or its result taken;
* label fallback, with the reason: the stored identity could not answer and labels were searched,
  whether or not the search found a pod;
* attempt: one with each of these two.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_steadfast.durable_pod import create, lookup, termination
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.identity import Identity
    from airflow_steadfast.durable_pod.lookup import Answer
    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

_LOG_STARTS_OVER = "the pod's log is read from its start: the earlier try's log may hold some of it too"


def obtain_pod(session: Session, request: Any) -> Any:
    """Return the pod that this try follows: an earlier try's, or a fresh one made of ``request``.

    ``request`` gets the name, namespace and annotations under which the pod is created. Afterwards
    ``session.identity`` is known. Raises the errors of ``lookup`` and ``create``.
    """
    reading = session.record.read()
    identity = reading.identity
    if identity is not None:
        answer = lookup.by_identity(session, identity)
        reason = answer.search
    else:
        answer = lookup.Answer()
        reason = _reason_to_search(session, str(reading.problem))
    if answer.pod is not None and identity is not None:
        return _follow_known(session, identity, answer)
    if reason is not None:
        found = _fall_back(session, request, reason)
        if found is not None:
            return found
    elif answer.leftover is not None:
        _put_away(session, answer.leftover)
    return _create(session, request, answer.intent)


def _reason_to_search(session: Session, problem: str) -> str | None:
    """Return the fallback reason where a pod of an earlier try may exist; a first try has none."""
    if problem == "malformed" or session.task.try_number > 1:
        return problem
    return None


def _follow_known(session: Session, identity: Identity, answer: Answer) -> Any:
    pod = answer.pod
    session.follow(pod, session.identity_of(pod))
    session.events.add("attempt")
    session.events.add("identity_hit")
    if answer.harvest:
        session.events.add("harvested")
        log.info("pod %s succeeded while nobody watched: its result is taken", pods.describe(pod))
    else:
        log.info("reattached to pod %s by its stored identity", pods.describe(pod))
    log.info("%s", _LOG_STARTS_OVER)
    if identity.uid is None:
        session.record.write_known(session.identity_of(pod))
    return pod


def _fall_back(session: Session, request: Any, reason: str) -> Any:
    """Search by label once and count it; return the pod to follow, or None where a fresh one is right."""
    log.info("the stored pod identity does not help (%s): searching by label", reason)
    session.events.add("attempt")
    session.events.add("label_fallback", reason)
    answer = lookup.by_labels(session, request.metadata.namespace)
    if answer.pod is None:
        if answer.leftover is not None:
            _put_away(session, answer.leftover)
        return None
    pod = answer.pod
    identity = session.identity_of(pod)
    session.follow(pod, identity)
    session.record.write_known(identity)
    if answer.harvest:
        session.events.add("harvested")
    log.info("reattached to pod %s by its labels; its identity is stored from here on", pods.describe(pod))
    log.info("%s", _LOG_STARTS_OVER)
    return pod


def _put_away(session: Session, pod: Any) -> None:
    """Deal with an earlier try's pod that is not followed. Never raises: a failure is a log line."""
    if pods.has_failed(pod) or pods.has_succeeded(pod):
        log.info("pod %s of an earlier try has ended, a fresh one is made", pods.describe(pod))
        session.operator.patch_already_checked(pod, reraise=False)
        session.operator.process_pod_deletion(pod, reraise=False)
        return
    log.info("the task was cleared since pod %s was made: it is deleted", pods.describe(pod))
    termination.delete_quietly(session, pod)


def _create(session: Session, request: Any, intent: Identity | None) -> Any:
    """Create the pod, under the name of an earlier try's unanswered create where there is one."""
    if intent is not None and intent.namespace == request.metadata.namespace:
        claim = session.new_identity(intent.name, intent.namespace, intent.launch)
    else:
        claim = session.new_identity(request.metadata.name, request.metadata.namespace)
    pod, adopted = create.create(session, request, claim)
    if adopted and intent is not None:
        session.events.add("attempt")
        session.events.add("identity_hit")
    return pod
