# SPDX-License-Identifier: Apache-2.0
"""The worker pods of a real kube-apiserver as plain JSON, no model classes: list, watch, set a status."""

from __future__ import annotations

import json
import ssl
from typing import TYPE_CHECKING, Any

import httpx

from tests.support.apiserver import TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.apiserver import ApiServer

_SECONDS = 10.0


class GoneError(Exception):
    """The pod does not exist any more, or another one has its name."""


class Kube:
    """One namespace. Requests carry the user agent "test-player" and are not the executor's."""

    def __init__(self, server: ApiServer, namespace: str) -> None:
        context = ssl.create_default_context(cafile=str(server.folder / "certs" / "apiserver.crt"))
        context.check_hostname = False  # the server's own certificate is the only one that is trusted
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._client = httpx.Client(
            base_url=server.url,
            verify=context,
            timeout=_SECONDS,
            headers={"Authorization": f"Bearer {TOKEN}", "User-Agent": "test-player"},
            limits=httpx.Limits(max_connections=64),
        )

    def pods(self) -> tuple[list[dict[str, Any]], str]:
        """Return the pods and the resource version of the list."""
        answer = self._client.get(self._path)
        answer.raise_for_status()
        body = answer.json()
        return body["items"], body["metadata"]["resourceVersion"]

    def watch(self, version: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield ("ADDED" | "MODIFIED" | "DELETED", pod) until the server ends it; raises httpx.HTTPError."""
        arguments = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "300"}
        with self._client.stream(
            "GET", self._path, params=arguments, timeout=httpx.Timeout(_SECONDS, read=None)
        ) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines():
                event = json.loads(line)
                if event["type"] == "ERROR":
                    return
                yield event["type"], event["object"]

    def write_status(self, name: str, uid: str, status: dict[str, Any]) -> None:
        """Set a pod's status; raises GoneError, or httpx.HTTPError when the server cannot be asked."""
        answer = self._client.patch(
            f"{self._path}/{name}/status",
            content=json.dumps({"metadata": {"uid": uid}, "status": status}),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        if answer.status_code in (404, 409):
            raise GoneError
        answer.raise_for_status()

    def close(self) -> None:
        self._client.close()


def running(image: str, now: str) -> dict[str, Any]:
    """The status that a kubelet gives a pod whose container has just started."""
    state = {"running": {"startedAt": now}}
    return {"phase": "Running", "startTime": now, "containerStatuses": [_container(image, state, ready=True)]}


def finished(image: str, began: str, now: str, code: int) -> dict[str, Any]:
    """The status of a pod whose container has ended with ``code``."""
    ended = {
        "exitCode": code,
        "reason": "Error" if code else "Completed",
        "startedAt": began,
        "finishedAt": now,
    }
    phase = "Failed" if code else "Succeeded"
    return {"phase": phase, "containerStatuses": [_container(image, {"terminated": ended}, ready=False)]}


def _container(image: str, state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
    return {
        "name": "base",
        "image": image,
        "imageID": image,
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
    }
