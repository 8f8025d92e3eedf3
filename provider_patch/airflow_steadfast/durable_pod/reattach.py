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

from airflow_steadfast.durable_pod import create, ended, exact_walk, leftovers, lookup
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
    ``session.identity`` is known. Raises the errors of ``lookup``, ``create`` and ``leftovers``.
    """
    if session.exact:
        return _obtain_exact(session, request)
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
    leftovers.put_all_away(session, answer)
    return _create(session, request, answer.intent)


def _obtain_exact(session: Session, request: Any) -> Any:
    found = exact_walk.find(session, request)
    if found.answer.pod is not None:
        pod = found.answer.pod
        session.follow(pod, session.identity_of(pod))
        _say_followed(session, found.answer, "its name")
        return pod
    leftovers.put_all_away(session, found.answer)
    return exact_walk.create_under(session, request, found)


def _reason_to_search(session: Session, problem: str) -> str | None:
    """Return the fallback reason where a pod of an earlier try may exist; a first try has none."""
    if problem == "malformed" or session.task.try_number > 1:
        return problem
    return None


def _follow_known(session: Session, identity: Identity, answer: Answer) -> Any:
    pod = answer.pod
    known = session.identity_of(pod)
    session.follow(pod, known)
    session.events.add("attempt")
    session.events.add("identity_hit")
    _say_followed(session, answer, "its stored identity")
    if identity.uid is None or answer.taken_over:
        session.record.write_known(known)
    return pod


def _fall_back(session: Session, request: Any, reason: str) -> Any:
    """Search by label once and count it; return the pod to follow, or None where a fresh one is right."""
    log.info("the stored pod identity does not help (%s): searching by label", reason)
    session.events.add("attempt")
    session.events.add("label_fallback", reason)
    answer = lookup.by_labels(session, request.metadata.namespace)
    if answer.pod is None:
        leftovers.put_all_away(session, answer)
        return None
    identity = session.identity_of(answer.pod)
    session.follow(answer.pod, identity)
    session.record.write_known(identity)
    _say_followed(session, answer, "its labels")
    return answer.pod


def _say_followed(session: Session, answer: Answer, way: str) -> None:
    pod = answer.pod
    if answer.harvest:
        session.events.add("harvested")
        code = ended.exit_code(session.operator, pod)
        log.info(
            "pod %s ended while nobody watched (exit code %s), found by %s: its result is taken, the work is "
            "not done again",
            pods.describe(pod),
            code,
            way,
        )
    else:
        log.info("reattached to pod %s by %s", pods.describe(pod), way)
    log.info("%s", _LOG_STARTS_OVER)


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
