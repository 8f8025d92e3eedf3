# SPDX-License-Identifier: Apache-2.0
"""What a soak showed, and whether it is what must be: launches, doubled and stale pods, burnt tries. Pure."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from tests.soak.plan import QUEUED_TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tests.soak.airflow_side import Row
    from tests.soak.audit import Pod

STALE_STATUS = frozenset({404, 409, 410})
_GOES_ON = ("defer", "reschedule")  # another launch of the same try is to follow
EXPIRED_STATUS = frozenset({401, 403})


@dataclass
class Launches:
    """Counts of accepted pods by what became of them.

    ``doubled`` are second pods of one launch: those created while an earlier pod of the same task instance
    and try had neither reported its end nor ended nor been deleted, or refused as stale because an earlier
    one had done the work. ``doubled_by_fate`` says what became of the one of the two that did not work
    ("started": both did). ``late`` are those created after their task instance had moved on, that is after
    the commit that gave its row its next id, at most ``latest_by`` seconds after it. The fates:

    - started: the Execution API let the worker run,
    - revoked: its executor marked it as revoked before it had started, and deleted it,
    - deleted: gone before it had started, without that mark,
    - refused_stale: the API said that the task instance has moved on (404, 409),
    - refused_token: the launch token had expired (401, 403) although the pod had not waited long,
    - overdue: the same of a pod that had waited for longer than the queued timeout,
    - unreachable: the API did not answer the worker, or with 5xx however often it asked,
    - unexplained: none of these.
    """

    pods: int = 0
    started: int = 0
    revoked: int = 0
    deleted: int = 0
    refused_stale: int = 0
    refused_token: int = 0
    overdue: int = 0
    unreachable: int = 0
    unexplained: int = 0
    late: int = 0
    late_by_fate: dict[str, int] = field(default_factory=dict)
    latest_by: float = 0.0
    doubled: int = 0
    doubled_by_fate: dict[str, int] = field(default_factory=dict)


@dataclass
class Outcome:
    """Everything that is reported of one soak."""

    task_instances: int
    states: dict[str, int]
    launches: Launches
    tries_made: int
    tries_burnt: int
    occupied_slots: dict[str, int | None]
    creates_by_status: dict[str, int]
    deviations: list[str]

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def fate(pod: Pod) -> str:
    """Say what became of a pod: a field of ``Launches``."""
    if pod.started_at is not None:
        return "started"
    if pod.refused in STALE_STATUS:
        return "refused_stale"
    if pod.refused in EXPIRED_STATUS:
        waited = (pod.ended_at or pod.created_at) - pod.created_at
        return "overdue" if waited > QUEUED_TIMEOUT else "refused_token"
    if pod.unreachable or (pod.refused or 0) >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return "unreachable"
    if pod.refused is None and pod.deleted_at is not None:
        return "revoked" if pod.revoked else "deleted"
    return "unexplained"


def doubled(pods: Sequence[Pod]) -> list[tuple[Pod, Pod]]:
    """Return each second pod of one launch, with the earlier pod of that task instance and try."""
    groups: dict[tuple[str, int], list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda pod: pod.created_at):
        groups[pod.ti_id, pod.try_number].append(pod)
    found = []
    for group in groups.values():
        for number, pod in enumerate(group):
            superfluous = fate(pod) == "refused_stale"
            for before in reversed(group[:number]):
                alive = before.over_at is None or before.over_at > pod.created_at
                done = before.started_at is not None and before.report not in _GOES_ON
                if alive or (superfluous and done):
                    found.append((pod, before))
                    break
    return found


def late(pods: Sequence[Pod], moved_on: Mapping[str, float]) -> list[Pod]:
    """Return the pods created after their task instance had moved on.

    ``moved_on`` says when the row of an id that is history got its next one, and that was committed.
    """
    return [pod for pod in pods if pod.created_at > moved_on.get(pod.ti_id, math.inf)]


def count(pods: Sequence[Pod], moved_on: Mapping[str, float]) -> Launches:
    """Count pods by fate; ``moved_on`` as in ``late``."""
    fates = Counter(fate(pod) for pod in pods)
    twice = doubled(pods)
    behind = late(pods, moved_on)
    by_fate = Counter(_idle_ones_fate(pod, before) for pod, before in twice)
    return Launches(
        pods=len(pods),
        late=len(behind),
        late_by_fate=dict(Counter(fate(pod) for pod in behind)),
        latest_by=round(max((pod.created_at - moved_on[pod.ti_id] for pod in behind), default=0.0), 1),
        doubled=len(twice),
        doubled_by_fate=dict(by_fate),
        **dict(fates),
    )


def _idle_ones_fate(pod: Pod, before: Pod) -> str:
    return fate(before) if pod.started_at is not None else fate(pod)


def burnt_tries(rows: Iterable[Row], pods: Iterable[Pod], cleared: int) -> int:
    """Count tries that neither a worker's report nor a user ended."""
    past = sum(row.try_number - 1 for row in rows)
    return past - cleared - sum(pod.report == "retry" for pod in pods)


