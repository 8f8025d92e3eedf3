# SPDX-License-Identifier: Apache-2.0
"""The suites of ``tree.suites`` on every supported pair, each in its own environment.

    python -m tests.support.matrix                every pair; writes docs/matrix.md
    python -m tests.support.matrix 3.0.6+10.8.2   the named pairs only
    python -m tests.support.matrix report         runs nothing; writes docs/matrix.md from what is kept

It resumes: a suite that passed on a pair, with the files that it reads as they are now, is not run again
unless FRESH=1. A pair whose Python is not on this machine is reported as not run, and the exit code
is 1.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from tests.support import apiserver, matrix_page, tree
from tests.support.environment import BUILD, ROOT, MissingError, ensure
from tests.support.matrix_page import Result, merged
from tests.support.pairs import PAIRS, Pair, UnknownPairError, find

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.tree import Suite

KEPT = BUILD / "matrix"
# The suites wait for servers more than they compute.
_AT_ONCE = 2


def run(pair: Pair) -> Result:
    """Run the suites on a pair, without those that passed before with these files. Never raises."""
    try:
        folder = ensure(pair)
    except (MissingError, subprocess.CalledProcessError) as error:
        _say(f"{pair.key}: not run: {error}")
        return Result(pair.key, note=str(error))
    return merged(pair.key, [_run_suite(pair, suite, folder) for suite in tree.suites()])


def kept(pair: Pair) -> Result:
    """Return what is kept of a pair; code None where a suite of it has not ended yet."""
    found = {suite.name: Result.load(KEPT / pair.key / f"{suite.name}.json") for suite in tree.suites()}
    missing = [name for name, result in found.items() if result is None]
    if len(missing) == len(found):
        return Result(pair.key, note="no suite has run")
    whole = merged(pair.key, [result for result in found.values() if result is not None])
    if missing and whole.passed:
        return replace(whole, code=None, note=f"still to run: {', '.join(missing)}")
    return whole


def _run_suite(pair: Pair, suite: Suite, folder: Path) -> Result:
    name, digest = f"{pair.key} {suite.name}", tree.digest(pair, suite)
    place = KEPT / pair.key / f"{suite.name}.json"
    before = Result.load(place)
    if before is not None and before.passed and before.digest == digest and not os.environ.get("FRESH"):
        _say(f"{name}: passed before with these files ({before.tests} tests), not run again")
        return before
    log, report = place.with_suffix(".log"), place.with_suffix(".xml")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    _say(f"{name}: ... ({log.relative_to(ROOT)})")
    _have(suite.programs)
    started = time.monotonic()
    code = _pytest(folder, suite.path, log, report)
    seconds = time.monotonic() - started
    passed, failed, skipped = _cases(report)
    result = Result(pair.key, digest, code, passed, failed, skipped, seconds, tree.commit())
    if code >= 0:  # a run that was killed says nothing
        result.save(place)
    _say(f"{name}: {result.outcome} in {seconds:.0f} s")
    if not result.passed:
        _say(_tail(log))
    return result


def _have(programs: tuple[str, ...]) -> None:
    """Build what a suite's tests start. What cannot be built is told by the tests, which need it."""
    for name in programs:
        with contextlib.suppress(RuntimeError):
            apiserver.program(name)


def _pytest(folder: Path, path: str, log: Path, report: Path) -> int:
    report.unlink(missing_ok=True)
    # a person's own Airflow settings would bend the tests
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
    python = str(folder / "bin" / "python")
    options = ["-q", "-p", "no:cacheprovider", f"--junit-xml={report}"]
    with log.open("wb") as output:
        done = subprocess.run(
            [python, "-m", "pytest", *options, path],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
        )
    return done.returncode


def _cases(report: Path) -> tuple[int, int, dict[str, int]]:
    """Return how many of the report's tests passed and failed, and how many were skipped for which reason."""
    outcomes: Counter[str] = Counter()
    skipped: Counter[str] = Counter()
    if report.exists():
        for case in ET.parse(report).getroot().iter("testcase"):  # noqa: S314 - pytest wrote it just now
            kinds = {child.tag: child.get("message", "") for child in case}
            if "failure" in kinds or "error" in kinds:
                outcomes["failed"] += 1
            elif "skipped" in kinds:
                skipped[kinds["skipped"]] += 1
            else:
                outcomes["passed"] += 1
    return outcomes["passed"], outcomes["failed"], dict(skipped)


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return "\n".join(line[:300] for line in lines if line.startswith(("FAILED", "ERROR")))


def _say(text: str) -> None:
    print(text, flush=True)


def main(arguments: list[str]) -> int:
    if arguments == ["report"]:
        return _close([kept(pair) for pair in PAIRS])
    try:
        pairs = tuple(find(text) for text in arguments) or PAIRS
    except UnknownPairError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        results = list(pool.map(run, pairs))
    return _close(results)


def _close(results: list[Result]) -> int:
    print()
    for line in matrix_page.table(results):
        print(line)
    if len(results) == len(PAIRS):
        matrix_page.PAGE.write_text(matrix_page.page(results), encoding="utf-8")
        print(f"\nwrote {matrix_page.PAGE.relative_to(ROOT)}")
    failed = [result.pair for result in results if not result.passed]
    if failed:
        print(f"\nNOT PASSED: {', '.join(failed)}. One alone: `make matrix PAIR={failed[0]}`")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
