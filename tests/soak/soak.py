# SPDX-License-Identifier: Apache-2.0
"""Runs one planned soak from its start to its verdict."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from tests.soak import airflow_side, audit, verdict
from tests.soak.chaos import Chaos
from tests.soak.kube import Kube
from tests.soak.plan import PER_RUN, SCHEDULERS
from tests.soak.player import Journal, Player
from tests.soak.schedulers import Scheduler
from tests.soak.stage import NAMESPACE, stage
from tests.support import tree

if TYPE_CHECKING:
    from pathlib import Path

    from tests.soak.plan import Plan
    from tests.soak.stage import Stage

_GUARD = tuple(f"provider_patch/airflow_steadfast/{name}" for name in ("launch_guard", "kube", "signals"))
_TICK = 5.0
_NEARLY_ALL = 0.95
_START_SECONDS = 300.0
_SETTLE = 30.0
"""Seconds of quiet at the end, longer than a check of orphans and several loops: slots are given back."""
_NOT_IN_TIME, _PODS_LEFT = "the runs did not end in time", "worker pods were left pending or running"
_FOUND_WHILE_RUNNING = (_NOT_IN_TIME, _PODS_LEFT)
_LINES = {
    "stale launches dropped": re.compile(r"Dropped a stale launch.*?reason=(\w+)"),
    "native stale drops": re.compile(r"(?i)stale (?:workload|pod creation|task)"),
    "expired tokens": re.compile(r"reason=token_expired"),
    "orphans reset": re.compile(r"Reset the following (\d+) orphaned"),
    "stuck in queued": re.compile(r"stuck in queued|Task stuck in queued"),
    "internal errors of the guard": re.compile(r"The launch guard failed|launch guard's bookkeeping failed"),
}


def run(plan: Plan, folder: Path) -> dict[str, Any]:
    """Run a soak in the empty folder ``folder``, where every log stays; returns its result as JSON."""
    began = time.monotonic()

    def say(text: str) -> None:
        line = f"[{time.monotonic() - began:6.1f} s] {text}"
        print(line, flush=True)
        with (folder / "timeline.log").open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now(tz=timezone.utc).isoformat()} {line}\n")

    say(f"{plan.scenario}: impl={plan.impl} seed={plan.seed} task instances={plan.runs * 100}")
    with stage(folder, plan.impl) as ready:
        say("the stage is ready")
        result = _play(plan, ready, folder, say)
    result["seconds"] = round(time.monotonic() - began)
    (folder / "result.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def _play(plan: Plan, ready: Stage, folder: Path, say: Any) -> dict[str, Any]:
    airflow_side.prepare()
    airflow_side.trigger_runs(plan.runs)
    pods = Kube(ready.cluster, NAMESPACE)
    player = Player(pods, ready.execution_api, plan.seed, Journal(folder / "journal.jsonl"))
    triggerer = airflow_side.Triggerer()
    schedulers = {name: Scheduler(name, folder, ready.environment) for name in SCHEDULERS}
    chaos = Chaos(plan.faults, ready, ready.proxy, schedulers, say)
    player.start()
    triggerer.start()
    for scheduler in schedulers.values():
        scheduler.start()
    worked = time.monotonic()
    try:
        if not player.first_pod.wait(_START_SECONDS):
            raise RuntimeError(f"no scheduler launched anything in {_START_SECONDS:.0f} s: see {folder}")
        chaos.start()
        finished = _await_end(plan, player, chaos, say)
        work_seconds = time.monotonic() - worked
        chaos.stop()
        time.sleep(_SETTLE)
        slots = {name: scheduler.occupied_slots() for name, scheduler in schedulers.items()}
        left = sum(
            pod["status"].get("phase") in ("Pending", "Running") for pod in _quietly(pods.pods, ([], ""))[0]
        )
        say(f"slots held at the end: {slots}, unfinished pods: {left}")
        with ThreadPoolExecutor() as pool:
            clean = dict(zip(schedulers, pool.map(Scheduler.stop, schedulers.values()), strict=True))
    finally:
        if chaos.is_alive():
            chaos.stop()
        for scheduler in schedulers.values():
            scheduler.stop(5)
        triggerer.stop()
        player.stop()
    shutil.copy(ready.cluster.folder / "audit.log", folder)
    found, statuses = audit.pods(folder / "audit.log", folder / "journal.jsonl")
    rows = airflow_side.rows()
    past = airflow_side.moved_on()
    cleared = chaos.done["task instances cleared"]
    outcome = verdict.judge(rows, found, statuses, slots, cleared, past)
    if missing := verdict.too_few(rows, plan.runs * PER_RUN):
        outcome.deviations.append(missing)
    if not finished:
        outcome.deviations.append(_NOT_IN_TIME)
    if left:
        outcome.deviations.append(_PODS_LEFT)
    evidence = {
        "pods": [pod.__dict__ for pod in found],
        "rows": [row.__dict__ for row in rows],
        "moved_on": past,
    }
    (folder / "evidence.json").write_text(json.dumps(evidence), encoding="utf-8")
    return {
        "plan": plan.as_json(),
        "code": code(plan.impl),
        "outcome": outcome.as_json(),
        "work_seconds": round(work_seconds),
        "faults": dict(chaos.done),
        "schedulers": {
            name: {
                "starts": scheduler.starts,
                "kills": scheduler.kills,
                "freezes": scheduler.freezes,
                "own_exits": scheduler.exits,
                "ended_cleanly": clean[name],
            }
            for name, scheduler in schedulers.items()
        },
        "audit_log": dict(airflow_side.audit_events()),
        "log_lines": _log_lines(folder),
        "guard": _guard_totals(folder),
    }


def code(impl: str) -> str:
    """Return what a result of an implementation is about: the soak itself and, for ours, the guard."""
    guard = tree.digest_of(*_GUARD) if impl == "steadfast" else ""
    return f"{tree.digest_of('tests/soak')} {guard}".strip()


def judge_again(folder: Path) -> dict[str, Any]:
    """Judge a soak's kept evidence with the verdict of today; returns its result."""
    result: dict[str, Any] = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    evidence = json.loads((folder / "evidence.json").read_text(encoding="utf-8"))
    before = result["outcome"]
    pods = [audit.Pod(**{**pod, "task": tuple(pod["task"])}) for pod in evidence["pods"]]
    rows = [airflow_side.Row(**row) for row in evidence["rows"]]
    outcome = verdict.judge(
        rows,
        pods,
        {int(code): number for code, number in before["creates_by_status"].items()},
        before["occupied_slots"],
        result["faults"].get("task instances cleared", 0),
        evidence["moved_on"],
    )
    if missing := verdict.too_few(rows, round(result["plan"]["task_instances"] / PER_RUN) * PER_RUN):
        outcome.deviations.append(missing)
    outcome.deviations += [text for text in before["deviations"] if text in _FOUND_WHILE_RUNNING]
    result["outcome"] = outcome.as_json()
    return result


