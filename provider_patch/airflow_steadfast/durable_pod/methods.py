# SPDX-License-Identifier: Apache-2.0
"""The operator's methods, made durable: thin wrappers that ask this package and else the provider.

Each is built over the method it replaces, so it works on the provider's class and on a subclass
alike, and calls the original wherever the try is not durable.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from airflow_steadfast.durable_pod import faults, lookup, reattach, termination
from airflow_steadfast.durable_pod import session as sessions
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

DELIBERATE = (AirflowException, ApiException, HTTPError)
"""Errors that say something about the task or the cluster: the task gets them, as from the provider."""

SEAMS: Mapping[str, tuple[str, ...]] = {
    "get_or_create_pod": ("self", "pod_request_obj", "context"),
    "find_pod": ("self", "namespace", "context", "exclude_checked"),
    "process_pod_deletion": ("self", "pod", "reraise"),
    "post_complete_action": ("self", "pod", "remote_pod", "context"),
    "on_kill": ("self",),
}
"""The methods that are wrapped, with the parameters that must be there."""

READ_SEAMS = (
    "_build_find_pod_label_selector",
    "_get_ti_pod_labels",
    "patch_already_checked",
    "POD_CHECKED_KEY",
)
"""What else of the class is used."""


class PodReplacedError(AirflowException):
    """Another pod now has the name of the pod that this try follows."""


class TaskKilledError(AirflowException):
    """The task was told to stop before its pod had ended."""


def build(owner: type[Any]) -> dict[str, Callable[..., Any]]:
    """Return the wrappers of ``owner``'s present methods, by name. Changes nothing."""
    return {
        "get_or_create_pod": _get_or_create_pod(owner.get_or_create_pod),
        "find_pod": _find_pod(owner.find_pod),
        "process_pod_deletion": _process_pod_deletion(owner.process_pod_deletion),
        "post_complete_action": _post_complete_action(owner.post_complete_action),
        "on_kill": _on_kill(owner.on_kill),
    }


def _get_or_create_pod(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def get_or_create_pod(self: Any, pod_request_obj: Any, context: Any) -> Any:
        session: Session | None = None
        try:
            if self.reattach_on_restart:
                session = sessions.begin(self, context)
            if session is not None:
                return reattach.obtain_pod(session, pod_request_obj)
        except DELIBERATE:
            raise
        except Exception as error:
            faults.note("finding or creating the pod", error, session)
        return native(self, pod_request_obj, context)

    return get_or_create_pod


def _find_pod(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def find_pod(self: Any, namespace: str, context: Any, *, exclude_checked: bool = True) -> Any:
        session = sessions.current(self)
        if session is None or session.identity is None:
            return native(self, namespace, context, exclude_checked=exclude_checked)
        return _read_again(session)

    return find_pod


def _read_again(session: Session) -> Any:
    """Return this try's pod as it is now, None where it is gone. Raises PodReplacedError for a namesake."""
    identity = session.identity
    if identity is None:
        return None
    pod = lookup.read(session, identity.name, identity.namespace)
    if pod is not None and identity.uid is not None and pods.uid(pod) != identity.uid:
        raise PodReplacedError(
            f"pod {identity.namespace}/{identity.name} is no longer the one that this try follows (uid "
            f"{identity.uid}): {pods.describe(pod)} has taken its name"
        )
    return pod


def _process_pod_deletion(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def process_pod_deletion(self: Any, pod: Any, *, reraise: bool = True) -> Any:
        if sessions.current(self) is None or pod is None or pods.uid(pod) is None:
            return native(self, pod, reraise=reraise)
        with termination.uid_bound_deletes(self):
            return native(self, pod, reraise=reraise)

    return process_pod_deletion


def _post_complete_action(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def post_complete_action(self: Any, *args: Any, **keywords: Any) -> Any:
        session = sessions.current(self)
        if session is not None and session.is_orphaned:
            # The scheduler will start another try, and that one is to find the pod as it is.
            log.warning("the task's supervisor is gone: the pod is left for the next try")
            return None
        succeeded = False
        try:
            result = native(self, *args, **keywords)
            succeeded = True
        finally:
            pod, remote_pod = keywords.get("pod"), keywords.get("remote_pod")
            termination.end_try(self, keywords.get("context"), pod, remote_pod, succeeded=succeeded)
        if session is not None and self._killed:
            # The provider returns here, and Airflow records the half done work as a success. Where a user
            # has set the state already, the server keeps that one.
            raise TaskKilledError(f"the task was killed while it followed {_name_of(session)}")
        return result

    return post_complete_action


def _name_of(session: Session) -> str:
    identity = session.identity
    return f"pod {identity.namespace}/{identity.name}" if identity is not None else "its pod"


def _on_kill(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def on_kill(self: Any) -> None:
        session = sessions.current(self)
        if session is None:
            native(self)
        else:
            termination.kill(session, functools.partial(native, self))

    return on_kill
