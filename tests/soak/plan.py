# SPDX-License-Identifier: Apache-2.0
"""What a soak does, decided beforehand from its seed: its size, its faults, each pod's worker."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

IMPLS = ("steadfast", "upstream")
SCHEDULERS = ("a", "b")
PER_RUN = 100
"""Task instances of one run of the Dag."""
HEALTH_THRESHOLD = 30
"""Seconds after which a scheduler without a heartbeat counts as dead (scheduler_health_check_threshold)."""
QUEUED_TIMEOUT = 120
"""Seconds after which a queued task instance is launched again (task_queued_timeout)."""

Kind = Literal[
    "kill",
    "freeze",
    "long_freeze",
    "database_restart",
    "quota",
    "api_freeze",
    "lost_reply",
    "throttle",
    "errors",
    "clear",
]
_WEIGHTS: dict[Kind, int] = {
    "kill": 4,
    "freeze": 3,
    "long_freeze": 3,
    "database_restart": 2,
    "quota": 3,
    "api_freeze": 2,
    "lost_reply": 3,
    "throttle": 2,
    "errors": 2,
    "clear": 4,
}


@dataclass(frozen=True)
class Fault:
    """One fault: ``at`` seconds after the first pod at the earliest, for ``seconds``.

    ``target`` is a scheduler's name.
    """

    at: float
    kind: Kind
    seconds: float = 0.0
    target: str = ""

    def __str__(self) -> str:
        about = f" of scheduler {self.target}" if self.target else ""
        lasting = f" for {self.seconds:.0f} s" if self.seconds else ""
        return f"{self.kind}{about}{lasting}"


@dataclass(frozen=True)
class Plan:
    """One soak. ``faults`` are in order of time and end, at the latest, when nearly all work is done.

    ``patience`` bounds the time to the end after the last one.
    """

    impl: str
    seed: int
    task_instances: int
    scenario: str = "soak"
    faults: tuple[Fault, ...] = field(default=())
    patience: float = 900.0
    health_threshold: int = HEALTH_THRESHOLD
    queued_timeout: int = QUEUED_TIMEOUT

    @property
    def runs(self) -> int:
        return max(1, round(self.task_instances / PER_RUN))

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def soak(impl: str, seed: int, task_instances: int, seconds: float) -> Plan:
    """Plan random faults for up to ``seconds``: one seed gives both implementations the same ones."""
    chance = random.Random(f"faults {seed}")  # noqa: S311 - a plan, not a secret
    faults, at = [], 3.0
    while at < seconds:
        faults.append(_fault(chance, at))
        at += chance.uniform(7, 20)
    return Plan(impl, seed, task_instances, faults=tuple(faults))


def outage(impl: str, seed: int, task_instances: int, seconds: float = 90.0) -> Plan:
    """Plan one long stop of the database while task instances are queued and running."""
    chance = random.Random(f"outage {seed}")  # noqa: S311 - a plan, not a secret
    return Plan(
        impl,
        seed,
        task_instances,
        scenario="outage",
        faults=(Fault(round(chance.uniform(8, 15), 1), "database_restart", seconds),),
    )


def _fault(chance: random.Random, at: float) -> Fault:
    kind = chance.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
    target = chance.choice(SCHEDULERS) if kind in ("kill", "freeze", "long_freeze") else ""
    lasting = {
        "kill": (0, 0),
        "freeze": (2, HEALTH_THRESHOLD - 4),
        "long_freeze": (HEALTH_THRESHOLD + 6, HEALTH_THRESHOLD + 25),
        "database_restart": (0.2, 6),
        "quota": (4, 15),
        "api_freeze": (2, 9),
        "lost_reply": (3, 8),
        "throttle": (3, 8),
        "errors": (3, 8),
        "clear": (0, 0),
    }[kind]
    return Fault(round(at, 1), kind, round(chance.uniform(*lasting), 1), target)


@dataclass(frozen=True)
class Work:
    """What one launch of a task instance looks like: seconds until it starts, and of its work."""

    pending: float
    working: float


def work(seed: int, launch: str) -> Work:
    """Plan a launch, named by its task instance, try and number: most are quick, some are slow to start."""
    chance = random.Random(f"{seed} {launch}")  # noqa: S311 - a plan, not a secret
    draw = chance.random()
    if draw < 0.01:  # the pod finds no node until after its scheduler has given it up
        pending = QUEUED_TIMEOUT + chance.uniform(30, 50)
    elif draw < 0.05:
        pending = chance.uniform(3, 15)
    else:
        pending = chance.uniform(0.02, 0.8)
    working = chance.uniform(3, 12) if chance.random() < 0.04 else chance.uniform(0, 0.5)
    return Work(round(pending, 3), round(working, 3))