def _await_end(plan: Plan, player: Player, chaos: Chaos, say: Any) -> bool:
    """Wait until every run has ended and every pod has; False when that takes too long."""
    deadline = time.monotonic() + plan.faults[-1].at + plan.faults[-1].seconds + plan.patience
    said = 0.0
    while time.monotonic() < deadline:
        time.sleep(_TICK)
        states = _quietly(airflow_side.task_states, Counter())
        chaos.progress = max(chaos.progress, states["success"])
        if states["success"] >= _NEARLY_ALL * plan.task_instances and chaos.is_alive():
            chaos.stop()
            say("nearly all work is done: no further faults")
        if time.monotonic() - said > 20:
            said = time.monotonic()
            say(f"{dict(states)}, pods at work: {player.active()}")
        runs = _quietly(airflow_side.run_states, Counter())
        if runs and not {"queued", "running"} & set(runs) and player.active() == 0:
            say(f"every run has ended: {dict(runs)}")
            return True
    return False


def _quietly(read: Any, otherwise: Any) -> Any:
    """Read from a server that a fault may have taken away."""
    with suppress(Exception):
        return read()
    return otherwise


def _guard_totals(folder: Path) -> dict[str, float]:
    """The counters and gauges of both schedulers' hand-off files that are not 0, over all their restarts."""
    totals: Counter[str] = Counter()
    for path in folder.glob("handoff-*/scheduler.json"):
        document = json.loads(path.read_text(encoding="utf-8"))
        for series in (*document["counters"], *document["gauges"]):
            labels = ",".join(f"{key}={value}" for key, value in sorted(series["labels"].items()))
            totals[f"{series['name'].removeprefix('steadfast_')}{{{labels}}}"] += series["value"]
    return {name: value for name, value in sorted(totals.items()) if value}


def _log_lines(folder: Path) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for name in SCHEDULERS:
        with (folder / f"scheduler-{name}.log").open(encoding="utf-8", errors="replace") as log:
            for line in log:
                for what, pattern in _LINES.items():
                    if (match := pattern.search(line)) is not None:
                        counts[what if what != "stale launches dropped" else f"dropped: {match[1]}"] += 1
    return dict(sorted(counts.items()))
