# SPDX-License-Identifier: Apache-2.0
"""(f) CPU that the patch adds to a worker before its task starts."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from tests.bench.ratios import Estimate, difference
from tests.bench.result import Result, milliseconds
from tests.bench.workers import workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bench.plan import Plan
    from tests.bench.world import World

MOST_SECONDS = 0.1
DAGS = {"plain": "without a Kubernetes operator", "pod": "with a KubernetesPodOperator"}


def run(world: World, plan: Plan, progress: Callable[[str], None]) -> Result:
    """Start workers with and without the patch in turn."""
    result = Result("CPU before a task starts")
    rows: list[list[str]] = []
    with workers(world) as pool:
        for dag_id, text in DAGS.items():
            progress(f"a Dag {text}")
            pool.warm_up(dag_id)
            spent: dict[bool, list[float]] = {False: [], True: []}
            for number in range(plan.worker_rounds):
                for patched in (True, False) if number % 2 else (False, True):
                    spent[patched].append(pool.start(dag_id, patched=patched))
            result.raw[dag_id] = {"without": spent[False], "with": spent[True]}
            added = difference(spent[True], spent[False])
            medians = [milliseconds(statistics.median(spent[patched])) for patched in (False, True)]
            rows.append([text, *medians, _milliseconds(added)])
            result.promise(
                f"A worker of a Dag {text}: at most {MOST_SECONDS * 1e3:.0f} ms of CPU added before the task "
                "starts (upper 95 % bound)",
                _milliseconds(added),
                met=added.upper <= MOST_SECONDS,
            )
    result.table(["Dag", "CPU without the patch", "CPU with the patch", "added"], rows)
    result.say(
        "CPU time of the supervisor and of the task's process, from the start of "
        "`python -m airflow.sdk.execution_time.execute_workload` until the operator's `execute`. The patch "
        "is laid out as the chart mounts it, `patch_kpo` on; its bytecode is compiled anew in each worker, "
        "as on a read-only mount; everything else has its bytecode, as in an image."
    )
    return result


def _milliseconds(added: Estimate) -> str:
    return f"{added.mean * 1e3:.0f} ms ({added.lower * 1e3:.0f} to {added.upper * 1e3:.0f} ms, n = {added.n})"
