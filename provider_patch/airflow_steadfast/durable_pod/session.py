# SPDX-License-Identifier: Apache-2.0
"""What one try knows about its pod: the operator, who the task is, the record, and the pod once found.

The session hangs on the operator object, so that every method of the operator that needs the pod in
this try asks the same identity. It is made when the try first asks for its pod, lives in the worker's
memory only, and is never serialized.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_steadfast.durable_pod import derived, policy
from airflow_steadfast.durable_pod.events import Events
from airflow_steadfast.durable_pod.identity import Identity, cluster_fingerprint
from airflow_steadfast.durable_pod.record import Record
from airflow_steadfast.durable_pod.store import NoStore, Store
from airflow_steadfast.durable_pod.task import TaskKey, task_key
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from collections.abc import Mapping

UID_KWARG = "_pod_uid"
"""In the trigger's ``trigger_kwargs``, which every trigger since provider 10.6 stores and echoes."""

EXACT_MARK = "_steadfast_exact_identity"
"""Class attribute: this operator has an identity without a task state store too."""

_ATTRIBUTE = "_steadfast_session"


@dataclass
class Session:
    """One try of one durable pod task.

    ``identity`` is None until the pod is known, ``intent`` is what is being created. ``exact``: there is
    no store, the pod's name and annotations are the record. ``stop_requested``: the task was told to
    stop; ``unwinding``: it is on its way out for that. ``closed``: the operator's work in this process
    is over, what comes later is none of the pod's business. ``seen_gone``: a re-entry did not find its
    pod; ``replaced``: it found a namesake; ``no_follow``: its log may never end; ``deadline_passed``: the
    trigger says that the execution timeout is over; ``timed_out``: that was acted on.
    """

    operator: Any
    context: Mapping[str, Any]
    task: TaskKey
    record: Record
    events: Events
    exact: bool = False
    identity: Identity | None = None
    intent: Identity | None = None
    stop_requested: bool = False
    unwinding: bool = False
    closed: bool = False
    seen_gone: bool = False
    replaced: Exception | None = None
    no_follow: bool = False
    deadline_passed: bool = False
    timed_out: bool = False
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

    def chosen(self, name: str) -> str:
        """Return the operator's or the deployment's choice, see ``policy.CHOICES``."""
        return policy.chosen(self.operator, name)

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
        """From here on this try is about this pod alone.

        Sets the operator's ``pod``, which its ``on_kill`` and clean-up ask, and hands the uid to a
        trigger that is made later.
        """
        self.identity, self.intent = identity, None
        self.operator.pod = pod
        if getattr(self.operator, "deferrable", False) and identity.uid is not None:
            given = getattr(self.operator, "trigger_kwargs", None) or {}
            self.operator.trigger_kwargs = {**given, UID_KWARG: identity.uid}


def begin(operator: Any, context: Mapping[str, Any]) -> Session | None:
    """Return this try's session, a new one where the operator has none yet.

    None where there is nothing durable to build on: no task state store in the context (Airflow below
    3.3, or outside a task's process) and no exact identity either, or a class with a logic of its own.
    """
    if derived.is_left_alone(operator):
        return None
    accessor = context.get("task_state_store")
    exact = accessor is None and bool(getattr(operator, EXACT_MARK, False))
    if accessor is None and not exact:
        return None
    task = task_key(context)
    known = current(operator)
    if known is not None and known.task == task:
        known.closed = False
        return known
    store = NoStore() if exact else Store(accessor)
    events = Events(store, task.try_number)
    session = Session(operator, context, task, Record(store, events), events, exact=exact)
    setattr(operator, _ATTRIBUTE, session)
    return session


def current(operator: Any) -> Session | None:
    """Return the operator's session; None before its pod was asked for and where it is not durable."""
    found = getattr(operator, "__dict__", {}).get(_ATTRIBUTE)
    return found if isinstance(found, Session) else None
