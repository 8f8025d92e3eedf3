# SPDX-License-Identifier: Apache-2.0
"""(d) Pods created per second, against a provider without a check and against the native one."""

from __future__ import annotations

import contextlib
import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.bench import environments
from tests.bench.ratios import ratio
from tests.bench.result import Result, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.plan import Plan
    from tests.bench.world import Remote, World

LOWEST = 0.95


@dataclass(frozen=True)
class Setting:
    """A way to create pods; ``whole`` times the whole scheduler loop and not the executor's part alone."""

    batch: int
    concurrent: bool = False
    whole: bool = False
    promised: bool = True

    @property
    def name(self) -> str:
        """For the tables."""
        manner = "asynchronous" if self.concurrent else "one after another"
        return f"{self.batch}, {manner}, {'whole scheduler loop' if self.whole else 'executor alone'}"


SETTINGS = (
    Setting(1, promised=False),
    Setting(1, whole=True),
    Setting(16),
    Setting(500),
    Setting(16, concurrent=True),
)


def run(world: World, plan: Plan, progress: Callable[[str], None]) -> Result:
    """Create the same number of pods by each implementation in turn, round by round."""
    result = Result("Pods created per second")
    kinds = (environments.without_check(), environments.native(), environments.steadfast())
    rows = 2_000 + sum((plan.rate_rounds + 2) * plan.rate_pods[setting.batch] for setting in SETTINGS)
    with contextlib.ExitStack() as stack:
        subjects = [stack.enter_context(world.subject(kind, rows=rows)) for kind in kinds]
        table: list[list[str]] = []
        for setting in SETTINGS:
            progress(f"creation batch {setting.name}")
            rates, around = _measure(subjects, setting, plan)
            result.raw[setting.name] = {"rates": rates, "around": around}
            native, ours = ratio(rates[1], rates[0]), ratio(rates[2], rates[0])
            medians = [f"{statistics.median(series):.0f}" for series in rates]
            apart = milliseconds(statistics.median(around))
            table.append([setting.name, *medians, native.text(3), ours.text(3), apart])
            if setting.promised:
                result.promise(
                    f"Creation batch {setting.name}: rate against the provider without a check at least "
                    f"{LOWEST} (lower 95 % bound of at least 10 pairs; the check after creation included)",
                    ours.text(3),
                    met=ours.lower >= LOWEST and (ours.n >= 10 or plan.name == "quick"),
                )
    result.table(
        [
            "creation batch",
            *(f"{kind.name}, pods/s" for kind in kinds),
            "native check / no check",
            "Steadfast / no check",
            "of it: what the guard does before and after the stock loop, the check after creation among it",
        ],
        table,
    )
    result.say(
        "Real pods on a real kube-apiserver, one PostgreSQL for all. In each round every implementation "
        "creates the same number of pods, in turn loop by loop; a rate is pods by the time of the loops. "
        "*Executor alone* is `sync()` called again and again. *Whole scheduler loop* has the scheduler's "
        "other steps around it, with nothing to schedule and without its sleep: the least that a loop can "
        "be, and what the rate at the default creation batch of 1 comes from. Ratios are geometric means of "
        "the rounds with 95 % bounds."
    )
    return result


def _measure(subjects: list[Remote], setting: Setting, plan: Plan) -> tuple[list[list[float]], list[float]]:
    """Return pods per second by implementation and round, and the guard's own time around each loop."""
    rates: list[list[float]] = [[] for _ in subjects]
    around: list[float] = []
    for subject in subjects:
        subject.order("configure", batch=setting.batch, concurrent=setting.concurrent)
    for number in range(-1, plan.rate_rounds):  # the first one opens connections and imports modules
        order = [(number + step) % len(subjects) for step in range(len(subjects))]
        spent, guard = _round([subjects[index] for index in order], setting, plan.rate_pods[setting.batch])
        if number >= 0:
            for index, seconds in zip(order, spent, strict=True):
                rates[index].append(plan.rate_pods[setting.batch] / seconds)
            around += guard
    return rates, around


def _round(subjects: list[Remote], setting: Setting, pods: int) -> tuple[list[float], list[float]]:
    """Let each create ``pods`` pods; returns their seconds, and the guard's own ones by loop."""
    spent = [0.0] * len(subjects)
    guard: list[float] = []
    for subject in subjects:
        subject.submit(pods)
    for _ in range(math.ceil(pods / setting.batch)):
        for index, subject in enumerate(subjects):
            (loop,) = subject.scheduler_loops(1) if setting.whole else subject.loops(1)
            spent[index] += loop.total
            if subject.kind.guarded:
                guard.append(loop.around)
    for subject in subjects:
        found = subject.pod_count()
        if found != pods:
            raise RuntimeError(f"{subject.kind.name} created {found} of {pods} pods")
        subject.clean_up()
    return spent, guard
