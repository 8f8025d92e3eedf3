# SPDX-License-Identifier: Apache-2.0
"""Writes ``docs/performance.md`` from the sections' results."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from tests.bench.environments import WITHOUT_CHECK
from tests.support.pairs import MAIN_PAIR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.bench.plan import Plan
    from tests.bench.result import Result

_HEAD = """\
# Performance of the launch guard

Written by `make bench`. Every figure is of real parts: Airflow, PostgreSQL, a kube-apiserver with etcd (no
nodes: pods stay pending). What is compared ran in turn, round by round, so that what the machine did besides
weighs on all alike; so it is the ratios that carry over to another machine, not the times.

Airflow {airflow} with provider {provider} (with its own check, and with Steadfast) and {without} (the last
one without a check); Python {python}, {cores} cores, {machine}. Rounds: `tests/bench/plan.py`{quick}.
Bounds are one-sided, of 95 %, by Student's t over rounds.

## Promises

| | promise | measured |
|---|---|---|
{promises}
"""


def page(plan: Plan, results: dict[str, Result], missing: Sequence[str] = ()) -> str:
    """Return the page's text; ``missing`` are the sections without a result of this code."""
    promises = [
        f"| {'met' if promise.met else '**not met**'} | {promise.text} | {promise.found} |"
        for result in results.values()
        for promise in result.promises
    ]
    promises += [f"| **not measured** | section {name} | |" for name in missing]
    head = _HEAD.format(
        airflow=MAIN_PAIR.airflow,
        provider=MAIN_PAIR.provider,
        without=WITHOUT_CHECK.provider,
        python=platform.python_version(),
        cores=os.cpu_count(),
        machine=platform.machine(),
        quick="" if plan.name == "full" else f" (**the {plan.name} plan: a look, no proof**)",
        promises="\n".join(promises),
    )
    sections = [
        "\n".join(
            [
                f"## {result.title}",
                *result.lines,
                "",
                f"Took {result.seconds:.0f} s; load average {result.load}.",
            ]
        )
        for result in results.values()
    ]
    return "\n\n".join([head.rstrip(), *sections]) + "\n"


def summary(results: dict[str, Result]) -> str:
    """Return the promises for a terminal."""
    return "\n".join(
        f"{'met    ' if promise.met else 'NOT MET'}  {promise.text}: {promise.found}"
        for result in results.values()
        for promise in result.promises
    )
