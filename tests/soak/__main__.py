# SPDX-License-Identifier: Apache-2.0
"""The HA soak: ``python -m tests.soak``.

    python -m tests.soak                       both implementations, both scenarios, then docs/soak.md
    python -m tests.soak run --impl steadfast  one soak (--scenario outage, --tasks 2000, --seed 1)
    python -m tests.soak report                write docs/soak.md from the results so far
    python -m tests.soak judge FOLDER          judge the kept evidence of a run again
    python -m tests.soak timeline FOLDER RUN TASK MAP_INDEX   what happened to one task instance

A result is kept in .build/soak/results and not made again while the code is the same; FRESH=1 does.
docs/soak.md has the results of today's code alone. Exit code 1 if ours deviates.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.soak import plan, report, soak, timeline
from tests.support.environment import BUILD, ROOT

RESULTS = BUILD / "soak" / "results"
SEED, TASKS, SECONDS = 1, 2_000, 900.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command")
    one = commands.add_parser("run")
    one.add_argument("--impl", choices=plan.IMPLS, required=True)
    one.add_argument("--scenario", choices=("soak", "outage"), default="soak")
    one.add_argument("--tasks", type=int, default=TASKS, help="task instances, in steps of 100")
    one.add_argument("--seed", type=int, default=None, help="of the faults and the pods; random if not given")
    one.add_argument("--seconds", type=float, default=SECONDS, help="how long faults go on at most")
    one.add_argument("--folder", type=Path, default=None, help="an empty folder for every log")
    commands.add_parser("report")
    again = commands.add_parser("judge")
    again.add_argument("folder", type=Path)
    look = commands.add_parser("timeline")
    look.add_argument("folder", type=Path)
    look.add_argument("run_id")
    look.add_argument("task_id")
    look.add_argument("map_index", type=int)
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # servers are ended on the way
    if given.command == "run":
        return _run(given)
    if given.command == "judge":
        return _keep(soak.judge_again(given.folder))
    if given.command == "timeline":
        print("\n".join(timeline.lines(given.folder, given.run_id, given.task_id, given.map_index)))
        return 0
    if given.command == "report":
        return _report()
    return _all()


def _run(given: argparse.Namespace) -> int:
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(10_000)
    made = (
        plan.soak(given.impl, seed, given.tasks, given.seconds)
        if given.scenario == "soak"
        else plan.outage(given.impl, seed, given.tasks)
    )
    folder = given.folder or Path(tempfile.mkdtemp(prefix="steadfast-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    return _keep(soak.run(made, folder))


def _keep(result: dict[str, Any]) -> int:
    """Keep a result, print its outcome; 1 if it is ours and deviates."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    made = result["plan"]
    place = RESULTS / f"{made['scenario']}-{made['impl']}-{made['seed']}-{made['task_instances']}.json"
    place.write_text(json.dumps(result, indent=1), encoding="utf-8")
    print(json.dumps(result["outcome"], indent=1))
    for deviation in result["outcome"]["deviations"]:
        print(f"deviation: {deviation}")
    return 1 if made["impl"] == "steadfast" and result["outcome"]["deviations"] else 0


def _all() -> int:
    """Run what is missing, each in a process of its own: Airflow reads its configuration once."""
    failed = 0
    for scenario, tasks in (("soak", TASKS), ("outage", 300)):
        for impl in reversed(plan.IMPLS):
            place = RESULTS / f"{scenario}-{impl}-{SEED}-{tasks}.json"
            if _kept(place) is not None and not os.environ.get("FRESH"):
                print(f"{place.name}: kept (FRESH=1 makes it again)")
            else:
                command = [sys.executable, "-m", "tests.soak", "run", "--impl", impl, "--scenario", scenario]
                _call([*command, "--tasks", str(tasks), "--seed", str(SEED)])
            kept = _kept(place)
            if kept is None or (impl == "steadfast" and kept["outcome"]["deviations"]):
                failed += 1
    _report()
    print(f"{4 - failed} passed, {failed} failed")
    return 1 if failed else 0


def _kept(place: Path) -> dict[str, Any] | None:
    """Return a result of today's code, None where there is none."""
    if not place.exists():
        return None
    found: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    return found if found.get("code") == soak.code(found["plan"]["impl"]) else None


def _call(command: list[str]) -> None:
    """Run a command that ends its servers when it is told to end, as this one is."""
    process = subprocess.Popen(command, cwd=ROOT)
    try:
        process.wait()
    except BaseException:
        process.terminate()
        process.wait()
        raise


def _report() -> int:
    results = [kept for path in sorted(RESULTS.glob("*.json")) if (kept := _kept(path)) is not None]
    (ROOT / "docs" / "soak.md").write_text(report.page(results), encoding="utf-8")
    print("wrote docs/soak.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
