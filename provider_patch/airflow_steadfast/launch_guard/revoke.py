# SPDX-License-Identifier: Apache-2.0
"""Deletes the pod of a launch that is void, and only if that pod has not started.

Three steps, each bound to the version of the pod that was read: read it, mark it revoked so that the
executor's watcher says nothing of its end, delete it. The server refuses the second and the third once
the kubelet has written anything, so a worker that starts in between is left alone and its mark removed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

from kubernetes.client.exceptions import ApiException

from airflow_steadfast.kube import delete, pods, reader
from airflow_steadfast.launch_guard.answers import describe
from airflow_steadfast.launch_guard.existing import REVOKED_LABEL

if TYPE_CHECKING:
    from airflow_steadfast.launch_guard.launch import PodRef

log = logging.getLogger("airflow_steadfast.launch_guard")

Outcome = Literal["revoked", "started", "gone", "foreign", "failed"]

MOST_MARKED = 1_000
"""Pods that are remembered as marked and not yet deleted while the API server fails."""

_CONFLICT = 409
_NOT_FOUND = 404


class Revoker:
    """Revokes pods through the launcher's client; no method raises."""

    def __init__(self, launcher: Any) -> None:
        self._launcher = launcher
        self._own_api: Any = None
        self._marked: set[str | None] = set()

    @property
    def _api(self) -> Any:
        if self._own_api is None:
            self._own_api = reader.impatient(self._launcher.kube_client)
        return self._own_api

    def revoke(self, ref: PodRef, launch: str | None) -> Outcome:
        """Delete the pod ``ref`` if it is Pending and ``launch`` is its launch annotation, None for none.

        "revoked": the server has accepted its deletion. "started": it is past Pending, or changed while
        this looked, and is left alone. "gone": there is none, or it is being deleted already (also by an
        earlier call whose answer was lost). "foreign": the name is another launch's pod's. "failed": the
        server gave no usable answer; what was begun is finished, or taken back, by the next call.
        """
        try:
            return self._revoke(ref, launch)
        except Exception as error:
            log.info("Pod %s/%s cannot be revoked now: %s", ref.namespace, ref.name, describe(error))
            return "failed"

    def spare(self, ref: PodRef) -> None:
        """Take the mark off a pod that was not deleted after all, so that its end is told. Never raises."""
        try:
            self._mark(ref, None, None, revoked=None)
        except Exception as error:
            log.warning("Pod %s/%s stays marked as revoked: %s", ref.namespace, ref.name, describe(error))

    def _revoke(self, ref: PodRef, launch: str | None) -> Outcome:
        pod = reader.read_pod(self._api, ref.name, ref.namespace)
        if pod is None or pods.is_terminating(pod):
            return "gone"
        if pods.annotation(pod, pods.LAUNCH_ANNOTATION) != launch:
            return "foreign"
        if pods.phase(pod) not in {None, "Pending"}:
            return self._let_go(ref, pods.uid(pod)) if pods.uid(pod) in self._marked else "started"
        if len(self._marked) >= MOST_MARKED:
            self._marked.clear()
        self._marked.add(pods.uid(pod))  # before it is: the answer may be lost
        version = self._mark(ref, pods.uid(pod), pod.metadata.resource_version, revoked="True")
        if version is None:
            return self._let_go(ref, pods.uid(pod))
        deletion = delete.delete_pod(
            self._api,
            ref.name,
            ref.namespace,
            pods.uid(pod),
            resource_version=version,
            _request_timeout=reader.TIMEOUT,
        )
        if deletion == "deleted":
            self._marked.discard(pods.uid(pod))
            return "revoked"
        return self._let_go(ref, pods.uid(pod))

    def _let_go(self, ref: PodRef, uid: str | None) -> Outcome:
        """The pod changed under the deletion: it has started, so its end is to be reported again."""
        pod = reader.read_pod(self._api, ref.name, ref.namespace)
        if pod is None or pods.uid(pod) != uid or pods.is_terminating(pod):
            return "gone"
        if pods.label(pod, REVOKED_LABEL) is not None:
            self._mark(ref, uid, None, revoked=None)
        self._marked.discard(uid)
        return "started"

    def _mark(self, ref: PodRef, uid: str | None, version: str | None, *, revoked: str | None) -> str | None:
        """Set or remove the executor's label; the pod's new version, None if it is not the same any more."""
        metadata: dict[str, Any] = {"labels": {REVOKED_LABEL: revoked}}
        if uid is not None:
            metadata["uid"] = uid
        if version is not None:
            metadata["resourceVersion"] = version
        try:
            changed = self._api.patch_namespaced_pod(
                name=ref.name,
                namespace=ref.namespace,
                body={"metadata": metadata},
                _request_timeout=reader.TIMEOUT,
            )
        except ApiException as error:
            if error.status in {_CONFLICT, _NOT_FOUND}:
                return None
            raise
        return str(changed.metadata.resource_version)
