# SPDX-License-Identifier: Apache-2.0
"""The walk of one try below Airflow 3.3: the pod's own name and annotations are the record.

Needs no rights but those on pods that the operator has anyway. A try works out the names of the pods
that earlier tries made and reads them: live, it is followed; over, the next name is tried. Since a
create under a taken name is refused by the server, two tries cannot make two pods.

What it cannot know is a pod that is gone: it may have done its work and been deleted by someone else.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_steadfast.durable_pod import create, lookup, naming
from airflow_steadfast.durable_pod.lookup import Answer
from airflow_steadfast.durable_pod.task import note_of
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")

MOST_GENERATIONS = 50
LOOK_AHEAD = 2
"""How many absent names in a row end the walk: a pod may be gone while its successor runs."""


@dataclass(frozen=True)
class Found:
    """``answer`` as from ``lookup``; ``generation`` is the one to create under where it has no pod."""

    answer: Answer
    generation: int = 0
    fixed_name: bool = field(default=False, kw_only=True)


def find(session: Session, request: Any) -> Found:
    """Look for the pod of an earlier try. A first try asks nothing: the server will refuse a taken name."""
    fixed = not getattr(session.operator, "random_name_suffix", True)
    if session.task.try_number <= 1:
        return Found(Answer(), fixed_name=fixed)
    return walk(session, request, fixed_name=fixed)


def walk(session: Session, request: Any, *, fixed_name: bool) -> Found:
    """Read the names in their order until one answers, or enough of them are free."""
    leftovers: list[Any] = []
    free: list[int] = []
    for generation in range(1 if fixed_name else MOST_GENERATIONS):
        name = request.metadata.name if fixed_name else _name(session, request, generation)
        pod = lookup.read(session, name, request.metadata.namespace)
        answer = None if pod is None else _judge(session, pod, generation)
        if answer is not None and (answer.pod is not None or answer.lost is not None):
            return Found(answer, _first(free, generation + 1), fixed_name=fixed_name)
        if pod is None:
            free.append(generation)
            if len(free) >= LOOK_AHEAD and free[-1] - free[-LOOK_AHEAD] == LOOK_AHEAD - 1:
                break
        elif answer is not None:
            leftovers.extend(answer.leftovers)
    target = 0 if fixed_name else _first(free, MOST_GENERATIONS)
    return Found(Answer(leftovers=tuple(leftovers)), target, fixed_name=fixed_name)


def create_under(session: Session, request: Any, found: Found) -> Any:
    """Create the pod, under the next name where another try or another owner was there first.

    Raises PodNameTakenError where the operator has fixed the name, or no name is left.
    """
    given, generation = request.metadata.name, found.generation
    while True:
        name = given if found.fixed_name else naming.pod_name(given, session.task, generation)
        claim = session.new_identity(
            name, request.metadata.namespace, naming.launch(session.task, generation)
        )
        try:
            return create.create(session, request, claim)[0]
        except create.PodNameTakenError:
            generation += 1
            if found.fixed_name or generation >= MOST_GENERATIONS:
                raise
            log.info("name %s is taken, the next one is tried", name)


def _name(session: Session, request: Any, generation: int) -> str:
    return naming.pod_name(request.metadata.name, session.task, generation)


def _first(free: list[int], otherwise: int) -> int:
    return free[0] if free else otherwise


def _judge(session: Session, pod: Any, generation: int) -> Answer | None:
    """Return what to do with a pod under one of our names; None where it is not ours or over for good."""
    ours = pods.annotation(pod, pods.LAUNCH_ANNOTATION) == naming.launch(session.task, generation)
    if (
        not ours
        or session.task.is_foreign(pod)
        or pods.is_terminating(pod)
        or lookup.is_checked(session, pod)
    ):
        return None
    noted = note_of(pod)
    cleared = lookup.was_cleared(session, noted.get("max_tries"), noted.get("try"))
    return lookup.judge(session, pod, cleared=cleared)
