# SPDX-License-Identifier: Apache-2.0
"""The benchmark of the launch guard and the durable pod: ``python -m tests.bench``.

    python -m tests.bench                 measure what was not measured yet, write docs/performance.md
    python -m tests.bench --only rate     one section, several by a comma: {sections}
    python -m tests.bench --quick         small numbers while something is being changed; writes no page

A section's result is kept in .build/bench while the code is the same, so an interrupted run goes on where it
stopped; FRESH=1 measures anew. Exit code 1 if a promise is not met or a section is missing. It takes 25
minutes on two idle cores, and nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from tests.support import environment
from tests.support.pairs import MAIN_PAIR

if TYPE_CHECKING:
    from tests.bench.plan import Plan
    from tests.bench.result import Result

SECTIONS = ("loops", "backlog", "table", "rate", "idle", "worker", "reattach")
PAGE = environment.ROOT / "docs" / "performance.md"


def main(arguments: list[str]) -> int:
    """Run the command; returns its exit code."""
    if importlib.util.find_spec("airflow") is None:
        python = environment.ensure(MAIN_PAIR) / "bin" / "python"
        # the same command in the right environment
        os.execv(python, [str(python), "-m", "tests.bench", *arguments])  # noqa: S606 - no shell is wanted
    text = (__doc__ or "").format(sections=", ".join(SECTIONS))
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=text)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", type=_sections, default=SECTIONS, metavar="SECTION[,SECTION]")
    given = parser.parse_args(arguments)
    from tests.bench.plan import FULL, QUICK

    return _run(QUICK if given.quick else FULL, given.only)


def _sections(text: str) -> tuple[str, ...]:
    chosen = tuple(text.split(","))
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        raise argparse.ArgumentTypeError(f"no section {unknown[0]!r}; choose from {', '.join(SECTIONS)}")
    return chosen


def _run(plan: Plan, chosen: tuple[str, ...]) -> int:
    from tests.bench import report
    from tests.bench.kept import Kept
    from tests.bench.world import World

    # also when it is told to end, the servers end with it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = time.monotonic()
    kept = Kept(plan)
    with World() as world:
        for name in chosen:
            if kept.load(name) is not None and not os.environ.get("FRESH"):
                _say(started, f"{name}: measured before, kept")
                continue
            kept.begin(name)
            kept.save(name, _measure(world, plan, name, started))
    results = {name: result for name in SECTIONS if (result := kept.load(name)) is not None}
    print(f"\n{report.summary(results)}")
    missing = [name for name in SECTIONS if name not in results]
    if plan.name == "quick":
        print("\nA quick look: docs/performance.md is left as it is.")
        missing = []
    else:
        PAGE.write_text(report.page(plan, results, missing), encoding="utf-8")
        print(f"\nwrote {PAGE.relative_to(environment.ROOT)} after {time.monotonic() - started:.0f} s")
    if missing:
        print(f"not measured yet: {', '.join(missing)}")
    met = all(promise.met for result in results.values() for promise in result.promises)
    return 0 if met and not missing else 1


def _measure(world: object, plan: Plan, name: str, started: float) -> Result:
    section = importlib.import_module(f"tests.bench.sections.{name}")
    before, began = os.getloadavg()[0], time.monotonic()
    _say(started, f"{name}: started")
    result: Result = section.run(world, plan, lambda text: _say(started, f"{name}: {text}"))
    result.seconds = time.monotonic() - began
    result.load = f"{before:.1f} before, {os.getloadavg()[0]:.1f} after"
    _say(started, f"{name}: done in {result.seconds:.0f} s")
    for promise in result.promises:
        _say(started, f"{name}: {'met' if promise.met else 'NOT MET'}: {promise.text}: {promise.found}")
    return result


def _say(started: float, text: str) -> None:
    print(f"[{time.monotonic() - started:6.0f} s] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
