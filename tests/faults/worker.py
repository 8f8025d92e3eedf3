# SPDX-License-Identifier: Apache-2.0
"""What runs in a worker pod: its calls to Airflow's real Execution API, with the pod's own token.

A worker that is refused exits with 1, as Airflow's own does; nobody executes the task's code.
"""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tests.faults.audit import workload_of

if TYPE_CHECKING:
    from tests.faults.kube import Pods


@functools.cache
def _app() -> Any:
    from airflow.api_fastapi.common.dagbag import create_dag_bag
    from airflow.api_fastapi.execution_api.app import create_task_execution_api_app

    app = create_task_execution_api_app()
    app.state.dag_bag = create_dag_bag()
    return app


class ExecutionApi:
    """The Execution API of this process's Airflow, with its token validator; ``close`` it.

    Making it and its first request take seconds; ``warm`` does both before the scenarios' processes are
    forked, and leaves neither a thread nor the validator behind.
    """

    def __init__(self) -> None:
        from fastapi.testclient import TestClient

        self._client: Any = TestClient(_app(), raise_server_exceptions=False)
        self._client.__enter__()

    @classmethod
    def warm(cls) -> None:
        """Make the application, and let it refuse one request."""
        api = cls()
        answer = api.patch("/task-instances/00000000-0000-0000-0000-000000000000/run", "no-token", {})
        assert answer.status_code == HTTPStatus.FORBIDDEN, answer.text
        api.close()

    def patch(self, path: str, token: str, body: dict[str, Any]) -> Any:
        return self._client.patch(path, json=body, headers={"Authorization": f"Bearer {token}"})

    def close(self) -> None:
        self._client.__exit__(None, None, None)


@dataclass
class Workers:
    """All workers of a namespace; ``refused`` counts the answers that ended one."""

    api: ExecutionApi
    pods: Pods
    refused: Counter[int] = field(default_factory=Counter)
    ran: Counter[str] = field(default_factory=Counter)
    _tokens: dict[str, str] = field(default_factory=dict)
    _alive: dict[str, dict[str, Any]] = field(default_factory=dict)

    def start(self, pod: dict[str, Any]) -> bool:
        """Start a pod's worker; False where the API refused it, whose pod is Failed then."""
        workload = workload_of(pod)
        assert workload is not None
        ti_id, uid = workload["ti"]["id"], pod["metadata"]["uid"]
        self.pods.bind(pod)
        if not self.pods.started(pod):
            return False
        answer = self.api.patch(
            f"/task-instances/{ti_id}/run",
            workload["token"],
            {
                "state": "running",
                "hostname": pod["metadata"]["name"],
                "unixname": "airflow",
                "pid": 1,
                "start_date": _now().isoformat(),
            },
        )
        if answer.status_code != HTTPStatus.OK:
            self.refused[answer.status_code] += 1
            self.pods.finished(pod, 1)
            return False
        self._tokens[uid] = answer.headers.get("Refreshed-API-Token") or workload["token"]
        self._alive[uid] = pod
        self.ran[ti_id] += 1
        return True

    def running(self) -> list[dict[str, Any]]:
        """The pods whose worker is at work, oldest first."""
        return list(self._alive.values())

    def end(self, pod: dict[str, Any], **state: Any) -> bool:
        """End a worker's work: success, or what ``state`` says; False where the API refused that."""
        said = state or {"state": "success"}
        if said["state"] in ("success", "failed", "up_for_retry", "up_for_reschedule"):
            said.setdefault("end_date", _now().isoformat())
        accepted = self.report(pod, said)
        self.exit(pod, 0 if accepted else 1)
        return accepted

    def report(self, pod: dict[str, Any], said: dict[str, Any]) -> bool:
        """Report a state without ending the worker."""
        workload = workload_of(pod)
        assert workload is not None
        token = self._tokens[pod["metadata"]["uid"]]
        answer = self.api.patch(f"/task-instances/{workload['ti']['id']}/state", token, said)
        if answer.status_code >= HTTPStatus.BAD_REQUEST:
            self.refused[answer.status_code] += 1
            return False
        return True

    @staticmethod
    def retry() -> dict[str, Any]:
        """What a worker reports whose task failed and has a try left."""
        return {"state": "up_for_retry", "end_date": _now().isoformat()}

    def exit(self, pod: dict[str, Any], code: int, reason: str = "") -> None:
        """End a worker's process without a word to the API."""
        self._alive.pop(pod["metadata"]["uid"], None)
        self.pods.finished(pod, code, reason)

    def play(self) -> int:
        """Let workers that are at work succeed, and start those of pending pods; returns how many moved."""
        self.pods.reap()
        present = {pod["metadata"]["uid"]: pod for pod in self.pods.all()}
        moved = 0
        for uid, pod in list(self._alive.items()):
            if uid not in present or "deletionTimestamp" in present[uid]["metadata"]:
                del self._alive[uid]  # killed
                continue
            self.end(pod)
            moved += 1
        for pod in present.values():
            if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]:
                self.start(pod)
                moved += 1
        return moved


def reschedule() -> dict[str, Any]:
    """What a sensor in reschedule mode reports; it is due again at once."""
    past = _now() - timedelta(seconds=1)
    return {"state": "up_for_reschedule", "reschedule_date": past.isoformat(), "end_date": _now().isoformat()}


def deferral() -> dict[str, Any]:
    """What a deferrable operator reports."""
    return {
        "state": "deferred",
        "classpath": "airflow.providers.standard.triggers.temporal.TimeDeltaTrigger",
        "trigger_kwargs": {},
        "next_method": "execute_complete",
        "next_kwargs": {},
    }


def _now() -> datetime:
    return datetime.now(timezone.utc)
