# SPDX-License-Identifier: Apache-2.0
"""Which pods were created for which launch, from the kube-apiserver's own audit log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

CREATED = 201


@dataclass(frozen=True)
class Created:
    """A pod that the server stored. ``ti_id`` is what its workload names, "" for a command of Airflow 2."""

    name: str
    ti_id: str
    dag_id: str
    task_id: str
    run_id: str
    map_index: int
    try_number: int


class Audit:
    """Reads what was added to the log since it was made."""

    def __init__(self, log: Path, namespace: str) -> None:
        self._log = log
        self._namespace = namespace
        self._offset = log.stat().st_size
        self._created: list[Created] = []
        self.refused: Counter[int] = Counter()
        self.verbs: Counter[str] = Counter()

    def created(self) -> list[Created]:
        """Return the pods created in the namespace so far, oldest first, deleted ones among them."""
        with self._log.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break
                self._offset += len(line)
                self._take(json.loads(line))
        return self._created

    def _take(self, event: dict[str, Any]) -> None:
        about = event.get("objectRef") or {}
        if about.get("namespace") != self._namespace or event.get("userAgent", "").startswith("test"):
            return
        verb = event["verb"]
        self.verbs[verb] += 1
        if verb != "create" or about.get("subresource"):
            return
        status = (event.get("responseStatus") or {}).get("code", 0)
        if status != CREATED:
            self.refused[status] += 1
            return
        self._created.append(_created(event["requestObject"]))


def _created(pod: dict[str, Any]) -> Created:
    said = pod["metadata"].get("annotations") or {}
    workload = workload_of(pod)
    return Created(
        name=pod["metadata"]["name"],
        ti_id=workload["ti"]["id"] if workload else "",
        dag_id=said.get("dag_id", ""),
        task_id=said.get("task_id", ""),
        run_id=said.get("run_id", ""),
        map_index=int(said.get("map_index", -1)),
        try_number=int(said.get("try_number", 0)),
    )


def workload_of(pod: dict[str, Any]) -> dict[str, Any] | None:
    """The workload in a worker pod's arguments; None for a command line of Airflow 2."""
    arguments = pod["spec"]["containers"][0].get("args") or []
    if "--json-string" not in arguments:
        return None
    found: dict[str, Any] = json.loads(arguments[arguments.index("--json-string") + 1])
    return found
