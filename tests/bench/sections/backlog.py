# SPDX-License-Identifier: Apache-2.0
"""(b) Loops until a fresh launch gets its pod behind many stale ones, at creation batch 1."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.bench import environments
from tests.bench.result import Result

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.plan import Plan
    from tests.bench.world import Remote, World


def run(world: World, plan: Plan, progress: Callable[[str], None]) -> Result:
    """Queue stale launches and one fresh behind them, run loops until a pod is created."""
    result = Result("A fresh launch behind stale ones")
    kinds = (environments.native(), environments.steadfast())
    loops: dict[str, list[int]] = {}
    with contextlib.ExitStack() as stack:
        rows = (plan.backlog_rounds + 1) * (plan.stale + 2)
        for subject in [stack.enter_context(world.subject(kind, rows=rows)) for kind in kinds]:
            subject.order("configure", batch=1)
            for number in range(plan.backlog_rounds):
                progress(f"{subject.kind.name}, round {number + 1} of {plan.backlog_rounds}")
                loops.setdefault(subject.kind.name, []).append(_trial(subject, plan.stale))
    ours = loops[kinds[1].name]
    result.table(
        ["implementation", f"loops until the fresh pod, behind {plan.stale} stale launches", "rounds"],
        [[name, f"{min(counts)} to {max(counts)}", str(len(counts))] for name, counts in loops.items()],
    )
    result.say("Creation batch 1. A scheduler loop takes a second or more where nothing else is to be done.")
    result.promise(
        f"A fresh launch behind {plan.stale} stale ones gets its pod in the first loop",
        f"after {max(ours)} at most",
        met=max(ours) == 1,
    )
    result.raw = dict(loops)
    return result


def _trial(subject: Remote, stale: int) -> int:
    subject.order("change", ids=subject.submit(stale), state="success")
    subject.submit(1)
    count: int = subject.order("until_created", limit=stale + 10)
    if subject.pod_count() != 1:
        raise RuntimeError(f"{subject.kind.name} created {subject.pod_count()} pods, not the fresh one alone")
    subject.clean_up()
    return count
