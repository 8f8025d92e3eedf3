# SPDX-License-Identifier: Apache-2.0
"""What one try knows about its pod: the operator, who the task is, the record, and the pod once found.

The session hangs on the operator object, so that every method of the operator that needs the pod in
this try asks the same identity. It is made when the try first asks for its pod, lives in the worker's
memory only, and is never serialized.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_steadfast.durable_pod.events import Events
from airflow_steadfast.durable_pod.identity import Identity, cluster_fingerprint
from airflow_steadfast.durable_pod.record import Record
from airflow_steadfast.durable_pod.store import Store
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger("airflow_steadfast.durable_pod")

TASK_ANNOTATION = pods.ANNOTATION_PREFIX + "task"
"""The task instance that a pod was made for, in full: labels hold shortened and hashed ids."""

_ATTRIBUTE = "_steadfast_session"


@dataclass(frozen=True)
class TaskKey:
    """The task instance of this try; ``map_index`` is -1 for a task that is not mapped."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    max_tries: int | None

    def annotation(self) -> str:
        """Return the value of TASK_ANNOTATION."""
        return json.dumps(
            {
                "dag_id": self.dag_id,
                "run_id": self.run_id,
                "task_id": self.task_id,
                "map_index": self.map_index,
                "try": self.try_number,
                "max_tries": self.max_tries,
            },
            sort_keys=True,
        )

    def made(self, pod: Any) -> bool:
        """Return whether the pod's annotation says that it was made for this task instance, in any try."""
        noted = note_of(pod)
        return bool(noted) and all(
            noted.get(key) == getattr(self, key) for key in ("dag_id", "run_id", "task_id", "map_index")
        )


@dataclass
class Session:
    """One try of one durable pod task. ``identity`` is None until the pod is known."""

    operator: Any
    context: Mapping[str, Any]
    task: TaskKey
    record: Record
    events: Events
    identity: Identity | None = None
    supervisor_pid: int = field(default_factory=os.getppid)
    _cluster: str | None = field(default=None, repr=False)

    @property
    def is_orphaned(self) -> bool:
        """Whether the task's supervisor has died under it: its end can no longer be reported to anyone."""
        return os.getppid() != self.supervisor_pid

    @property
    def cluster(self) -> str | None:
        """The fingerprint of the API server that this operator talks to; None where it cannot be told."""
        if self._cluster is None:
            with contextlib.suppress(Exception):
                settings = self.operator.client.api_client.configuration
                authority = Path(settings.ssl_ca_cert).read_bytes() if settings.ssl_ca_cert else None
                self._cluster = cluster_fingerprint(settings.host, authority)
        return self._cluster

    def new_identity(self, name: str, namespace: str, launch: str | None = None) -> Identity:
        """Return the intent to create a pod of this name; ``launch`` continues an earlier intent."""
        return Identity(
            name=name,
            namespace=namespace,
            launch=launch or uuid.uuid4().hex,
            try_number=self.task.try_number,
            max_tries=self.task.max_tries,
            cluster=self.cluster,
            state="creating",
        )

    def identity_of(self, pod: Any) -> Identity:
        """Return the identity of a pod that the server has shown."""
        return Identity(
            name=pod.metadata.name,
            namespace=pod.metadata.namespace,
            uid=pods.uid(pod),
            launch=pods.annotation(pod, pods.LAUNCH_ANNOTATION),
            try_number=self.task.try_number,
            max_tries=self.task.max_tries,
            cluster=self.cluster,
        )

    def follow(self, pod: Any, identity: Identity) -> None:
        """From here on this try is about this pod alone. Sets the operator's ``pod``, for ``on_kill``."""
        self.identity = identity
        self.operator.pod = pod


def note_of(pod: Any) -> dict[str, Any]:
    """Return the content of TASK_ANNOTATION, empty where it is missing or unreadable."""
    text = pods.annotation(pod, TASK_ANNOTATION)
    if text is None:
        return {}
    try:
        noted = json.loads(text)
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}


def begin(operator: Any, context: Mapping[str, Any]) -> Session | None:
    """Return this try's session, a new one where the operator has none yet.

    None where the context has no task state store (Airflow below 3.3, or outside a task's process):
    there is nothing durable to build on then.
    """
    accessor = context.get("task_state_store")
    if accessor is None:
        return None
    task = _task_key(context)
    known = current(operator)
    if known is not None and known.task == task:
        return known
    store = Store(accessor)
    events = Events(store, task.try_number)
    session = Session(operator, context, task, Record(store, events), events)
    setattr(operator, _ATTRIBUTE, session)
    return session


def current(operator: Any) -> Session | None:
    """Return the operator's session; None before its pod was asked for and where it is not durable."""
    found = getattr(operator, "__dict__", {}).get(_ATTRIBUTE)
    return found if isinstance(found, Session) else None


def _task_key(context: Mapping[str, Any]) -> TaskKey:
    ti = context["ti"]
    map_index = getattr(ti, "map_index", None)
    max_tries = getattr(ti, "max_tries", None)
    return TaskKey(
        dag_id=ti.dag_id,
        run_id=context["run_id"],
        task_id=ti.task_id,
        map_index=map_index if isinstance(map_index, int) else -1,
        try_number=ti.try_number,
        max_tries=max_tries if isinstance(max_tries, int) else None,
    )
