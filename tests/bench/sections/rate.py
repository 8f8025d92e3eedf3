# SPDX-License-Identifier: Apache-2.0
"""(d) Pods created per second, against a provider without a check and against the native one."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.bench import environments
from tests.bench.ratios import ratio
from tests.bench.result import Result, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.plan import Plan
    from tests.bench.stopwatch import Loop
    from tests.bench.world import Remote, World

LOWEST = 0.95


@dataclass(frozen=True)
class Setting:
    """A way to create pods; ``whole`` times the whole scheduler loop and not the executor's part alone.

    ``promised`` is false for what no scheduler does: the executor alone at the default creation batch of 1.
    """

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
            found = _measure(subjects, setting, plan)
            without, native, ours = found
            result.raw[setting.name] = [dataclasses.asdict(one) for one in found]
            estimate = ratio(ours.rates, without.rates)
            table.append(
                [
                    setting.name,
                    *(f"{statistics.median(one.rates):.0f}" for one in found),
                    ratio(native.rates, without.rates).text(3),
                    estimate.text(3),
                    ratio(ours.rates_without_around, without.rates).text(3),
                    milliseconds(statistics.median(ours.around)),
                    ratio(ours.cpu, without.cpu).text(3),
                ]
            )
            if setting.promised:
                result.promise(
                    f"Creation batch {setting.name}: rate against the provider without a check at least "
                    f"{LOWEST} (lower 95 % bound of at least 10 pairs; the check after creation included)",
                    estimate.text(3),
                    met=estimate.lower >= LOWEST and (estimate.n >= 10 or plan.name == "quick"),
                )
    result.table(
        [
            "creation batch",
            *(f"{kind.name}, pods/s" for kind in kinds),
            "native check / no check",
            "Steadfast / no check",
            "the same without the check after creation",
            "the check after creation, per loop",
            "Steadfast / no check, CPU per pod",
        ],
        table,
    )
    result.say(
        "Real pods on a real kube-apiserver, one PostgreSQL for all. In each round every implementation "
        "creates the same number of pods, in turn loop by loop; a rate is pods by the time of the loops. "
        "*Executor alone* is `sync()` called again and again. *Whole scheduler loop* has the scheduler's "
        "other steps around it, with nothing to schedule and without its sleep: shorter than any real one, "
        "which either queues something or sleeps for `scheduler_idle_sleep_time` (1 s). At the default "
        "creation batch of 1 each pod pays for a check and for one after creation; the executor alone is "
        "shown there and promises nothing ([ADR 18](adr/0018-rate-at-batch-one.md)). *The check after "
        "creation* is all that the guard does outside of the stock loop, the hand-off file among it. CPU is "
        "of the scheduler's process. Ratios are geometric means of the rounds with 95 % bounds."
    )
    return result


@dataclass
class Found:
    """The rounds of one implementation: pods per second, CPU seconds per pod, and each loop's rest."""

    rates: list[float] = field(default_factory=list)
    rates_without_around: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    around: list[float] = field(default_factory=list)

    def add(self, pods: int, loops: list[Loop]) -> None:
        """Add a round."""
        total, around = sum(loop.total for loop in loops), sum(loop.around for loop in loops)
        self.rates.append(pods / total)
        self.rates_without_around.append(pods / (total - around))
        self.cpu.append(sum(loop.cpu for loop in loops) / pods)
        self.around += [loop.around for loop in loops]


def _measure(subjects: list[Remote], setting: Setting, plan: Plan) -> list[Found]:
    """Return what was found for each implementation."""
    found = [Found() for _ in subjects]
    pods = plan.rate_pods[setting.batch]
    for subject in subjects:
        subject.order("configure", batch=setting.batch, concurrent=setting.concurrent)
    for number in range(-1, plan.rate_rounds):  # the first one opens connections and imports modules
        order = [(number + step) % len(subjects) for step in range(len(subjects))]
        loops = _round([subjects[index] for index in order], setting, pods)
        if number >= 0:
            for index, times in zip(order, loops, strict=True):
                found[index].add(pods, times)
    return found


def _round(subjects: list[Remote], setting: Setting, pods: int) -> list[list[Loop]]:
    """Let each create ``pods`` pods, loop by loop in turn; returns the loops of each."""
    loops: list[list[Loop]] = [[] for _ in subjects]
    for subject in subjects:
        subject.submit(pods)
    for _ in range(math.ceil(pods / setting.batch)):
        for index, subject in enumerate(subjects):
            loops[index] += subject.scheduler_loops(1) if setting.whole else subject.loops(1)
    for subject in subjects:
        found = subject.pod_count()
        if found != pods:
            raise RuntimeError(f"{subject.kind.name} created {found} of {pods} pods")
        subject.clean_up()
    return loops
