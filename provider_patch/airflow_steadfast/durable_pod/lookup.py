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
from airflow.providers.cncf.kubernetes.kubernetes_helper_functions import generic_api_retry
from airflow.providers.cncf.kubernetes.operators import pod as provider
from kubernetes.client.exceptions import ApiException

from airflow_steadfast.durable_pod.session import note_of
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.identity import Identity
    from airflow_steadfast.durable_pod.session import Session

_FORBIDDEN = 403
_NOT_FOUND = 404

_CHECKED = "checked"
"""A try has dealt with the pod's end and stamped it: as good as a finished identity, so never counted."""


class PodReadForbiddenError(AirflowException):
    """The worker may not read pods in that namespace."""


@dataclass(frozen=True)
class Answer:
    """What the stored identity led to.

    Exactly one of these holds: ``pod`` is the one to follow (``harvest`` where it has succeeded
    already); ``search`` is the reason for a label search; neither, and a fresh pod is right:
    ``leftover`` is then the old pod to be put away first, ``intent`` the name to create under.
    """

    pod: Any = None
    harvest: bool = False
    search: str | None = None
    leftover: Any = None
    intent: Identity | None = None


def by_identity(session: Session, identity: Identity) -> Answer:
    """Ask the API server for the pod of a stored identity. No label search.

    Raises PodReadForbiddenError, or the client's error after the provider's own retries.
    """
    if identity.state == "finished":
        return Answer()
    pod = read(session, identity.name, identity.namespace)
    cleared = _was_cleared(session, identity)
    problem = _problem(session, identity, pod)
    if problem == _CHECKED or (problem is not None and cleared):
        return Answer()
    if pod is None and identity.is_intent:
        return Answer(intent=identity)
    if problem is not None:
        return Answer(search=problem)
    done = pods.has_succeeded(pod)
    if cleared or pods.has_failed(pod) or (done and not _can_be_harvested(session)):
        return Answer(leftover=pod)
    return Answer(pod=pod, harvest=done)


def by_labels(session: Session, namespace: str) -> Answer:
    """Search for the task's pod by its labels, as the provider does, but never among dead pods.

    Terminating and already checked pods are no candidates. A pod that failed, or succeeded without
    a result that can be taken, becomes the ``leftover``. Raises the provider's
    FoundMoreThanOnePodFailure where several candidates are left: which one is a guess.
    """
    operator = session.operator
    selector = operator._build_find_pod_label_selector(session.context, exclude_checked=True)  # noqa: SLF001 - the seam

    @generic_api_retry
    def search() -> list[Any]:
        return list(operator.client.list_namespaced_pod(namespace=namespace, label_selector=selector).items)

    present = [pod for pod in search() if not pods.is_terminating(pod)]
    candidates = [pod for pod in present if not pods.has_failed(pod) and not pods.has_succeeded(pod)]
    harvests = [pod for pod in present if pods.has_succeeded(pod) and _is_unfinished_work(session, pod)]
    if len(candidates) + len(harvests) > 1:
        raise provider.FoundMoreThanOnePodFailure(f"More than one pod running with labels {selector}")
    if candidates:
        return Answer(pod=candidates[0])
    if harvests:
        return Answer(pod=harvests[0], harvest=True)
    return Answer(leftover=present[0]) if len(present) == 1 else Answer()


def read(session: Session, name: str, namespace: str) -> Any:
    """Return the pod, or None where there is none of this name.

    Raises PodReadForbiddenError for a 403, else the client's error after the provider's own retries.
    """

    @generic_api_retry
    def get() -> Any:
        return session.operator.hook.get_pod(name, namespace)

    try:
        return get()
    except ApiException as error:
        if error.status == _NOT_FOUND:
            return None
        if error.status == _FORBIDDEN:
            raise PodReadForbiddenError(
                f"the worker may not read the pod {namespace}/{name} (403), so it cannot tell whether its "
                f'work still runs. Grant its ServiceAccount "get" on "pods" in namespace {namespace!r}'
            ) from error
        raise


def _problem(session: Session, identity: Identity, pod: Any) -> str | None:
    """Return why what was read is not to be followed: a fallback reason, _CHECKED, or None for no reason."""
    if pod is None:
        moved = None not in (identity.cluster, session.cluster) and identity.cluster != session.cluster
        return "other" if moved else "pod_gone"
    if not _is_the_one(session, identity, pod):
        return "uid_mismatch"
    if pods.label(pod, session.operator.POD_CHECKED_KEY) == "True":
        return _CHECKED
    return "terminating" if pods.is_terminating(pod) else None


def _is_the_one(session: Session, identity: Identity, pod: Any) -> bool:
    """Return whether the pod under the stored name is the stored pod and not a namesake."""
    if identity.uid is not None:
        return pods.uid(pod) == identity.uid
    if identity.launch is not None:
        return pods.annotation(pod, pods.LAUNCH_ANNOTATION) == identity.launch
    # A value of the provider has neither: only the labels can tell, as in its own search.
    wanted = session.operator._get_ti_pod_labels(session.context, include_try_number=False)  # noqa: SLF001 - the seam
    return all(pods.label(pod, key) == value for key, value in wanted.items())


def _was_cleared(session: Session, identity: Identity) -> bool:
    """Return whether a user has cleared the task since: Airflow raises ``max_tries`` then, and only then."""
    stored, now = identity.max_tries, session.task.max_tries
    return stored is not None and now is not None and stored != now


def _can_be_harvested(session: Session) -> bool:
    """Return whether the result of a pod in phase Succeeded can still be taken.

    Its XCom cannot: the container that serves it has ended with the pod.
    """
    return not session.operator.do_xcom_push


def _is_unfinished_work(session: Session, pod: Any) -> bool:
    """Return whether a succeeded pod was found whose result no try has taken and no user has discarded."""
    noted = note_of(pod)
    return (
        _can_be_harvested(session)
        and session.task.made(pod)
        and noted.get("max_tries") == session.task.max_tries
        and noted.get("try") != session.task.try_number
    )
