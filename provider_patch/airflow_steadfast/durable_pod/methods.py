# SPDX-License-Identifier: Apache-2.0
"""The operator's methods, made durable: thin wrappers that ask this package and else the provider.

Each is built over the method it replaces, so it works on the provider's class and on a subclass
alike, and calls the original wherever the try is not durable.
"""

from __future__ import annotations

import functools
import logging
import sys
from typing import TYPE_CHECKING, Any

from airflow.exceptions import AirflowException
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from airflow_steadfast.durable_pod import deletion, ending, faults, following, reattach, resume, termination
from airflow_steadfast.durable_pod import session as sessions
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

DELIBERATE = (AirflowException, *termination.ABOUT_THE_TASK, ApiException, HTTPError)
"""Errors that say something about the task or the cluster: the task gets them, as from the provider."""

SEAMS: Mapping[str, tuple[str, ...]] = {
    "get_or_create_pod": ("self", "pod_request_obj", "context"),
    "find_pod": ("self", "namespace", "context", "exclude_checked"),
    "patch_already_checked": ("self", "pod", "reraise"),
    "cleanup": ("self", "pod", "remote_pod", "context"),
    "execute_sync": ("self", "context"),
    "execute_async": ("self", "context"),
    "trigger_reentry": ("self", "context", "event"),
    "on_kill": ("self",),
}
"""The methods that are wrapped, with the parameters that must be there."""

READ_SEAMS = ("_get_ti_pod_labels", "POD_CHECKED_KEY")
"""What else of the class is used."""


def build(owner: type[Any]) -> dict[str, Any]:
    """Return the wrappers of ``owner``'s present methods, by name. Changes nothing.

    Raises TypeError where ``pod_manager`` is no cached property.
    """
    manager = owner.pod_manager
    if not isinstance(manager, functools.cached_property):
        raise TypeError(f"{owner.__name__}.pod_manager is no cached property")
    built: dict[str, Any] = {
        "pod_manager": following.manager_property(manager),
        "get_or_create_pod": _get_or_create_pod(owner.get_or_create_pod),
        "find_pod": _find_pod(owner.find_pod),
        "patch_already_checked": _patch_already_checked(owner.patch_already_checked),
        "cleanup": _cleanup(owner.cleanup),
        "execute_sync": _run(owner.execute_sync),
        "execute_async": _run(owner.execute_async),
        "trigger_reentry": _run(resume.wrap_reentry(owner.trigger_reentry)),
        "on_kill": _on_kill(owner.on_kill),
    }
    if hasattr(owner, "_write_logs"):
        built["_write_logs"] = resume.wrap_write_logs(owner._write_logs)  # noqa: SLF001 - the seam
    if hasattr(owner, "resume_execution"):
        built["resume_execution"] = resume.wrap_resume_execution(owner.resume_execution)
    return built


def _get_or_create_pod(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def get_or_create_pod(self: Any, pod_request_obj: Any, context: Any) -> Any:
        session: Session | None = None
        try:
            if self.reattach_on_restart:
                session = sessions.begin(self, context)
            if session is not None:
                termination.refuse_a_killed_task(self)
                return reattach.obtain_pod(session, pod_request_obj)
        except DELIBERATE:
            raise
        except Exception as error:
            faults.note("finding or creating the pod", error, session)
            if session is not None and session.identity is not None:
                # The pod is there and known: a second one would be the worse fault.
                return self.pod
        return native(self, pod_request_obj, context)

    return get_or_create_pod


def _find_pod(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def find_pod(self: Any, namespace: str, context: Any, *, exclude_checked: bool = True) -> Any:
        session = sessions.current(self)
        if session is None or session.identity is None:
            return native(self, namespace, context, exclude_checked=exclude_checked)
        return following.find_followed(session)

    return find_pod


def _patch_already_checked(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def patch_already_checked(self: Any, pod: Any, *, reraise: bool = True) -> None:
        if sessions.current(self) is None or pod is None or pods.uid(pod) is None:
            native(self, pod, reraise=reraise)
            return
        try:
            deletion.stamp_checked(self, pod)
        except Exception:
            if reraise:
                raise
            log.warning("pod %s could not be stamped as checked", pods.describe(pod), exc_info=True)

    return patch_already_checked


def _cleanup(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def cleanup(self: Any, pod: Any, remote_pod: Any, *args: Any, **keywords: Any) -> Any:
        session = sessions.current(self)
        error = sys.exc_info()[1]
        if session is not None and error is None:
            termination.forgive_late_stop(session, remote_pod)
        left = None if session is None else termination.why_left(session, error, remote_pod)
        if left is not None:
            log.warning("the pod is not cleaned up: %s", left)
            return None
        if session is not None:
            # What is told from here on comes too late to matter: the pod has ended, or is given up.
            session.closed = True
        succeeded = False
        try:
            result = native(self, pod, remote_pod, *args, **keywords)
            succeeded = error is None
        finally:
            ending.end_try(self, keywords.get("context"), pod, remote_pod, succeeded=succeeded)
        return result

    return cleanup


def _run(native: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method that follows the pod: a task that was told to stop never leaves it as a success."""

    @functools.wraps(native)
    def run(self: Any, *args: Any, **keywords: Any) -> Any:
        try:
            result = native(self, *args, **keywords)
        except termination.DEFERRALS:
            raise
        except BaseException as error:
            killed = _cut_short(sessions.current(self), error)
            if killed is None:
                raise
            raise killed from None
        else:
            session = sessions.current(self)
            if session is not None and not session.closed and session.stop_requested:
                raise termination.conclude(session)
            return result
        finally:
            session = sessions.current(self)
            if session is not None:
                session.closed = True

    return run


def _cut_short(session: Session | None, error: BaseException) -> Exception | None:
    """Decide about the pod of a try that did not come to its clean-up; return what to raise instead."""
    if session is None or session.closed:
        return None
    if isinstance(error, termination.TIMEOUTS):
        termination.time_out(session)
    if not session.stop_requested:
        return None
    killed = termination.conclude(session)
    raised_by_airflow = isinstance(error, termination.STOPS) and not isinstance(
        error, termination.StopFollowing
    )
    return None if raised_by_airflow else killed


def _on_kill(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def on_kill(self: Any) -> None:
        session = sessions.current(self)
        if session is None:
            native(self)
        else:
            termination.on_kill(session)

    return on_kill
