# SPDX-License-Identifier: Apache-2.0
"""Every pod that existed while a story ran, however briefly: a watch from before it to after it.

The workers' pods are deleted as they finish, so a look at the end would miss them; the API server
sends each creation to a watch.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from tests.cluster.stories.outcome import StoryFailedError

if TYPE_CHECKING:
    from types import TracebackType

    from tests.cluster.stories.kubectl import Kubectl

_FINISHED = ("Succeeded", "Failed")


@dataclass
class SeenPod:
    """One pod by uid. ``task_instance`` is the identity in a worker's workload (empty for other pods)."""

    uid: str
    name: str
    labels: dict[str, str]
    annotations: dict[str, str]
    task_instance: dict[str, Any]
    first_seen: float
    phases: list[str] = field(default_factory=list)
    gone: bool = False

    @property
    def finished(self) -> bool:
        return self.gone or bool(self.phases and self.phases[-1] in _FINISHED)

    @property
    def is_worker(self) -> bool:
        return bool(self.task_instance)

    @property
    def is_operator_pod(self) -> bool:
        return self.labels.get("kubernetes_pod_operator") == "True"

    @property
    def run_id(self) -> str:
        """The run that a worker's workload names, else the run of the annotation."""
        return str(self.task_instance.get("run_id") or self.annotations.get("run_id") or "")


class PodWatch:
    """A context manager around a list of the namespace's pods and a watch from there; ``pods()`` at any time.

    The watch goes on from the last version seen where the server ends it, so nothing is missed;
    ``check()`` raises StoryFailedError when that was not possible.
    """

    def __init__(self, kubectl: Kubectl) -> None:
        """Take the cluster and the namespace to watch; nothing is started yet."""
        self._kubectl = kubectl
        self._pods: dict[str, SeenPod] = {}
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._version = ""
        self._leaving = threading.Event()
        self._broken = ""

    def __enter__(self) -> Self:
        listed = json.loads(self._kubectl.run("get", "--raw", self._path()))
        for pod in listed["items"]:
            self.take({"type": "ADDED", "object": pod})
        self._version = listed["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._follow, daemon=True, name="pod-watch")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leaving.set()
        if self._process is not None:
            self._process.terminate()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def check(self) -> None:
        """Raise unless the watch has seen everything since it began."""
        if self._broken:
            raise StoryFailedError(f"the pod watch broke off, pods may have been missed: {self._broken}")

    def pods(self) -> list[SeenPod]:
        """Every pod seen so far, oldest first."""
        with self._lock:
            return sorted(self._pods.values(), key=lambda pod: pod.first_seen)

    def workers(self, run_id: str) -> list[SeenPod]:
        return [pod for pod in self.pods() if pod.is_worker and pod.run_id == run_id]

    def operator_pods(self, run_id: str) -> list[SeenPod]:
        """Pods that a KubernetesPodOperator made for this run."""
        return [
            pod for pod in self.pods() if pod.is_operator_pod and pod.annotations.get("demo/run") == run_id
        ]

    def _path(self) -> str:
        return f"/api/v1/namespaces/{self._kubectl.namespace}/pods"

    def _follow(self) -> None:
        while not self._leaving.is_set() and not self._broken:
            options = f"watch=1&allowWatchBookmarks=true&resourceVersion={self._version}"
            with subprocess.Popen(
                self._kubectl.command("get", "--raw", f"{self._path()}?{options}"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=self._kubectl.environment,
            ) as self._process:
                for line in self._process.stdout or ():
                    # one that was cut off comes again, whole, from the version before it
                    if line.endswith("\n"):
                        self.take(json.loads(line))
            self._leaving.wait(1)

    def take(self, event: dict[str, Any]) -> None:
        """Take one watch event in."""
        pod = event["object"]
        if event["type"] == "ERROR":
            self._broken = str(pod.get("message", pod))
            return
        metadata = pod["metadata"]
        self._version = metadata["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return
        with self._lock:
            seen = self._pods.setdefault(metadata["uid"], _first_look(pod))
            phase = str(pod.get("status", {}).get("phase", ""))
            if phase and (not seen.phases or seen.phases[-1] != phase):
                seen.phases.append(phase)
            seen.gone = seen.gone or event["type"] == "DELETED"


def _first_look(pod: dict[str, Any]) -> SeenPod:
    metadata = pod["metadata"]
    return SeenPod(
        uid=metadata["uid"],
        name=metadata["name"],
        labels=dict(metadata.get("labels") or {}),
        annotations=dict(metadata.get("annotations") or {}),
        task_instance=_task_instance(pod),
        first_seen=time.time(),
    )


def _task_instance(pod: dict[str, Any]) -> dict[str, Any]:
    """Read the task instance from a worker's workload, the only place where 3.3.2 puts its id."""
    for container in pod.get("spec", {}).get("containers", ()):
        arguments = [*(container.get("command") or ()), *(container.get("args") or ())]
        if "--json-string" in arguments:
            workload = json.loads(arguments[arguments.index("--json-string") + 1])
            return dict(workload.get("ti") or {})
    return {}
