# SPDX-License-Identifier: Apache-2.0
"""The three test commands: ``test-fast``, ``test``, ``test-all``.

Each is a list of steps, every one a target of the Makefile. All steps run, also after one has failed, so that
one run tells everything; the table at the end says what failed and where to look. Exit code 1 if any did.

The steps without a cluster run in lanes, side by side; a step's output is shown when it has ended.
The cluster of ``test`` starts in the background meanwhile.

``test`` runs the newest pair whole and the matrix's suites (unit, on Airflow, the launch guard's on a
kube-apiserver) of one older pair, whose turn it is by the number of commits; ``PAIR=`` fixes it.
``test-all`` runs the suites of every pair, faults, soak and benchmarks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from tests.support import tree
from tests.support.environment import BUILD, ROOT, MissingError, ensure, interpreter, packages
from tests.support.pairs import MAIN_PAIR, OLDER, Pair, UnknownPairError, find, of_turn

# tests on a real Airflow wait for servers more than they compute: a lane each
FAST_LANES = (
    ("lint", "unit", "test-chart", "test-dashboards"),
    ("test-airflow PART=launch_guard", "test-airflow PART=databases"),
    ("test-airflow PART=durable_pod", "test-airflow PART=outbox"),
)
CLUSTER_STEPS = ("test-apiserver", "faults-short", "test-cluster")
LOGS = BUILD / "logs"
# long, resumable, each with a page in docs/
LONG_STEPS = ("matrix", "faults", "soak", "bench")


@dataclass
class Report:
    """What ran, how it ended and how long it took."""

    rows: list[tuple[str, str, float]] = field(default_factory=list)
    _printing: threading.Lock = field(default_factory=threading.Lock)

    def run_quietly(self, name: str, command: list[str]) -> None:
        """Run one step with its output in a file, and show it whole when the step has ended."""
        LOGS.mkdir(parents=True, exist_ok=True)
        log = LOGS / f"{name.replace(' PART=', '-').replace(' PAIR=', '-')}.log"
        print(f"=== {name} ... ({log.relative_to(ROOT)})", flush=True)
        started = time.monotonic()
        with log.open("wb") as output:
            done = subprocess.run(
                command,
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        with self._printing:
            print(f"\n=== {name}\n{log.read_text(errors='replace')}", flush=True)
            self.add(name, done.returncode == 0, time.monotonic() - started)

    def run(self, name: str, command: list[str]) -> None:
        """Run one step on this terminal."""
        print(f"\n=== {name}", flush=True)
        started = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, check=False)
        self.add(name, done.returncode == 0, time.monotonic() - started)

    def add(self, name: str, passed: bool, seconds: float, note: str = "") -> None:
        outcome = ("passed" if passed else "FAILED") + (f" ({note})" if note else "")
        self.rows.append((name, outcome, seconds))
        print(f"=== {name}: {outcome} in {seconds:.0f} s", flush=True)

    def close(self) -> int:
        print("\nstep                                          outcome          time")
        for name, outcome, seconds in self.rows:
            print(f"{name:45} {outcome:15} {seconds:5.0f} s")
        failed = [name for name, outcome, _ in self.rows if outcome.startswith("FAILED")]
        if failed:
            print(f"\nFAILED: {', '.join(failed)}. Run one again by `make STEP`; its output is above.")
            return 1
        print("\nEverything passed. The cluster, where one was started, is still up: `make demo` uses it,")
        print("`make cluster-down` stops it.")
        return 0


def main(tier: str) -> int:
    started = time.monotonic()
    report = Report()
    try:
        older = None if tier == "test-fast" else older_pair(os.environ.get("PAIR", ""))
        packages()
        ensure(MAIN_PAIR)
    except (MissingError, UnknownPairError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    report.add("environment", True, time.monotonic() - started)
    print(f"\nPair under test: {MAIN_PAIR.name}")
    background = None if tier == "test-fast" else _start_cluster()
    extra = ((f"matrix PAIR={older.key}",),) if older else ()
    lanes = [threading.Thread(target=_lane, args=(report, steps)) for steps in (*FAST_LANES, *extra)]
    for lane in lanes:
        lane.start()
    for lane in lanes:
        lane.join()
    if background is not None:
        _await_cluster(report, background)
        for step in CLUSTER_STEPS:
            report.run(step, _make(step))
    if tier == "test-all":
        for step in LONG_STEPS:
            report.run(step, _make(step))
    return report.close()


def older_pair(wanted: str) -> Pair | None:
    """Return the second pair of ``make test`` and say why it is this one; None where no interpreter is here.

    ``wanted`` is what PAIR= names, "" for the pair whose turn it is, "none" for no second pair. Raises
    UnknownPairError for a name that is no pair's, MissingError where the named pair's Python is not here.
    """
    if wanted == "none":
        print("No second pair, as PAIR= says", flush=True)
        return None
    if wanted:
        pair = find(wanted)
        if interpreter(pair.python) is None:
            raise MissingError(f"PAIR={wanted}: no Python {pair.python} on PATH or in pyenv")
        print(f"Second pair, as PAIR= says: {pair.name}", flush=True)
        return pair
    there = tuple(pair for pair in OLDER if interpreter(pair.python) is not None)
    for python in sorted({pair.python for pair in OLDER if pair not in there}):
        print(f"No Python {python} here: its pairs are left out")
    number = tree.commit_count()
    chosen = of_turn(number, there)
    if chosen is None:
        print("No second pair: none of the older pairs' Pythons is here", flush=True)
    else:
        print(
            f"Second pair, by turn {number} of {len(there)}: {chosen.name} (PAIR={chosen.key} fixes it)",
            flush=True,
        )
    return chosen


def _make(step: str) -> list[str]:
    return ["make", "--no-print-directory", *step.split()]


def _lane(report: Report, steps: tuple[str, ...]) -> None:
    for step in steps:
        report.run_quietly(step, _make(step))


def _start_cluster() -> subprocess.Popen[bytes]:
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / "cluster-up.log"
    print(f"\nThe cluster starts in the background, its log: {log.relative_to(ROOT)}", flush=True)
    with log.open("wb") as output:
        return subprocess.Popen(_make("cluster"), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT)


def _await_cluster(report: Report, background: subprocess.Popen[bytes]) -> None:
    started = time.monotonic()
    passed = background.wait() == 0
    if not passed:
        print((LOGS / "cluster-up.log").read_text(errors="replace")[-4000:])
    report.add("cluster (the rest of its start)", passed, time.monotonic() - started)


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("test-fast", "test", "test-all"):
        print(__doc__)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
