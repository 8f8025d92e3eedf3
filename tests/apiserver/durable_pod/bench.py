# SPDX-License-Identifier: Apache-2.0
"""One task through its tries: real worker, real Execution API on PostgreSQL, real kube-apiserver.

What the test plays is the scheduler, one try after another, and the kubelet.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.apiserver.durable_pod import scheduler
from tests.apiserver.durable_pod.worker import Fault, Try, work

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.apiserver import ApiServer, Request
    from tests.support.postgres import PostgresServer

STATE_KEY = "pod_identifier"

__all__ = ["STATE_KEY", "Bench", "Fault", "Try"]


@dataclass
class Bench:
    """Everything a scenario needs; one per test session, one dag run and namespace per scenario."""

    postgres: PostgresServer
    database: str
    cluster: ApiServer
    folder: Path
    execution_api: str
    _pods: Any = None
    _tries: list[Try] = field(default_factory=list)

    @property
    def pods(self) -> Any:
        """The test's own client of the kube-apiserver."""
        if self._pods is None:
            self._pods = self.cluster.client()
        return self._pods

    def new_run(self, run_id: str) -> None:
        """Create a namespace and a dag run of that name, every task instance in its first try."""
        from kubernetes import client

        self.pods.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name=run_id)))
        scheduler.create_dagrun(run_id)

    def start_try(self, run_id: str, task_id: str, *faults: Fault, patched: bool = False) -> Try:
        """Queue the task instance as it is and start a worker for it, the stock class patched or not."""
        details = scheduler.queue(run_id, task_id)
        number = details["try_number"]
        stem = f"{run_id}.{task_id}.{number}.{time.monotonic_ns()}"
        journal, log = self.folder / f"{stem}.calls", self.folder / "logs" / f"{stem}.log"
        process = multiprocessing.get_context("fork").Process(
            target=work,
            args=(self.execution_api, details, faults, journal, f"{stem}.log"),
            kwargs={"patched": patched},
        )
        process.start()
        self._tries.append(Try(process, run_id, task_id, number, journal, log))
        return self._tries[-1]

    def stop_workers(self) -> None:
        """Kill what a failed scenario has left running."""
        for attempt in self._tries:
            if attempt.process.is_alive():
                attempt.kill()
        self._tries.clear()

    def next_try(self, run_id: str, task_id: str) -> None:
        """Do what the scheduler does for a retry: history row, new id; the number rises when it is queued."""
        scheduler.prepare_next_try(run_id, task_id)

    def clear(self, run_id: str, task_id: str) -> None:
        """Clear the task as a user does."""
        scheduler.clear(run_id, task_id)

    def mark(self, run_id: str, task_id: str, state: str) -> None:
        """Set the task instance's state from outside."""
        scheduler.set_state(run_id, task_id, state)

    def delete_run(self, run_id: str) -> None:
        """Delete the dag run as a user does."""
        scheduler.delete_dagrun(run_id)

    def state(self, run_id: str, task_id: str) -> str:
        """The task instance's state in the database."""
        return self._sql(f"SELECT state FROM task_instance WHERE run_id='{run_id}' AND task_id='{task_id}'")

    def events(self, run_id: str) -> list[str]:
        """The outbox rows of the run, "2.identity_hit", sorted."""
        keys = self._sql(
            "SELECT key FROM task_state_store s JOIN dag_run r ON r.id = s.dag_run_id "
            f"WHERE r.run_id='{run_id}' AND key LIKE 'steadfast.event.%' ORDER BY key"
        )
        return sorted(key.removeprefix("steadfast.event.v1.") for key in keys.splitlines())

    def record(self, run_id: str) -> dict[str, Any] | None:
        """The stored identity as JSON, None where there is none."""
        value = self._sql(
            "SELECT value FROM task_state_store s JOIN dag_run r ON r.id = s.dag_run_id "
            f"WHERE r.run_id='{run_id}' AND key='{STATE_KEY}'"
        )
        return json.loads(value) if value else None

    def set_record(self, run_id: str, value: Any) -> None:
        """Overwrite the stored identity."""
        self._sql(
            f"UPDATE task_state_store SET value='{json.dumps(value)}' WHERE key='{STATE_KEY}' AND dag_run_id="
            f"(SELECT id FROM dag_run WHERE run_id='{run_id}')"
        )

    def delete_record(self, run_id: str) -> None:
        """Remove the stored identity."""
        self._sql(
            f"DELETE FROM task_state_store WHERE key='{STATE_KEY}' AND dag_run_id="
            f"(SELECT id FROM dag_run WHERE run_id='{run_id}')"
        )

    def requests(self, run_id: str) -> list[Request]:
        """The workers' requests about pods of the run's namespace."""
        return [r for r in self.cluster.requests() if r.namespace == run_id]

    def created(self, run_id: str) -> int:
        """How many pods workers have created in the run: how often the work was started."""
        return sum(r.verb == "create" and r.status == 201 for r in self.requests(run_id))

    def lists(self, run_id: str) -> int:
        """How many label searches the workers have made in the run."""
        return sum(r.verb == "list" for r in self.requests(run_id))

    def await_pods(self, run_id: str, count: int = 1) -> list[Any]:
        """Wait until that many pods exist and return them, oldest first."""
        found = self.until(lambda: len(self.list(run_id)) >= count and self.list(run_id), f"{count} pods")
        return sorted(found, key=lambda pod: pod.metadata.creation_timestamp)

    def list(self, run_id: str) -> list[Any]:
        return list(self.pods.list_namespaced_pod(run_id).items)

    def await_known(self, run_id: str, attempt: Try) -> dict[str, Any]:
        """Wait until the try has stored its pod's uid."""

        def known() -> dict[str, Any] | None:
            value = self.record(run_id)
            stored = isinstance(value, dict) and value.get("state") == "created" and value.get("try")
            return value if stored else None

        return self.until(known, "the identity is stored", attempt)

    def run_pod(self, run_id: str, name: str) -> None:
        """Play the kubelet: the pod runs."""
        self._status(run_id, name, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, ready=True)

    def end_pod(self, run_id: str, name: str, exit_code: int = 0) -> None:
        """Play the kubelet: the pod's container has ended."""
        ended = {
            "exitCode": exit_code,
            "startedAt": "2026-01-01T00:00:00Z",
            "finishedAt": "2026-01-01T00:01:00Z",
        }
        phase = "Succeeded" if exit_code == 0 else "Failed"
        self._status(run_id, name, phase, {"terminated": ended}, ready=False)

    def remove_finalizers(self, run_id: str, name: str) -> None:
        """Let a pod go that a test has held."""
        self.pods.patch_namespaced_pod(name, run_id, {"metadata": {"finalizers": None}})

    def remove_pod(self, run_id: str, name: str) -> None:
        """Remove a pod at once, whatever its finalizers."""
        self.remove_finalizers(run_id, name)
        self.pods.delete_namespaced_pod(name, run_id, grace_period_seconds=0)
        self.until(lambda: all(pod.metadata.name != name for pod in self.list(run_id)), f"{name} is gone")

    def until(self, condition: Callable[[], Any], what: str, attempt: Try | None = None) -> Any:
        """Poll until the condition holds; the error has the try's log."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            value = condition()
            if value:
                return value
            time.sleep(0.2)
        raise AssertionError(f"waited 60 s for: {what}\n{attempt.text() if attempt else ''}")

    def _status(self, run_id: str, name: str, phase: str, state: dict[str, Any], *, ready: bool) -> None:
        container = {
            "name": "base",
            "state": state,
            "ready": ready,
            "restartCount": 0,
            "image": "registry.invalid/image:1",
            "imageID": "",
        }
        body = {"status": {"phase": phase, "containerStatuses": [container]}}
        self.pods.patch_namespaced_pod_status(name, run_id, body)

    def _sql(self, statement: str) -> str:
        return self.postgres.psql(statement, self.database)
