# SPDX-License-Identifier: Apache-2.0
"""A worker for real: Airflow's supervisor and task runner over HTTP, with faults put in on the way."""

from __future__ import annotations

import json
import re
import signal
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import psutil

if TYPE_CHECKING:
    from pathlib import Path

DAG_FILE = "durable_dag.py"


@dataclass(frozen=True)
class Fault:
    """What the Execution API answers to matching requests instead of its own answer.

    ``path`` is a regular expression, ``first`` how many requests pass before, ``times`` how many fail.
    ``hold`` "before" never sends the request on, "after" never hands over the answer: the worker hangs
    there until the test kills it. ``pause`` only delays the request by that many seconds.
    """

    method: str
    path: str
    status: int = 500
    body: dict[str, Any] | None = None
    first: int = 0
    times: int = 1_000
    hold: str = ""
    pause: float = 0.0


@dataclass
class FaultyTransport(httpx.BaseTransport):
    """The way to the Execution API, with faults, and one line per request for the test to read."""

    inner: httpx.BaseTransport
    faults: tuple[Fault, ...]
    journal: Path
    _seen: dict[int, int] = field(default_factory=dict)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        fault = next((f for f in self.faults if self._strikes(f, request)), None)
        if fault is not None and fault.hold:
            if fault.hold == "after":
                self.inner.handle_request(request)
            with self.journal.open("a", encoding="utf-8") as lines:
                lines.write(f"{request.method} {request.url.path} held\n")
            time.sleep(3600)
        if fault is not None and fault.pause:
            with self.journal.open("a", encoding="utf-8") as lines:
                lines.write(f"{request.method} {request.url.path} held\n")
            time.sleep(fault.pause)
            fault = None
        if fault is None:
            answer = self.inner.handle_request(request)
        else:
            body = json.dumps(fault.body if fault.body is not None else {"detail": "injected"}).encode()
            answer = httpx.Response(
                fault.status, headers={"content-type": "application/json"}, content=body, request=request
            )
        with self.journal.open("a", encoding="utf-8") as lines:
            lines.write(f"{request.method} {request.url.path} {answer.status_code}\n")
        return answer

    def _strikes(self, fault: Fault, request: httpx.Request) -> bool:
        if fault.method != request.method or not re.search(fault.path, request.url.path):
            return False
        number = self._seen.get(id(fault), 0)
        self._seen[id(fault)] = number + 1
        return fault.first <= number < fault.first + fault.times


@dataclass
class Try:
    """One running try: the worker's processes, and what the test may know about it."""

    process: Any
    run_id: str
    task_id: str
    number: int
    journal: Path
    log: Path

    def kill(self) -> None:
        """SIGKILL the supervisor and the task's process, as the loss of the worker does."""
        supervisor = psutil.Process(self.process.pid)
        for process in (supervisor, *supervisor.children(recursive=True)):
            process.kill()
        self.process.join()

    def terminate(self) -> None:
        """SIGTERM supervisor and task, as the kubelet does through an init that signals its group."""
        supervisor = psutil.Process(self.process.pid)
        for process in (supervisor, *supervisor.children(recursive=True)):
            process.send_signal(signal.SIGTERM)

    def kill_supervisor_only(self) -> list[psutil.Process]:
        """SIGKILL the supervisor and return the task's processes, which live on."""
        supervisor = psutil.Process(self.process.pid)
        task = supervisor.children(recursive=True)
        supervisor.kill()
        self.process.join()
        return task

    def await_end(self, orphans: list[psutil.Process]) -> None:
        """Wait until the task's processes have noticed that nobody supervises them."""
        _, alive = psutil.wait_procs(orphans, timeout=60)
        for process in alive:
            process.kill()
        assert not alive, f"the task's process outlived its supervisor; its log:\n{self.text()}"

    def finish(self, seconds: float = 90.0) -> str:
        """Wait for the end and return the whole log; an unfinished worker is killed and fails the test."""
        self.process.join(seconds)
        if self.process.is_alive():
            self.kill()
            raise AssertionError(f"the try did not end in {seconds} s; its log:\n{self.text()}")
        return self.text()

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""

    def is_held(self) -> bool:
        """Whether a fault holds the worker now."""
        return self.journal.exists() and self.journal.read_text(encoding="utf-8").endswith(" held\n")

    def calls(self) -> list[str]:
        """The requests to the Execution API so far, "PUT pod_identifier 204", store calls only."""
        if not self.journal.exists():
            return []
        found = []
        for line in self.journal.read_text(encoding="utf-8").splitlines():
            method, path, status = line.split()
            if "/store/ti/" in path:
                found.append(f"{method} {path.rsplit('/', 1)[-1]} {status}")
        return found


def work(
    url: str, details: dict[str, Any], faults: tuple[Fault, ...], journal: Path, log: str, *, patched: bool
) -> None:
    """The worker's process: Airflow's supervisor, which forks the task's own process."""
    from airflow.executors.workloads import BundleInfo
    from airflow.sdk.api.client import Client
    from airflow.sdk.api.datamodels._generated import TaskInstance
    from airflow.sdk.execution_time.supervisor import supervise_task

    if patched:
        from airflow.providers.cncf.kubernetes.operators import pod

        from airflow_steadfast.durable_pod import install

        install.install(pod)
    transport = FaultyTransport(httpx.HTTPTransport(), faults, journal)
    client = Client(base_url=url, token="", transport=transport)
    supervise_task(
        ti=TaskInstance.model_validate(details),
        bundle_info=BundleInfo(name="dags-folder"),
        dag_rel_path=DAG_FILE,
        token="",
        client=client,
        log_path=log,
    )
