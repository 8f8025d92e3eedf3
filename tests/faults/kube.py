# SPDX-License-Identifier: Apache-2.0
"""What kubelet and the node do to a pod, on the real kube-apiserver, past the proxy."""

from __future__ import annotations

import json
import ssl
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.apiserver import TOKEN

if TYPE_CHECKING:
    from tests.support.apiserver import ApiServer

NODE = "node-1"


class Pods:
    """The pods of one namespace, as plain JSON."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        context = ssl.create_default_context(cafile=str(server.folder / "certs" / "apiserver.crt"))
        context.check_hostname = False  # the server's own certificate is the only one that is trusted
        self._client = httpx.Client(
            base_url=server.url,
            verify=context,
            timeout=30,
            headers={"Authorization": f"Bearer {TOKEN}", "User-Agent": "test-kubelet"},
        )
        self.namespace = namespace
        made = self._client.post("/api/v1/namespaces", json={"metadata": {"name": namespace}})
        if made.status_code != HTTPStatus.CONFLICT:
            made.raise_for_status()
        self._path = f"/api/v1/namespaces/{namespace}/pods"

    def all(self) -> list[dict[str, Any]]:
        """Return the pods that exist, oldest first."""
        answer = self._client.get(self._path)
        answer.raise_for_status()
        return sorted(answer.json()["items"], key=lambda pod: int(pod["metadata"]["resourceVersion"]))

    def pending(self) -> list[dict[str, Any]]:
        """Return those that have not started and are not being deleted."""
        return [
            pod
            for pod in self.all()
            if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]
        ]

    def create(self, manifest: dict[str, Any]) -> None:
        self._client.post(self._path, json=manifest).raise_for_status()

    def bind(self, pod: dict[str, Any]) -> None:
        """Put it on a node: from now on a delete waits for kubelet, as in production."""
        if not pod["spec"].get("nodeName"):
            name = pod["metadata"]["name"]
            self._client.post(
                f"{self._path}/{name}/binding",
                json={
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": {"name": name},
                    "target": {"apiVersion": "v1", "kind": "Node", "name": NODE},
                },
            ).raise_for_status()

    def started(self, pod: dict[str, Any]) -> bool:
        """Tell that its container runs; False where the pod is gone."""
        return self._status(pod, "Running", {"running": {"startedAt": None}})

    def finished(self, pod: dict[str, Any], code: int, reason: str = "") -> bool:
        """Tell that its container ended; False where the pod is gone."""
        reason = reason or ("Completed" if code == 0 else "Error")
        phase = "Succeeded" if code == 0 else "Failed"
        return self._status(pod, phase, {"terminated": {"exitCode": code, "reason": reason}})

    def evict(self, pod: dict[str, Any]) -> bool:
        """Tell that the node gave it up before its container started."""
        return self._patch(pod, {"phase": "Failed", "reason": "Evicted", "message": "node was drained"})

    def reap(self) -> None:
        """Finish the deletes that wait for kubelet."""
        for pod in self.all():
            if "deletionTimestamp" in pod["metadata"]:
                self._client.request(
                    "DELETE",
                    f"{self._path}/{pod['metadata']['name']}",
                    content=json.dumps({"gracePeriodSeconds": 0}),
                )

    def delete_all(self) -> None:
        self._client.request("DELETE", self._path, content=json.dumps({"gracePeriodSeconds": 0}))

    def close(self) -> None:
        self._client.close()

    def _status(self, pod: dict[str, Any], phase: str, state: dict[str, Any]) -> bool:
        container = {
            "name": pod["spec"]["containers"][0]["name"],
            "image": pod["spec"]["containers"][0]["image"],
            "imageID": "",
            "ready": phase == "Running",
            "restartCount": 0,
            "state": state,
        }
        return self._patch(pod, {"phase": phase, "containerStatuses": [container]})

    def _patch(self, pod: dict[str, Any], status: dict[str, Any]) -> bool:
        answer = self._client.patch(
            f"{self._path}/{pod['metadata']['name']}/status",
            content=json.dumps({"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        if answer.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
            return False
        answer.raise_for_status()
        return True
