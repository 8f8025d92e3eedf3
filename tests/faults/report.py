# SPDX-License-Identifier: Apache-2.0
"""docs/faults.md: what each scenario showed, upstream and ours side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.limits import LIMITS
from tests.faults.runner import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.faults.outcome import Outcome
    from tests.faults.spec import Scenario
    from tests.faults.state import State

TARGET = ROOT / "docs" / "faults.md"

_HEAD = """\
# Faults: upstream and the guarded executor side by side

<!-- written by `make faults` from tests/faults; do not edit -->

Each scenario runs twice, in processes of their own: with the provider's own executor (provider 10.25.0, no
part of Steadfast installed) and with the guarded one. Real parts: a kube-apiserver with etcd behind a proxy
that plays the fault, PostgreSQL 15, Airflow's own scheduler methods (scheduling, adoption, stuck-in-queued,
executor events) and Execution API with its token check. There is no kubelet and no container: the test
plays what runs in a pod, by the same calls as Airflow's worker and through the pod's status.

- A *launch* is one order to run a task instance in a pod: task instance id, try, `queued_dttm`.
- *lost*: should have got a pod and got none. *doubled*: more pods than the launch should get, one for work
  that had moved on, or one that nobody asked for (it counts as a launch of its own). *wrong*: not lost, but
  another end than it should have: the task's state, a slot that is never freed, a pod that stays, something
  that is not reported. Pods are counted from the API server's audit log.
- *exits*: exceptions that left the executor and end a scheduler process.
- *95 % bound*: the share of launches that may still go wrong (Clopper-Pearson, one-sided; 0 of 200 gives
  1.5 %). Launches of one trial share its fault, so it says nothing of faults that were not played.
- A scheduler that is frozen is one whose loop is not called; one that dies loses its processes at once.
"""

_COLUMNS = (
    "scenario",
    "hole, reports",
    "what should happen",
    "upstream",
    "guarded",
    "n",
    "95 % bound, guarded",
)


def write(known: Mapping[str, Scenario], kept: State) -> None:
    """Write the page from the results that there are; a scenario without one says so."""
    TARGET.write_text("".join(_page(known, kept)), encoding="utf-8")


def _page(known: Mapping[str, Scenario], kept: State) -> Iterator[str]:
    yield _HEAD
    yield f"\nAll runs, one after the other: {kept.seconds() / 60:.0f} minutes.\n"
    yield f"\n| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}\n"
    for scenario in known.values():
        yield _row(scenario, kept)
    limits = [scenario for scenario in known.values() if scenario.limit]
    yield "\n## Where core decides\n\n"
    for scenario in limits:
        yield f"- `{scenario.name}`: {scenario.limit}.\n"
    yield "\n## Not played here\n\n| hole or report | why, and where it is shown |\n|---|---|\n"
    for what, why in LIMITS:
        yield f"| {what} | {why} |\n"


def _row(scenario: Scenario, kept: State) -> str:
    theirs, ours = (kept.get(scenario.name, impl) for impl in ("upstream", "steadfast"))
    where = "" if scenario.airflow == "3.3.2" else f" (Airflow {scenario.airflow})"
    cells = [
        f"`{scenario.name}`: {scenario.title}{where}",
        scenario.holes,
        scenario.expected,
        _told(theirs.outcome if theirs else None),
        _told(ours.outcome if ours else None),
        str(ours.outcome.launches) if ours else "",
        f"{100 * ours.outcome.upper_bound:.1f} %" if ours else "",
    ]
    return f"| {' | '.join(cells)} |\n"


def _told(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not run"
    counts = (("lost", outcome.lost), ("doubled", outcome.doubled), ("wrong", outcome.wrong))
    parts = [f"**{number} {name}**" for name, number in counts if number]
    if outcome.exits:
        parts.append(f"**{outcome.exits} exits**")
    notes = [f"{name}: {value:g}" for name, value in outcome.notes.items() if value]
    text = ", ".join(parts) or "as it should"
    return f"{text} ({'; '.join(notes)})" if notes else text
