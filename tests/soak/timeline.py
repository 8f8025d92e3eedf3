# SPDX-License-Identifier: Apache-2.0
"""Everything that happened to one task instance in a soak, in order, from every log: for a closer look.

python -m tests.soak timeline FOLDER run_003 plain 12
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from tests.soak import audit
from tests.soak.plan import SCHEDULERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_CHARACTERS = 400
_CODES = re.compile(r"\x1b\[[0-9;]*m")


def lines(folder: Path, run_id: str, task_id: str, map_index: int) -> list[str]:
    """Return the lines of one task instance by time; ``folder`` is a soak's."""
    found, _ = audit.pods(folder / "audit.log", folder / "journal.jsonl")
    mine = [pod for pod in found if pod.task == (run_id, task_id, map_index)]
    events = [*_of_pods(mine), *_of_journal(folder, mine), *_faults(folder)]
    names = {pod.name for pod in mine} | {pod.ti_id for pod in mine}
    key = re.compile(
        rf"task_id='?{task_id}\b.*run_id='?{run_id}\b.*map_index={map_index}\b"
        rf"|{task_id} {run_id} map_index={map_index}\b"
        rf"|{'|'.join(map(re.escape, names)) or '(?!)'}"
    )
    for name in SCHEDULERS:
        events += _of_scheduler(folder, name, key)
    return [f"{_clock(at)} {text[:_CHARACTERS]}" for at, text in sorted(events)]


def _of_pods(pods: list[audit.Pod]) -> Iterator[tuple[float, str]]:
    for pod in pods:
        about = f"try {pod.try_number} ti {pod.ti_id} by scheduler {pod.scheduler}, launch {pod.launch}"
        yield pod.created_at, f"API: created {pod.name}: {about}"
        if pod.deleted_at is not None:
            yield pod.deleted_at, f"API: deleted {pod.name}{' (revoked)' if pod.revoked else ''}"


def _of_journal(folder: Path, pods: list[audit.Pod]) -> Iterator[tuple[float, str]]:
    names = {pod.uid: pod.name for pod in pods}
    with (folder / "journal.jsonl").open(encoding="utf-8") as journal:
        for line in map(json.loads, journal):
            if (name := names.get(line["pod"])) is not None:
                more = {k: v for k, v in line.items() if k not in ("t", "pod", "event", "name")}
                yield line["t"], f"pod: {name} {line['event']} {more or ''}"


def _of_scheduler(folder: Path, name: str, key: re.Pattern[str]) -> Iterator[tuple[float, str]]:
    with (folder / f"scheduler-{name}.log").open(encoding="utf-8", errors="replace") as log:
        at = 0.0
        for raw in log:
            line = _CODES.sub("", raw.rstrip())
            stamp, _, text = line.partition(" ")
            try:
                at = datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
            except ValueError:
                text = line
            if key.search(line):
                yield at, f"scheduler {name}: {text.strip()}"


def _faults(folder: Path) -> Iterator[tuple[float, str]]:
    for line in (folder / "timeline.log").read_text(encoding="utf-8").splitlines():
        stamp, _, text = line.partition(" ")
        if "fault" in text:
            yield datetime.fromisoformat(stamp).timestamp(), f"------ {text}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%H:%M:%S.%f")[:-3]
