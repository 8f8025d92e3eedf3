# SPDX-License-Identifier: Apache-2.0
"""Airflow's public REST API (v2), reached as a person would: a port-forward and a token."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from tests.cluster.stories.outcome import StoryFailedError, wait_for

if TYPE_CHECKING:
    from types import TracebackType

    from tests.cluster.stories.kubectl import Kubectl

_FORWARDING = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+) ")
_ATTEMPTS = 8


class AirflowApi:
    """A client that survives restarts of the API server and of the port-forward.

    Raises StoryFailedError when a request still fails after several attempts, with Airflow's own text.
    """

    def __init__(self, kubectl: Kubectl, service: str) -> None:
        """Take the cluster and the name of the API server's Service."""
        self._kubectl = kubectl
        self._service = service
        self._forward: subprocess.Popen[str] | None = None
        self._base = ""
        self._token = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def wait_for_dag(self, dag_id: str, seconds: float = 240) -> None:
        """Return when Airflow has parsed the Dag; unpauses it."""
        wait_for(f"Dag {dag_id} parsed", lambda: self._has_dag(dag_id), bool, seconds, 2)
        self._call("PATCH", f"dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, run_id: str) -> None:
        self._call("POST", f"dags/{dag_id}/dagRuns", {"dag_run_id": run_id, "logical_date": None})

    def run_state(self, dag_id: str, run_id: str) -> str:
        return str(self._call("GET", f"dags/{dag_id}/dagRuns/{quote(run_id)}")["state"])

    def clear_run(self, dag_id: str, run_id: str) -> None:
        """Clear every task instance of the run, as the button in the UI does."""
        self._call("POST", f"dags/{dag_id}/dagRuns/{quote(run_id)}/clear", {"dry_run": False})

    def fail_unfinished_runs(self, dag_id: str) -> int:
        """Mark what an interrupted demo left as failed, so that it takes no worker from this one."""
        runs = self._call("GET", f"dags/{dag_id}/dagRuns?state=running&state=queued&limit=100")["dag_runs"]
        for run in runs:
            self._call("PATCH", f"dags/{dag_id}/dagRuns/{quote(run['dag_run_id'])}", {"state": "failed"})
        return len(runs)

    def task_instances(self, dag_id: str, run_id: str) -> list[dict[str, Any]]:
        found = self._call("GET", f"dags/{dag_id}/dagRuns/{quote(run_id)}/taskInstances?limit=200")
        return list(found["task_instances"])

    def _has_dag(self, dag_id: str) -> bool:
        try:
            self._call("GET", f"dags/{dag_id}")
        except urllib.error.HTTPError as missing:
            if missing.code == 404:
                return False
            raise
        return True

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        last: Exception | None = None
        for attempt in range(_ATTEMPTS):
            time.sleep(min(attempt, 5))
            try:
                self._open()
                return self._send(method, f"/api/v2/{path}", body)
            except urllib.error.HTTPError as refused:
                if refused.code == 404:
                    raise
                last = refused
                if refused.code == 401:
                    self._token = ""
                elif refused.code < 500:
                    break
            except (OSError, StoryFailedError) as broken:
                last = broken
                self._close()
        detail = _text_of(last)
        raise StoryFailedError(f"Airflow's API: {method} {path}: {detail}") from last

    def _send(self, method: str, path: str, body: object) -> dict[str, Any]:
        request = urllib.request.Request(  # noqa: S310 - a port-forward on loopback - always http on loopback
            self._base + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - a port-forward on loopback
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
        return found

    def _open(self) -> None:
        if self._forward is None or self._forward.poll() is not None:
            self._close()
            self._forward = subprocess.Popen(
                self._kubectl.command("port-forward", f"service/{self._service}", ":8080"),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                env=self._kubectl.environment,
            )
            line = self._forward.stdout.readline() if self._forward.stdout else ""
            port = _FORWARDING.search(line)
            if port is None:
                raise StoryFailedError(f"port-forward to {self._service} says {line.strip()!r}")
            self._base = f"http://127.0.0.1:{port[1]}"
        if not self._token:
            self._token = str(self._send("GET", "/auth/token", None)["access_token"])

    def _close(self) -> None:
        if self._forward is not None:
            self._forward.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._forward.wait(timeout=10)
            if self._forward.stdout is not None:
                self._forward.stdout.close()
        self._forward = None
        self._token = ""


def _text_of(error: Exception | None) -> str:
    if isinstance(error, urllib.error.HTTPError):
        return f"{error.code} {error.read().decode(errors='replace')[:500]}"
    return str(error)
