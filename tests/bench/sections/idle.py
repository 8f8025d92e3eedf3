# SPDX-License-Identifier: Apache-2.0
"""(e) What a loop with nothing to launch asks of the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.bench import environments
from tests.bench.result import Result, milliseconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.plan import Plan
    from tests.bench.world import Statements, World


def run(world: World, plan: Plan, progress: Callable[[str], None]) -> Result:
    """Count all statements of loops without a queued task, with nothing and with pods running."""
    result = Result("An idle loop")
    rows: list[list[str]] = []
    ours = 0
    for kind in (environments.native(), environments.steadfast()):
        progress(kind.name)
        with world.subject(kind, rows=100) as subject:
            subject.order("configure", batch=16)
            subject.submit(16)
            subject.loops(3)  # the pods are created, the check after creation has been made
            for name in ("16 tasks running", "nothing running"):
                if name == "nothing running":
                    subject.clean_up()
                counted: list[Statements] = []
                with subject.counted(counted):
                    times = subject.loops(plan.idle_loops)
                spent = sum(loop.total for loop in times) / len(times)
                rows.append([kind.name, name, str(len(times)), str(counted[0].all), milliseconds(spent)])
                ours += counted[0].all if kind.guarded else 0
    result.table(["implementation", "meanwhile", "loops", "statements, all kinds", "a loop"], rows)
    result.promise("An idle loop makes no statement", f"{ours} in {2 * plan.idle_loops} loops", met=ours == 0)
    result.raw = {"rows": rows}
    return result
