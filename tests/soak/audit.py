# SPDX-License-Identifier: Apache-2.0
"""The worker pods of a soak and what happened to each: from the audit log and the player's journal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tests.soak.player import workload_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

LAUNCH = "steadfast/launch"
_NOT_THE_EXECUTORS = ("test", "kube-apiserver")


@dataclass
class Pod:
    """One accepted create. Times are unix seconds, None for what did not happen.

    ``scheduler`` is the job id of the scheduler that made it; ``launch`` its launch annotation, if it has
    one. ``reports`` is the end that its worker sent, ``report`` the one that the server said it accepted,
    sent at ``reported_at``; ``refused`` the status that the Execution API gave to one of the two calls.
    """

    uid: str
    name: str
    created_at: float
    ti_id: str
    try_number: int
    task: tuple[str, str, int]
    scheduler: str
    launch: str | None
    seen: bool = False
    started_at: float | None = None
    reports: str | None = None
    reported_at: float | None = None
    report: str | None = None
    refused: int | None = None
    refused_why: str = ""
    ended_at: float | None = None
    unreachable: bool = False
    revoked: bool = False
    deleted_at: float | None = None

    @property
    def over_at(self) -> float | None:
        """From when on this pod does no work any more, None while it may."""
        known = [t for t in (self.reported_at, self.ended_at, self.deleted_at) if t is not None]
        return min(known, default=None)


def pods(audit_log: Path, journal: Path) -> tuple[list[Pod], dict[int, int]]:
    """Return the accepted pods by time of creation, and the number of creates by answered status."""
    found: dict[str, Pod] = {}
    newest: dict[str, Pod] = {}
    statuses: dict[int, int] = {}
    for event in _events(audit_log):
        if event["verb"] == "create":
            code = event["responseStatus"]["code"]
            statuses[code] = statuses.get(code, 0) + 1
            if code == 201:
                pod = _created(event)
                found[pod.uid] = newest[pod.name] = pod
        elif (named := newest.get(event["objectRef"].get("name", ""))) is not None:
            _apply_request(named, event)
    for line in _lines(journal):
        if (played := found.get(line["pod"])) is not None:
            _apply_journal(played, line)
    return sorted(found.values(), key=lambda pod: pod.created_at), statuses


def _events(path: Path) -> Iterator[dict[str, Any]]:
    for event in _lines(path):
        about = event.get("objectRef") or {}
        agent = event.get("userAgent", "")
        if about.get("subresource") or agent.startswith(_NOT_THE_EXECUTORS):
            continue
        if event.get("stage") == "ResponseComplete":
            yield event


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        yield from _decode(lines)


def _decode(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.strip():
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # the last line of a process that was killed
                return


def _created(event: dict[str, Any]) -> Pod:
    body = event["responseObject"]
    about = body["metadata"]
    ti = workload_of(body)["ti"]
    return Pod(
        uid=about["uid"],
        name=about["name"],
        # when the server answered: the pod exists from then on at the latest
        created_at=_seconds(event["stageTimestamp"]),
        ti_id=ti["id"],
        try_number=ti["try_number"],
        task=(ti["run_id"], ti["task_id"], ti["map_index"]),
        scheduler=about["labels"].get("airflow-worker", ""),
        launch=about.get("annotations", {}).get(LAUNCH),
    )


def _apply_request(pod: Pod, event: dict[str, Any]) -> None:
    accepted = event["responseStatus"].get("code", 0) < 300
    if not accepted:
        return
    if event["verb"] == "delete":
        pod.deleted_at = pod.deleted_at or _seconds(event["stageTimestamp"])
    elif "revoked" in json.dumps(event.get("requestObject") or {}):
        pod.revoked = True


def _apply_journal(pod: Pod, line: dict[str, Any]) -> None:
    event, at = line["event"], line["t"]
    match event:
        case "seen":
            pod.seen = True
        case "started":
            pod.started_at = at
        case "reports":
            pod.reports = line["end"]
        case "reported":
            pod.reported_at, pod.report = line["sent"], line["end"]
        case "refused":
            pod.refused, pod.refused_why = line["status"], line["detail"]
            pod.ended_at = at
        case "unreachable":
            pod.unreachable = True
            pod.ended_at = at
        case "exited" | "killed":
            pod.ended_at = pod.ended_at or at


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp.replace("Z", "+00:00")).timestamp()
