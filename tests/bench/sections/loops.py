# SPDX-License-Identifier: Apache-2.0
"""(a) Statements and time per launch, by creation batch."""

from __future__ import annotations

import contextlib
import math
import statistics
from typing import TYPE_CHECKING

from tests.bench import environments
from tests.bench.plan import BATCHES
from tests.bench.ratios import ratio
from tests.bench.result import Result, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.plan import Plan
    from tests.bench.stopwatch import Loop
    from tests.bench.world import Remote, Statements, World

SHARE = 20
"""How many times fewer SELECTs than the native check the largest batch is to need."""


def run(world: World, plan: Plan, progress: Callable[[str], None]) -> Result:
    """Measure the native check and the guard in turn, on pods that are really created."""
    result = Result("Statements and time per launch")
    kinds = (environments.native(), environments.steadfast())
    rows = 2_000 + sum((plan.loop_rounds + 1) * plan.loops[batch] * batch for batch in BATCHES)
    with contextlib.ExitStack() as stack:
        subjects = [stack.enter_context(world.subject(kind, rows=rows)) for kind in kinds]
        table: list[list[str]] = []
        for batch in BATCHES:
            progress(f"creation batch {batch}")
            native, ours = _measure(subjects, batch, plan)
            _judge(result, batch, native, ours)
            for subject, found in zip(subjects, (native, ours), strict=True):
                table.append([str(batch), subject.kind.name, *found.cells()])
            result.raw[str(batch)] = {"native": native.raw(), "ours": ours.raw()}
            checks = ratio(ours.checks, native.checks)
            own = ratio(ours.owns, native.owns)
            table.append([str(batch), "ratio", "", "", "", checks.text(), own.text(), ""])
    result.table(
        [
            "creation batch",
            "implementation",
            "SELECTs per launch",
            "SELECTs per loop",
            "pings, transaction statements and others per launch",
            "deciding, per launch",
            "the loop without API requests, per launch",
            "whole loop, per launch",
        ],
        table,
    )
    result.say(
        "Statements are counted by PostgreSQL (`pg_stat_statements`). A ping is the `SELECT 1` with which "
        "Airflow's pool asks whether its connection lives. *Deciding* is the time in the task queue's "
        "`get_nowait`, in the stock check, and in what the guard does before and after the stock loop, the "
        "check after creation included. Ratios are ours to native's, geometric mean of the rounds, with "
        "95 % bounds."
    )
    return result


class _Found:
    """The rounds of one implementation at one batch."""

    def __init__(self, batch: int) -> None:
        self.batch = batch
        self.rounds: list[list[Loop]] = []
        self.statements: list[Statements] = []

    @property
    def launches(self) -> int:
        return sum(loop.creates for loops in self.rounds for loop in loops)

    @property
    def selects(self) -> int:
        return sum(counted.selects for counted in self.statements)

    @property
    def loops(self) -> int:
        return sum(map(len, self.rounds))

    @property
    def checks(self) -> list[float]:
        """Seconds of deciding per launch, by round."""
        return [sum(loop.check for loop in loops) / _launches(loops) for loops in self.rounds]

    @property
    def owns(self) -> list[float]:
        return [sum(loop.own for loop in loops) / _launches(loops) for loops in self.rounds]

    @property
    def totals(self) -> list[float]:
        return [sum(loop.total for loop in loops) / _launches(loops) for loops in self.rounds]

    def cells(self) -> list[str]:
        others = sum(counted.all - counted.selects for counted in self.statements)
        return [
            f"{self.selects / self.launches:.3f}",
            f"{self.selects / self.loops:.2f}",
            f"{others / self.launches:.2f}",
            *(milliseconds(statistics.median(values)) for values in (self.checks, self.owns, self.totals)),
        ]

    def raw(self) -> dict[str, object]:
        return {"checks": self.checks, "owns": self.owns, "totals": self.totals, "selects": self.selects}


def _launches(loops: list[Loop]) -> int:
    return sum(loop.creates for loop in loops)


def _measure(subjects: list[Remote], batch: int, plan: Plan) -> list[_Found]:
    found = [_Found(batch) for _ in subjects]
    count = plan.loops[batch]
    for subject in subjects:
        subject.order("configure", batch=batch)
        subject.submit(min(batch, 16))  # the first loop opens connections and imports models
        subject.loops(1)
        subject.clean_up()
    for number in range(plan.loop_rounds):
        for index in _turn(number, len(subjects)):
            subject = subjects[index]
            loops: list[Loop] = []
            for _ in range(count):
                subject.submit(batch)
                with subject.counted(found[index].statements):
                    loops += subject.loops(1)
            found[index].rounds.append(loops)
            subject.clean_up()
            if _launches(loops) != count * batch:
                raise RuntimeError(f"{subject.kind.name} created {_launches(loops)} of {count * batch} pods")
    return found


def _turn(number: int, count: int) -> list[int]:
    """Who is measured in which order in this round."""
    return [(number + step) % count for step in range(count)]


def _judge(result: Result, batch: int, native: _Found, ours: _Found) -> None:
    """Compare the SELECTs of each loop with what is allowed for its duration."""
    worst, allowed = 0, 2
    met = True
    flat = [loop for loops in ours.rounds for loop in loops]
    for loop, counted in zip(flat, ours.statements, strict=True):
        limit = 2 * math.ceil(batch / 1_000) + int(loop.total)
        met = met and counted.selects <= limit
        if counted.selects >= worst:
            worst, allowed = counted.selects, limit
    result.promise(
        f"Creation batch {batch}: at most 2 SELECTs per loop and 1,000 ids, "
        "and one for each second of creation",
        f"at most {worst} in a loop that may have {allowed}",
        met=met,
    )
    if batch == max(BATCHES):
        share = native.selects / max(ours.selects, 1)
        result.promise(
            f"Creation batch {batch}: at most 1/{SHARE} of the native check's SELECTs",
            f"{ours.selects} against {native.selects}, 1/{share:.0f}",
            met=share >= SHARE,
        )
