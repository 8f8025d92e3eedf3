# SPDX-License-Identifier: Apache-2.0
"""The command line: full, short, only, list."""

from __future__ import annotations

import argparse
import os
import signal
import time
from typing import TYPE_CHECKING

from tests.faults import report, runner, spec, state
from tests.faults.servers import Servers, servers
from tests.support import environment, pairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.faults.outcome import Outcome
    from tests.faults.spec import Impl, Scenario


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code, 1 where the guarded executor deviates."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description="Fault scenarios.")
    verbs = parser.add_subparsers(dest="verb")
    full = verbs.add_parser(
        "full", help="all scenarios (the default), writes docs/faults.md; FRESH=1 starts anew"
    )
    full.add_argument("--impl", choices=spec.IMPLS, action="append")
    verbs.add_parser("short", help="a few scenarios with the guarded executor, passed or failed")
    verbs.add_parser("list", help="the scenarios")
    verbs.add_parser("report", help="write docs/faults.md from the results that there are")
    only = verbs.add_parser("only", help="named scenarios, printed, nothing kept")
    only.add_argument("name", nargs="+")
    only.add_argument("--impl", choices=spec.IMPLS, action="append")
    only.add_argument("--size", type=int, default=0)
    only.add_argument("--trials", type=int, default=0)
    asked = parser.parse_args(arguments)
    known = spec.load()
    signal.signal(signal.SIGTERM, _stop)
    if asked.verb == "list":
        for scenario in known.values():
            print(f"{scenario.name:34} {scenario.holes:12} {scenario.title}")
        return 0
    if asked.verb == "report":
        report.write(known, state.State())
        return 0
    if asked.verb == "short":
        return _short([scenario for scenario in known.values() if scenario.short])
    if asked.verb == "only":
        for name in asked.name:
            if name not in known:
                parser.error(f"there is no scenario {name!r}; `python -m tests.faults list` names them")
        return _only([known[name] for name in asked.name], asked)
    return _full(known, getattr(asked, "impl", None) or spec.IMPLS)


def _stop(*_: object) -> None:
    """End as after a key press, so that the servers are stopped."""
    raise KeyboardInterrupt


def _only(chosen: list[Scenario], asked: argparse.Namespace) -> int:
    code = 0
    with servers() as running, runner.Players() as players:
        for scenario in chosen:
            for impl in asked.impl or spec.IMPLS:
                code |= _one(
                    players,
                    scenario,
                    impl,
                    running,
                    asked.size or scenario.size,
                    asked.trials or scenario.trials,
                )
    return code


def _one(
    players: runner.Players, scenario: Scenario, impl: str, running: Servers, size: int, trials: int
) -> int:
    try:
        outcome, seconds, error = runner.run(players, scenario, impl, running, size=size, trials=trials)
    except runner.TrialError as trouble:
        print(f"{scenario.name} {impl}: {trouble}", flush=True)
        return 1
    print(f"{scenario.name} {impl}: {told(outcome)} ({seconds:.0f} s)", flush=True)
    for example in outcome.examples:
        print(f"    {example}")
    if error:
        print(error)
    return int(bool(error) or (impl == "steadfast" and (outcome.bad > 0 or outcome.exits > 0)))


def _short(chosen: list[Scenario]) -> int:
    started = time.monotonic()
    failed = 0
    with servers() as running, runner.Players() as players:
        for scenario in chosen:
            failed += _one(players, scenario, "steadfast", running, scenario.short, 1)
    print(f"{time.monotonic() - started:.0f} s")
    print(f"{len(chosen) - failed} passed, {failed} failed")
    return int(failed > 0)


def _full(known: dict[str, Scenario], impls: Sequence[Impl]) -> int:
    kept = state.State(fresh=os.environ.get("FRESH") == "1")
    wanted: list[tuple[Scenario, Impl]] = [(scenario, impl) for scenario in known.values() for impl in impls]
    missing = [(scenario, impl) for scenario, impl in wanted if not kept.has(scenario.name, impl)]
    print(f"{len(wanted)} runs, {len(wanted) - len(missing)} of them done before at this code", flush=True)
    troubled = 0
    for airflow in sorted({scenario.airflow for scenario, _ in missing}):
        environment.ensure(pairs.find(airflow))
    if missing:
        with servers() as running, runner.Players() as players:
            for number, (scenario, impl) in enumerate(missing, start=1):
                print(f"[{number}/{len(missing)}] {scenario.name} {impl} ... ", end="", flush=True)
                try:
                    outcome, seconds, error = runner.run(
                        players, scenario, impl, running, size=scenario.size, trials=scenario.trials
                    )
                except runner.TrialError as trouble:
                    print(trouble, flush=True)
                    troubled += 1
                    continue
                if error:
                    print(f"no verdict:\n{error}", flush=True)
                    troubled += 1
                    continue
                kept.put(scenario.name, impl, outcome, seconds)
                report.write(known, kept)
                print(f"{told(outcome)} ({seconds:.0f} s)", flush=True)
    report.write(known, kept)
    deviating = [
        name
        for name in known
        if (ours := kept.get(name, "steadfast")) is not None and (ours.outcome.bad or ours.outcome.exits)
    ]
    print(f"{report.TARGET.name} is written; all runs took {kept.seconds() / 60:.0f} min")
    if deviating:
        print(f"the guarded executor deviates in: {', '.join(deviating)}")
    return int(bool(deviating or troubled))


def told(outcome: Outcome) -> str:
    """One line for a person."""
    notes = ", ".join(f"{name} {value:g}" for name, value in outcome.notes.items() if value)
    return (
        f"{outcome.launches} launches: {outcome.lost} lost, {outcome.doubled} doubled, "
        f"{outcome.wrong} wrong, {outcome.exits} exits" + (f"; {notes}" if notes else "")
    )
