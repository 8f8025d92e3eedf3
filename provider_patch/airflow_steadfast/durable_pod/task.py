# SPDX-License-Identifier: Apache-2.0
"""Who the task instance of this try is, and which pod says that it was made for it."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_steadfast import settings
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from collections.abc import Mapping

TASK_ANNOTATION = pods.ANNOTATION_PREFIX + "task"
"""The task instance that a pod was made for, in full: labels hold shortened and hashed ids."""

_IDS = ("dag_id", "run_id", "task_id", "map_index")


@dataclass(frozen=True)
class TaskKey:
    """The task instance of this try; ``map_index`` is -1 for a task that is not mapped.

    ``deployment`` tells two Airflows apart that make pods in one namespace; None where it is unknown.
    ``ti_id`` is the row's own id (Airflow 3), another one for every try, and for a run made anew under an
    old run's name. ``will_retry``: whether another try follows when this one fails; None where nobody
    has said.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    max_tries: int | None
    deployment: str | None = None
    will_retry: bool | None = None
    ti_id: str | None = None

    def annotation(self) -> str:
        """Return the value of TASK_ANNOTATION."""
        noted = {name: getattr(self, name) for name in _IDS}
        noted |= {"try": self.try_number, "max_tries": self.max_tries, "deployment": self.deployment}
        noted["ti"] = self.ti_id
        return json.dumps(noted, sort_keys=True)

    def made(self, pod: Any) -> bool:
        """Return whether the pod's annotation says that it was made for this task instance, in any try."""
        noted = note_of(pod)
        return bool(noted) and not self._contradicts(noted)

    def is_foreign(self, pod: Any) -> bool:
        """Return whether the pod's annotation says that it was made for another one."""
        noted = note_of(pod)
        return bool(noted) and self._contradicts(noted)

    def _contradicts(self, noted: Mapping[str, Any]) -> bool:
        if any(noted.get(name) != getattr(self, name) for name in _IDS):
            return True
        theirs = noted.get("deployment")
        return None not in (theirs, self.deployment) and theirs != self.deployment

    @property
    def is_beyond_its_retries(self) -> bool:
        """Whether no retry can have led to this try: a user has cleared the task while it ran."""
        return self.max_tries is not None and self.try_number > self.max_tries + 1


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


def task_key(context: Mapping[str, Any]) -> TaskKey:
    """Return the key of the task instance that a context is about."""
    ti = context["ti"]
    map_index = getattr(ti, "map_index", None)
    max_tries = getattr(ti, "max_tries", None)
    number = max_tries if isinstance(max_tries, int) else None
    return TaskKey(
        dag_id=ti.dag_id,
        run_id=context["run_id"],
        task_id=ti.task_id,
        map_index=map_index if isinstance(map_index, int) else -1,
        try_number=ti.try_number,
        max_tries=number,
        deployment=deployment(settings.current().deployment),
        will_retry=_will_retry(ti, number),
        ti_id=str(ti.id) if getattr(ti, "id", None) is not None else None,
    )


@lru_cache(maxsize=4)
def deployment(given: str) -> str | None:
    """Return this Airflow's name: the setting, else a hash of its own addresses; None where it has none."""
    if given:
        return given
    told = ""
    with contextlib.suppress(Exception):
        from airflow.configuration import conf

        told = "\n".join(
            filter(
                None,
                (
                    conf.get("core", "execution_api_server_url", fallback=""),
                    conf.get("api", "base_url", fallback="")
                    or conf.get("webserver", "base_url", fallback=""),
                ),
            )
        )
    return hashlib.sha256(told.encode()).hexdigest()[:12] if told else None


def _will_retry(ti: Any, max_tries: int | None) -> bool | None:
    """Return what the server has said (Airflow 3), else what the numbers say."""
    told = getattr(getattr(ti, "_ti_context_from_server", None), "should_retry", None)
    if isinstance(told, bool):
        return told
    return None if max_tries is None else bool(ti.try_number <= max_tries)
