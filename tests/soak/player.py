# SPDX-License-Identifier: Apache-2.0
"""The pod player: the part of kubelet and worker. Each pod gets a thread that does what its worker would.

A worker's first call asks the Execution API to run, with the token and for the task instance that the pod's
own arguments name; if that is refused, the worker exits with 1 and the pod is Failed, as with Airflow's own.
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import httpx

from tests.soak import kube
from tests.soak.plan import Work, work

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.kube import Kube

THREADS = 200
RESCHEDULES = 2


class Journal:
    """What the player saw, one JSON object a line: ``t`` (unix seconds), ``pod`` (uid), ``event``, more."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()

    def write(self, uid: str, event: str, **details: Any) -> None:
        line = json.dumps({"t": time.time(), "pod": uid, "event": event, **details})
        with self._lock:
            self._file.write(line + "\n")


class Player:
    """Plays every pod of a namespace from ``start`` to ``stop``; ``first_pod`` is set when there was one."""

    def __init__(self, pods: Kube, execution_api: str, seed: int, journal: Journal) -> None:
        self._kube = pods
        self._url = execution_api
        self._seed = seed
        self._journal = journal
        self.first_pod = threading.Event()
        self._deleted: dict[str, threading.Event] = {}
        self._launches: dict[str, int] = {}
        self._stopping = threading.Event()
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="pod")
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._active = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        for noisy in ("httpx", "httpcore"):
            logging.getLogger(noisy).setLevel(logging.WARNING)
        self._watcher.start()

    def stop(self) -> None:
        """Stop watching; pods at work are left alone."""
        self._stopping.set()
        for event in self._deleted.values():
            event.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def active(self) -> int:
        """How many pods are being played."""
        return self._active

    def _watch(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(httpx.HTTPError, ValueError, KeyError):
                self._list_and_watch()
            self._stopping.wait(0.5)

    def _list_and_watch(self) -> None:
        items, version = self._kube.pods()
        present = {pod["metadata"]["uid"] for pod in items}
        for uid, event in list(self._deleted.items()):
            if uid not in present:
                event.set()
        for pod in items:
            self._meet(pod)
        for kind, pod in self._kube.watch(version):
            if kind == "DELETED":
                self._deleted.setdefault(pod["metadata"]["uid"], threading.Event()).set()
            else:
                self._meet(pod)

    def _meet(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._deleted or self._stopping.is_set():
            return
        self._deleted[uid] = threading.Event()
        self.first_pod.set()
        self._journal.write(uid, "seen", name=pod["metadata"]["name"])
        with self._lock:
            self._active += 1
        self._pool.submit(self._play_safely, pod)

    def _play_safely(self, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        try:
            self._play(pod, uid)
        except kube.GoneError:
            self._journal.write(uid, "killed")
        except Exception as error:
            self._journal.write(uid, "player_error", error=repr(error))
        finally:
            with self._lock:
                self._active -= 1

    def _play(self, pod: dict[str, Any], uid: str) -> None:
        workload = workload_of(pod)
        planned = self._plan(workload["ti"])
        self._wait(uid, planned.pending)
        image, began = pod["spec"]["containers"][0]["image"], _now()
        self._status(pod, kube.running(image, began))
        code = self._work(uid, workload, planned)
        self._status(pod, kube.finished(image, began, _now(), code))
        self._journal.write(uid, "exited", code=code)

    def _plan(self, ti: dict[str, Any]) -> Work:
        launch = f"{ti['run_id']} {ti['task_id']} {ti['map_index']} {ti['try_number']}"
        with self._lock:
            number = self._launches[launch] = self._launches.get(launch, 0) + 1
        return work(self._seed, f"{launch} {number}")

    def _work(self, uid: str, workload: dict[str, Any], planned: Work) -> int:
        """Do the worker's calls; returns its exit code. A deleted pod's worker makes no further call."""
        from airflow.sdk.api.client import Client, ServerResponseError
        from airflow.sdk.exceptions import TaskAlreadyRunningError

        ti = workload["ti"]
        try:
            with Client(base_url=self._url, token=workload["token"]) as client:
                context = client.task_instances.start(ti["id"], 1, _utcnow())
                self._journal.write(uid, "started")
                self._wait(uid, planned.working)
                end, sent = end_of(ti, context), time.time()
                self._journal.write(uid, "reports", end=end)
                report(client, ti["id"], end)
                self._journal.write(uid, "reported", end=end, sent=sent)
        except TaskAlreadyRunningError:
            self._journal.write(uid, "refused", status=409, detail="already running")
        except ServerResponseError as error:
            self._journal.write(
                uid, "refused", status=error.response.status_code, detail=str(error.detail)[:200]
            )
        except httpx.HTTPError as error:
            self._journal.write(uid, "unreachable", error=repr(error))
        else:
            return 0
        return 1

    def _wait(self, uid: str, seconds: float) -> None:
        if self._deleted[uid].wait(seconds):
            raise kube.GoneError

    def _status(self, pod: dict[str, Any], status: dict[str, Any]) -> None:
        """Write a status as a kubelet does: until the server takes it or the pod is gone."""
        uid = pod["metadata"]["uid"]
        while not self._deleted[uid].is_set():
            with contextlib.suppress(httpx.HTTPError):
                self._kube.write_status(pod["metadata"]["name"], uid, status)
                return
            time.sleep(0.5)
        raise kube.GoneError


def workload_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The workload in a worker pod's arguments: ``ti``, ``token`` and more."""
    arguments = pod["spec"]["containers"][0]["args"]
    found: dict[str, Any] = json.loads(arguments[arguments.index("--json-string") + 1])
    return found


def end_of(ti: dict[str, Any], context: Any) -> str:
    """How a launch ends, by the task's kind and by what the server says of its past."""
    if ti["task_id"] == "retried" and ti["try_number"] == 1:
        return "retry"
    if ti["task_id"] == "deferred" and context.next_method is None:
        return "defer"
    if ti["task_id"] == "rescheduled" and (context.task_reschedule_count or 0) < RESCHEDULES:
        return "reschedule"
    return "success"


def report(client: Any, ti_id: str, end: str) -> None:
    """Report an end as Airflow's supervisor does; raises what its client raises."""
    from airflow.sdk.execution_time.comms import DeferTask, RescheduleTask
    from airflow.sdk.serde import serialize

    calls, now = client.task_instances, _utcnow()
    match end:
        case "retry":
            calls.retry(ti_id, now, None)
        case "defer":
            none = {"trigger_kwargs": serialize({}), "next_kwargs": {}}
            calls.defer(ti_id, DeferTask(classpath="soak.Trigger", next_method="resume", **none))
        case "reschedule":
            later = now + timedelta(seconds=1)
            calls.reschedule(ti_id, RescheduleTask(reschedule_date=later, end_date=now))
        case _:
            calls.succeed(ti_id, now, [], [], None)


def _utcnow() -> datetime:
    return datetime.now(tz=timezone.utc)


def _now() -> str:
    return _utcnow().strftime("%Y-%m-%dT%H:%M:%SZ")
