# SPDX-License-Identifier: Apache-2.0
"""The three test commands: ``test-fast``, ``test``, ``test-all``.

Each is a list of steps, every one a target of the Makefile. All steps run, also after one has failed, so that
one run tells everything; the table at the end says what failed and where to look. Exit code 1 if any did.

The cluster of ``test`` starts in the background while the steps that need none are running.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass, field

from tests.support.environment import BUILD, MAIN_PAIR, PAIRS, ROOT, MissingError, Pair, ensure, packages

FAST = ("lint", "unit", "test-airflow", "test-chart", "test-dashboards")
FULL = (*FAST, "test-apiserver", "test-cluster")
# what this version of the bundle claims to work on; the other supported pairs join with their capabilities
COVERED = tuple(pair for pair in PAIRS if pair.airflow == MAIN_PAIR.airflow)
# the steps that are repeated on every covered pair, in its own environment
PER_PAIR = ("tests/unit", "tests/on_airflow")


@dataclass
class Report:
    """What ran, how it ended and how long it took."""

    rows: list[tuple[str, str, float]] = field(default_factory=list)

    def run(self, name: str, command: list[str]) -> None:
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
        packages()
        ensure(MAIN_PAIR)
    except MissingError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    report.add("environment", True, time.monotonic() - started)
    print(f"\nPair under test: {MAIN_PAIR.name}")
    steps = FAST if tier == "test-fast" else FULL
    background = None if tier == "test-fast" else _start_cluster()
    for step in steps:
        if step in ("test-apiserver", "test-cluster") and background is not None:
            _await_cluster(report, background)
            background = None
        report.run(step, ["make", "--no-print-directory", step])
    if tier == "test-all":
        _pairs(report)
    return report.close()


def _start_cluster() -> subprocess.Popen[bytes]:
    log = BUILD / "cluster-up.log"
    print(f"\nThe cluster starts in the background, its log: {log.relative_to(ROOT)}", flush=True)
    with log.open("wb") as output:
        return subprocess.Popen(
            ["make", "--no-print-directory", "cluster"], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
        )


def _await_cluster(report: Report, background: subprocess.Popen[bytes]) -> None:
    started = time.monotonic()
    passed = background.wait() == 0
    if not passed:
        print((BUILD / "cluster-up.log").read_text(errors="replace")[-4000:])
    report.add("cluster (the rest of its start)", passed, time.monotonic() - started)


def _pairs(report: Report) -> None:
    for pair in COVERED:
        if pair == MAIN_PAIR:
            continue
        started = time.monotonic()
        try:
            folder = ensure(pair)
        except MissingError as error:
            report.add(pair.name, False, time.monotonic() - started, f"not run: {error}")
            continue
        report.run(pair.name, _pytest(pair, str(folder)))
    for pair in PAIRS:
        if pair not in COVERED:
            print(f"{pair.name}: supported from a later version on, not run")


def _pytest(pair: Pair, folder: str) -> list[str]:
    os.environ["STEADFAST_TEST_PAIR"] = pair.name
    return [f"{folder}/bin/python", "-m", "pytest", *PER_PAIR]


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in ("test-fast", "test", "test-all"):
        print(__doc__)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
