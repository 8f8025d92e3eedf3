# SPDX-License-Identifier: Apache-2.0
"""What a scenario is, and the register of all of them. Imports nothing of Airflow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.faults.outcome import Outcome
    from tests.faults.stage import Stage

Impl = Literal["upstream", "steadfast"]
IMPLS: tuple[Impl, ...] = ("upstream", "steadfast")


@dataclass(frozen=True)
class Scenario:
    """One fault, what should happen, and how it is played.

    ``run`` plays one trial of ``size`` launches on a stage and returns its outcome; ``trials`` of them make
    the figure of the table. ``config`` are environment variables of the process, set before Airflow is
    imported. ``short`` is the size in the short set, 0 where it is not in it.
    """

    name: str
    holes: str
    title: str
    expected: str
    run: Callable[[Stage], Outcome]
    size: int = 50
    trials: int = 4
    short: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    airflow: str = "3.3.2"
    limit: str = ""
    """What neither executor can help, said in the table."""


SCENARIOS: dict[str, Scenario] = {}
MODULES = (
    "database",
    "rechecks",
    "timing",
    "copies",
    "watcher",
    "cleanup",
    "api",
    "revoking",
    "lifecycle",
    "tokens",
    "schedulers",
    "adoption",
    "airflow2",
    "older",
)
"""Of ``tests.faults.scenarios``, in the order of the table."""


def register(**facts: object) -> Callable[[Callable[[Stage], Outcome]], Callable[[Stage], Outcome]]:
    """Register the decorated function as a scenario of its own name, or of ``name``.

    ``facts`` are Scenario's fields.
    """

    def wrap(run: Callable[[Stage], Outcome]) -> Callable[[Stage], Outcome]:
        name = str(facts.pop("name", run.__name__))
        if name in SCENARIOS:
            raise ValueError(f"two scenarios are called {name!r}")
        SCENARIOS[name] = Scenario(name=name, run=run, **facts)  # type: ignore[arg-type]  # checked by the dataclass
        return run

    return wrap


def load() -> dict[str, Scenario]:
    """Import every module of scenarios; returns the register, in the order of the table."""
    import importlib

    for module in MODULES:
        importlib.import_module(f"tests.faults.scenarios.{module}")
    return SCENARIOS
