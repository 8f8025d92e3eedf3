# SPDX-License-Identifier: Apache-2.0
"""Find the pod that an earlier try of this task left behind.

The stored identity answers by one direct read. The label search, which may meet other pods, is asked
only where the identity cannot answer, once in a try:

* On a first try without a stored identity nothing is searched: an identity is stored before a pod
  exists, so there is no pod of an earlier try to find. (The provider searches here too; what it can
  find then is an orphan of another run under the same ids.)
* An identity that is finished, was made for a pod that failed, or for a run that a user has since
  cleared, is an answer too: there is nothing to reattach to, so nothing is searched or counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException
from airflow.providers.cncf.kubernetes.operators import pod as provider
from kubernetes.client.exceptions import ApiException

from airflow_steadfast.durable_pod import ended, patience
from airflow_steadfast.durable_pod.task import note_of
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.identity import Identity
    from airflow_steadfast.durable_pod.session import Session

FORBIDDEN = 403
NOT_FOUND = 404

_TOO_MANY: type[AirflowException] = getattr(provider, "FoundMoreThanOnePodFailure", AirflowException)
"""What the provider raises; those before 10.9 raise the general error."""

CHECKED = "checked"
"""A try has dealt with the pod's end and stamped it: as good as a finished identity, so never counted."""


class PodReadForbiddenError(AirflowException):
    """The worker may not read pods in that namespace."""


@dataclass(frozen=True)
class Answer:
    """What the stored identity, or the labels, led to.

    Exactly one of these holds: ``pod`` is the one to follow (``harvest`` where its work is done
    already, ``taken_over`` where a user's clear came between); ``lost`` is one whose work is done and
    whose result cannot be had; ``search`` is the reason for a label search; none of them, and a fresh
    pod is right: ``leftovers`` are then the old pods to be put away first, ``intent`` the name to
    create under.
    """

    pod: Any = None
    harvest: bool = False
    taken_over: bool = False
    lost: Any = None
    search: str | None = None
    leftovers: tuple[Any, ...] = ()
    intent: Identity | None = None


def by_identity(session: Session, identity: Identity) -> Answer:
    """Ask the API server for the pod of a stored identity. No label search.

    Raises PodReadForbiddenError, or the client's error after ``patience.OUTAGE_SECONDS``.
    """
    if identity.state == "finished":
        return Answer()
    pod = read(session, identity.name, identity.namespace)
    cleared = was_cleared(session, identity.max_tries, identity.try_number)
    problem = _problem(session, identity, pod)
    if problem == CHECKED or (problem is not None and cleared):
        return Answer()
    if pod is None and identity.is_intent:
        return Answer(intent=identity)
    if problem is not None:
        return Answer(search=problem)
    return judge(session, pod, cleared=cleared)


def judge(session: Session, pod: Any, *, cleared: bool) -> Answer:
    """Return what to do with a pod that is certainly this task's, neither terminating nor checked."""
    outcome = ended.outcome(session.operator, pod)
    if outcome == "live":
        if cleared and session.chosen("on_clear") == "fresh":
            return Answer(leftovers=(pod,))
        return Answer(pod=pod, taken_over=cleared)
    if cleared or outcome == "failed" or (outcome == "done" and session.chosen("on_finished") == "rerun"):
        return Answer(leftovers=(pod,))
    if outcome == "lost":
        return Answer(lost=pod)
    return Answer(pod=pod, harvest=True)


def by_labels(session: Session, namespace: str) -> Answer:
    """Search for the task's pod by its labels, but never among dead or foreign pods.

    Only the labels that Airflow derives from the task instance are searched: a user's labels may have
    changed between two tries. Terminating pods, checked ones and those whose annotation names another
    task instance or Airflow are no candidates. Raises the provider's FoundMoreThanOnePodFailure where
    several candidates are left, annotations included: which one is a guess then.
    """
    operator = session.operator
    selector = _selector(session)

    def search() -> list[Any]:
        listed = operator.client.list_namespaced_pod(
            namespace=namespace, label_selector=selector, _request_timeout=patience.REQUEST_TIMEOUT
        )
        return list(listed.items)

    found = patience.call(search, "label search")
    present = [pod for pod in found if not pods.is_terminating(pod) and not session.task.is_foreign(pod)]
    answers = [_judge_found(session, pod) for pod in present]
    followed = [answer for answer in answers if answer.pod is not None or answer.lost is not None]
    if len(followed) > 1:
        # A pod that says for whom it was made is better than one that only looks like it.
        sure = [answer for answer in followed if session.task.made(answer.pod or answer.lost)]
        followed = sure if len(sure) == 1 else followed
    if len(followed) > 1:
        raise _TOO_MANY(f"More than one pod running with labels {selector}")
    if followed:
        return followed[0]
    return Answer(leftovers=tuple(pod for answer in answers for pod in answer.leftovers))