def judge(
    rows: Sequence[Row],
    pods: Sequence[Pod],
    creates_by_status: dict[int, int],
    occupied_slots: dict[str, int | None],
    cleared: int = 0,
    moved_on: Mapping[str, float] | None = None,
) -> Outcome:
    """Put together what a soak showed, with a sentence for each thing that must not be.

    ``cleared`` is how many task instances a user cleared, ``moved_on`` is as in ``late``.
    """
    states = Counter(row.state or "none" for row in rows)
    launches = count(pods, moved_on or {})
    return Outcome(
        task_instances=len(rows),
        states=dict(states),
        launches=launches,
        tries_made=sum(row.try_number for row in rows),
        tries_burnt=burnt_tries(rows, pods, cleared),
        occupied_slots=occupied_slots,
        creates_by_status={str(code): number for code, number in sorted(creates_by_status.items())},
        deviations=list(_deviations(rows, states, launches, pods, occupied_slots)),
    )


def too_few(rows: Sequence[Row], planned: int) -> str:
    """Return the sentence for task instances that are not in the database at the end, "" where all are."""
    return f"{planned - len(rows)} task instances are missing" if len(rows) < planned else ""


def _deviations(
    rows: Sequence[Row],
    states: Counter[str],
    launches: Launches,
    pods: Sequence[Pod],
    occupied_slots: dict[str, int | None],
) -> Iterable[str]:
    for state in sorted(set(states) - {"success"}):
        yield f"{states[state]} task instances ended as {state}"
    succeeded = {(row.run_id, row.task_id, row.map_index) for row in rows if row.state == "success"}
    reported = Counter(pod.task for pod in pods if pod.report == "success")
    # an accepted report whose answer was lost counts as one that was sent
    if never := succeeded - {pod.task for pod in pods if pod.reports == "success"}:
        yield f"{len(never)} task instances are successful although no worker said so"
    if again := [task for task, number in reported.items() if number > 1]:
        yield f"{len(again)} task instances were worked through twice"
    yield from _of_launches(launches)
    for name, slots in sorted(occupied_slots.items()):
        if slots is None:
            yield f"scheduler {name} did not say which slots it holds"
        elif slots:
            yield f"scheduler {name} still holds {slots} slots"


def _of_launches(launches: Launches) -> Iterable[str]:
    if both := launches.doubled_by_fate.get("started"):
        yield f"{both} launches had two pods that both worked"
    if turned_away := launches.doubled_by_fate.get("refused_stale"):
        yield f"{turned_away} launches had a second pod that the Execution API had to turn away"
    if behind := launches.late_by_fate.get("started"):
        yield f"{behind} pods that were made after their task instance had moved on worked"
    if launches.refused_token:
        yield f"{launches.refused_token} pods had an expired launch token"
    if launches.unexplained:
        yield f"{launches.unexplained} pods were neither started nor refused, revoked nor deleted"
