# SPDX-License-Identifier: Apache-2.0
"""(c) What a check costs in a small table and in one of millions of task instances."""

from __future__ import annotations

import contextlib
import statistics
from typing import TYPE_CHECKING

from tests.bench import environments
from tests.bench.fill import fill
from tests.bench.ratios import ratio
from tests.bench.result import Result, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.plan import Plan
    from tests.bench.world import Remote, World

HIGHEST = 1.3


def run(world: World, plan: Plan, progress: Callable[[str], None]) -> Result:
    """Time the guard's check of a batch in both tables in turn, and look at the plans."""
    result = Result("The check in a large table")
    kind = environments.steadfast()
    with contextlib.ExitStack() as stack:
        subjects = []
        for size in (plan.small_table, plan.large_table):
            subject = stack.enter_context(world.subject(kind))
            fill(world.postgres, subject.database, size, progress)
            subject.order("configure", batch=1)
            subject.reuse = True
            subjects.append(subject)
        rows: list[list[str]] = []
        plans: list[str] = []
        for ids, rounds in plan.table_rounds.items():
            progress(f"{ids} ids in one check")
            times, after = _measure(subjects, ids, rounds)
            result.raw[str(ids)] = {"small": times[0], "large": times[1], "after": after}
            estimate = ratio(times[1], times[0])
            medians = [milliseconds(statistics.median(series)) for series in times]
            rows.append([str(ids), *medians, estimate.text()])
            result.promise(
                f"A check of {ids} at {plan.large_table:,} task instances takes at most {HIGHEST} times that "
                f"at {plan.small_table:,} (upper 95 % bound)",
                estimate.text(),
                met=estimate.upper <= HIGHEST,
            )
            plans.append(_plan(world, subjects[1], ids))
        result.table(
            ["ids in one check", f"{plan.small_table:,} rows", f"{plan.large_table:,} rows", "ratio"], rows
        )
        result.say(
            "The time of the first `get_nowait` of a loop, in which the guard checks all that is queued: "
            "connection, statement, rows, verdicts. The ids are spread at random over the table; each was "
            "queued just before by the scheduler's own UPDATE. Medians; ratios of pairs with 95 % bounds.",
            f"The plans at {plan.large_table:,} rows, PostgreSQL 15, all of Airflow's indexes present:",
        )
        for text in plans:
            result.lines += ["", "```", *text.splitlines(), "```"]
        wrong = [text for text in plans if "Seq Scan" in text or "task_instance_pkey" not in text]
        result.promise(
            "Each look-up is one of the primary key",
            f"{len(plans) - len(wrong)} of {len(plans)} plans",
            met=not wrong,
        )
    return result


def _measure(subjects: list[Remote], ids: int, rounds: int) -> tuple[list[list[float]], list[float]]:
    """Return the seconds of each check by table, and of what follows creation in the large one."""
    times: list[list[float]] = [[] for _ in subjects]
    after: list[float] = []
    for number in range(-1, rounds):  # the first one opens the connections
        for step in range(len(subjects)):
            index = (number + step) % len(subjects)
            subject = subjects[index]
            subject.submit(ids)
            (loop,) = subject.loops(1)
            subject.order("forget")
            if number >= 0:
                times[index].append(loop.first)
                after += [loop.around] if index else []
    for subject in subjects:
        subject.clean_up()
    return times, after


def _plan(world: World, subject: Remote, ids: int) -> str:
    """EXPLAIN the statement that the guard sends for so many ids, executed; the id list is shortened."""
    subject.submit(ids)
    statement = subject.order("statement")
    subject.order("forget")
    if not statement:
        raise RuntimeError("the guard sent no SELECT")
    text = world.postgres.psql(f"EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) {statement}", subject.database)
    return "\n".join(line if len(line) <= 160 else f"{line[:120]} …" for line in text.splitlines())
