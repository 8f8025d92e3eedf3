# SPDX-License-Identifier: Apache-2.0
"""The real operator against the real API server in the test's own process: no worker, no database.

For what a worker adds nothing to: which pod a try finds, creates, deletes. The task state store is a
dict, the scheduler and the kubelet are the test.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

KUBELET_TIME = "2026-01-01T00:00:00Z"


@dataclass
class Run:
    """One task instance in one namespace of its own, and what its tries share."""

    api: Any
    kubeconfig: str
    namespace: str
    stored: dict[str, Any] = field(default_factory=dict)
    pushed: dict[str, Any] = field(default_factory=dict)
    has_store: bool = True
    ids: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from kubernetes import client

        meta = client.V1ObjectMeta(name=self.namespace)
        self.api.create_namespace(client.V1Namespace(metadata=meta))

    def operator(self, cls: type[Any], **given: Any) -> Any:
        """Return an operator of a new try: nothing of an earlier one's memory is left."""
        settings = {
            "task_id": "t",
            "namespace": self.namespace,
            "image": "registry.invalid/image:1",
            "kubernetes_conn_id": None,
            "config_file": self.kubeconfig,
            "in_cluster": False,
            "get_logs": False,
            "base_container_status_polling_interval": 0.05,
        }
        return cls(**{**settings, **given})

    def context(self, try_number: int = 1, max_tries: int = 3) -> dict[str, Any]:
        """Return what a task gets as its context in that try."""
        ids = {"dag_id": "d", "task_id": "t", "run_id": "r", "map_index": -1, **self.ids}
        ti = SimpleNamespace(
            **ids, try_number=try_number, max_tries=max_tries, xcom_push=self._push, start_date=None
        )
        context = {"ti": ti, "run_id": ids["run_id"], "dag": SimpleNamespace(parent_dag=None)}
        if self.has_store:
            context["task_state_store"] = SimpleNamespace(
                get=self.stored.get, set=lambda key, value, **_: self.stored.update({key: value})
            )
        return context

    def _push(self, key: str, value: Any) -> None:
        self.pushed[key] = value

    def obtain(self, operator: Any, try_number: int = 1, max_tries: int = 3) -> Any:
        """Let a try find or create its pod and return it as the server has it."""
        context = self.context(try_number, max_tries)
        request = operator.build_pod_request_obj(context)
        pod = operator.get_or_create_pod(pod_request_obj=request, context=context)
        return self.api.read_namespaced_pod(pod.metadata.name, self.namespace)

    def pods(self) -> list[Any]:
        """Return the pods of the namespace that nobody has asked to delete."""
        found = self.api.list_namespaced_pod(self.namespace).items
        return [pod for pod in found if pod.metadata.deletion_timestamp is None]

    def names(self) -> set[str]:
        return {pod.metadata.name for pod in self.pods()}

    def events(self) -> list[str]:
        """Return the outbox rows, "2.identity_hit", sorted."""
        prefix = "steadfast.event.v1."
        return sorted(key.removeprefix(prefix) for key in self.stored if key.startswith(prefix))

    def play(self, pod: Any, phase: str, **containers: int | None) -> None:
        """Play the kubelet: the pod's phase, and per container its exit code, None while it runs."""
        statuses = [
            {
                "name": name.replace("_", "-"),
                "state": {"running": {"startedAt": KUBELET_TIME}}
                if code is None
                else {
                    "terminated": {"exitCode": code, "startedAt": KUBELET_TIME, "finishedAt": KUBELET_TIME}
                },
                "ready": code is None,
                "restartCount": 0,
                "image": "registry.invalid/image:1",
                "imageID": "",
            }
            for name, code in containers.items()
        ]
        body = {"status": {"phase": phase, "containerStatuses": statuses}}
        self.api.patch_namespaced_pod_status(pod.metadata.name, self.namespace, body)

    def twin(self, pod: Any, name: str, **metadata: Any) -> Any:
        """Create a pod with the labels of another one."""
        from kubernetes import client

        meta = client.V1ObjectMeta(**{"name": name, "labels": pod.metadata.labels, **metadata})
        spec = client.V1PodSpec(containers=[client.V1Container(name="base", image="i")])
        return self.api.create_namespaced_pod(self.namespace, client.V1Pod(metadata=meta, spec=spec))

    def remove(self, pod: Any) -> None:
        """Remove a pod at once."""
        self.api.delete_namespaced_pod(pod.metadata.name, self.namespace, grace_period_seconds=0)

    def hold_and_delete(self, pod: Any) -> None:
        """Leave a pod terminating, as a node that is slow or gone does."""
        body = {"metadata": {"finalizers": ["steadfast.test/hold"]}}
        self.api.patch_namespaced_pod(pod.metadata.name, self.namespace, body)
        self.remove(pod)
