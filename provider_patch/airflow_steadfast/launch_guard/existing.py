# SPDX-License-Identifier: Apache-2.0
"""A pod already has the name that a launch asked for: whose is it? Pure.

A pod is a launch's own only by the launch annotation, which nobody else writes. A launch that the
database still calls queued, and whose pod has finished, is waiting for the watcher's report of that
pod: a second pod would be a second launch.
"""

from __future__ import annotations

from typing import Any, Literal

from airflow_steadfast.kube import pods

Finding = Literal["own", "wait", "replace", "foreign"]

REVOKED_LABEL = "airflow_pod_revoked"
"""The executor's label for a pod that it is about to delete."""

_SAME_TASK_INSTANCE = ("dag_id", "task_id", "run_id", "map_index")


def whose(pod: Any, request: Any) -> Finding:
    """Compare the pod that exists with the one that was asked for.

    ``own``: made by this launch. ``wait``: its name will be free, it is being deleted. ``replace``: a
    finished pod of an earlier launch of the same task instance, of no use to anybody but in the way.
    ``foreign``: anything else.
    """
    if pods.is_terminating(pod) or pods.label(pod, REVOKED_LABEL) is not None:
        return "wait"
    wanted = pods.annotation(request, pods.LAUNCH_ANNOTATION)
    if wanted is not None and pods.annotation(pod, pods.LAUNCH_ANNOTATION) == wanted:
        return "own"
    finished = pods.has_failed(pod) or pods.has_succeeded(pod)
    if finished and _same_task_instance(pod, request):
        return "replace"
    return "foreign"


def _same_task_instance(pod: Any, request: Any) -> bool:
    if pods.label(pod, "kubernetes_executor") != "True":
        return False
    return all(pods.annotation(pod, key) == pods.annotation(request, key) for key in _SAME_TASK_INSTANCE)
