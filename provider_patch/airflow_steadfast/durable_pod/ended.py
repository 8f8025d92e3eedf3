# SPDX-License-Identifier: Apache-2.0
"""What has become of a pod that a retry has found. Pure: looks at the operator's parameters and the pod.

The same questions as in the provider's clean-up, so that a pod gets the verdict here that it would have
got from the try that lost it.
"""

from __future__ import annotations

from typing import Any, Literal

from airflow.providers.cncf.kubernetes.utils.xcom_sidecar import PodDefaults

from airflow_steadfast.kube import pods

Outcome = Literal["live", "done", "failed", "lost"]
"""``live``: it may still do its work. ``done``: the work is done and its result can be taken.
``failed``: it ended without success, or was evicted. ``lost``: the work is done, but the container that
served its XCom has ended, so the result cannot be had any more."""


def outcome(operator: Any, pod: Any) -> Outcome:
    """Return what has become of the pod's work, by the operator's own idea of success."""
    if pods.is_evicted(pod):
        return "failed"
    code = exit_code(operator, pod)
    over = pods.phase(pod) in pods.TERMINAL_PHASES
    if code is not None and (over or _stays_ended(pod)) and code in _skip_codes(operator):
        return "done"
    if operator.do_xcom_push:
        return _with_xcom(pod, code, over=over)
    if _has_istio(operator, pod) and code is not None and _stays_ended(pod):
        return "done" if code == 0 else "failed"
    if pods.has_failed(pod):
        return "failed"
    return "done" if pods.has_succeeded(pod) else "live"


def exit_code(operator: Any, pod: Any) -> int | None:
    """Return the exit code of the container that does the work; None while it has not ended."""
    ended = _terminated(pod, operator.base_container_name)
    code = getattr(ended, "exit_code", None)
    return code if isinstance(code, int) else None


def _with_xcom(pod: Any, code: int | None, *, over: bool) -> Outcome:
    if not over and (code is None or not _stays_ended(pod)):
        return "live"
    if code is None:
        # No container status any more: the phase is all that is left, and there is nobody to ask.
        return "lost" if pods.has_succeeded(pod) else "failed"
    if code != 0:
        return "failed"
    return "done" if not over and _is_running(pod, PodDefaults.SIDECAR_CONTAINER_NAME) else "lost"


def _stays_ended(pod: Any) -> bool:
    """Return whether the kubelet does not start an ended container of the pod again."""
    return getattr(pod.spec, "restart_policy", None) == "Never"


def _skip_codes(operator: Any) -> tuple[int, ...]:
    codes = getattr(operator, "skip_on_exit_code", None) or ()
    return (codes,) if isinstance(codes, int) else tuple(codes)


def _has_istio(operator: Any, pod: Any) -> bool:
    name = getattr(operator, "ISTIO_CONTAINER_NAME", None)
    return any(container.name == name for container in getattr(pod.spec, "containers", None) or ())


def _status(pod: Any, name: str) -> Any:
    statuses = getattr(pod.status, "container_statuses", None) or ()
    return next((status for status in statuses if status.name == name), None)


def _terminated(pod: Any, name: str) -> Any:
    state = getattr(_status(pod, name), "state", None)
    return getattr(state, "terminated", None)


def _is_running(pod: Any, name: str) -> bool:
    state = getattr(_status(pod, name), "state", None)
    return getattr(state, "running", None) is not None
