# SPDX-License-Identifier: Apache-2.0
"""Deletes that can only hit the pod that was meant.

A name is free again as soon as its pod is gone, so a delete by name may hit a successor. The server
compares ``preconditions.uid`` inside the delete's transaction and answers 409 Conflict for another
pod (Kubernetes API reference, DeleteOptions).
"""

from __future__ import annotations

from typing import Any, Literal

from kubernetes import client
from kubernetes.client.exceptions import ApiException

Deletion = Literal["deleted", "gone"]

_NOT_FOUND = 404
_CONFLICT = 409


def delete_pod(
    api: client.CoreV1Api,
    name: str,
    namespace: str,
    uid: str | None,
    *,
    grace_period_seconds: int | None = None,
    resource_version: str | None = None,
    **request: Any,
) -> Deletion:
    """Ask for the deletion of the pod ``namespace/name`` whose uid is ``uid``.

    Returns "deleted" once the server has accepted it, "gone" where that pod no longer exists, its
    name being free or another pod's. Idempotent. Without a uid (None) the name alone decides, which
    is right only for a pod that nobody has read. With a ``resource_version`` a pod that has changed
    since is not deleted either, and "gone" says that the pod which was read is no longer what exists.
    ``request`` goes to the client as it is (``_request_timeout``). Raises ApiException for any other
    answer.
    """
    options: dict[str, Any] = {}
    if uid is not None:
        options["preconditions"] = client.V1Preconditions(uid=uid, resource_version=resource_version)
    if grace_period_seconds is not None:
        options["grace_period_seconds"] = grace_period_seconds
    try:
        body = client.V1DeleteOptions(**options)
        api.delete_namespaced_pod(name=name, namespace=namespace, body=body, **request)
    except ApiException as error:
        if error.status == _NOT_FOUND or (error.status == _CONFLICT and uid is not None):
            return "gone"
        raise
    return "deleted"