def read(session: Session, name: str, namespace: str, *, seconds: float = patience.OUTAGE_SECONDS) -> Any:
    """Return the pod, or None where there is none of this name.

    Raises PodReadForbiddenError for a 403, else the client's error after ``seconds`` of patience.
    """

    def get() -> Any:
        return session.operator.client.read_namespaced_pod(
            name, namespace, _request_timeout=patience.REQUEST_TIMEOUT
        )

    try:
        return patience.call(get, f"reading pod {namespace}/{name}", seconds=seconds)
    except ApiException as error:
        if error.status == NOT_FOUND:
            return None
        if error.status == FORBIDDEN:
            raise PodReadForbiddenError(
                f"the worker may not read the pod {namespace}/{name} (403), so it cannot tell whether its "
                f'work still runs. Grant its ServiceAccount "get" on "pods" in namespace {namespace!r}'
            ) from error
        raise


def was_cleared(session: Session, max_tries: int | None, try_number: int | None) -> bool:
    """Return whether a user has cleared the task since a try with these numbers.

    Airflow raises ``max_tries`` on a clear, and only then; or, where the task ran at that moment, leaves
    it and starts a try that the retries do not allow for.
    """
    task = session.task
    if max_tries is None or task.max_tries is None:
        return False
    if max_tries != task.max_tries:
        return True
    return task.is_beyond_its_retries and try_number is not None and try_number < task.try_number


def is_checked(session: Session, pod: Any) -> bool:
    """Return whether a try has stamped the pod as dealt with."""
    return pods.label(pod, session.operator.POD_CHECKED_KEY) == "True"


def _problem(session: Session, identity: Identity, pod: Any) -> str | None:
    """Return why what was read is not to be followed: a fallback reason, CHECKED, or None for no reason."""
    if pod is None:
        moved = None not in (identity.cluster, session.cluster) and identity.cluster != session.cluster
        return "other" if moved else "pod_gone"
    if not _is_the_one(session, identity, pod):
        return "uid_mismatch"
    if is_checked(session, pod):
        return CHECKED
    return "terminating" if pods.is_terminating(pod) else None


def _is_the_one(session: Session, identity: Identity, pod: Any) -> bool:
    """Return whether the pod under the stored name is the stored pod and not a namesake."""
    if identity.uid is not None:
        return pods.uid(pod) == identity.uid
    if identity.launch is not None:
        return pods.annotation(pod, pods.LAUNCH_ANNOTATION) == identity.launch
    # A value of the provider has neither: only what the pod says of itself can tell.
    if note_of(pod):
        return session.task.made(pod)
    return all(pods.label(pod, key) == value for key, value in _identity_labels(session).items())


def _identity_labels(session: Session) -> dict[str, str]:
    labels: dict[str, str] = session.operator._get_ti_pod_labels(session.context, include_try_number=False)  # noqa: SLF001 - the seam
    return labels


def _selector(session: Session) -> str:
    labels = _identity_labels(session)
    wanted = [f"{key}={value}" for key, value in sorted(labels.items())]
    if "map_index" not in labels:
        # Without it the pods of a mapped task of the same name would be found too.
        wanted.append("!map_index")
    return ",".join([*wanted, f"{session.operator.POD_CHECKED_KEY}!=True", "!airflow-worker"])


def _judge_found(session: Session, pod: Any) -> Answer:
    """Judge a pod that labels have led to.

    A finished one is taken only where its annotation vouches for it: an end that nobody can assign to
    this run of the task is no result.
    """
    noted = note_of(pod)
    answer = judge(session, pod, cleared=was_cleared(session, noted.get("max_tries"), noted.get("try")))
    vouched = session.task.made(pod) and noted.get("try") != session.task.try_number
    if (answer.harvest or answer.lost is not None) and not vouched:
        return Answer(leftovers=(pod,))
    return answer
