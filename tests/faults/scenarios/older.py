# SPDX-License-Identifier: Apache-2.0
"""The scenarios whose fault meets other code on an older Airflow, played there too."""

from __future__ import annotations

from dataclasses import fields

from tests.faults.scenarios import copies, database, schedulers  # registers what is played again
from tests.faults.scenarios.airflow2 import FOREVER
from tests.faults.spec import SCENARIOS, Scenario, register

AGAIN: tuple[tuple[str, tuple[str, ...]], ...] = (
    (database.connection_closed.__name__, ("2.11.2",)),
    (database.open_session.__name__, ("2.11.2",)),
    (copies.requeued_by_same_scheduler.__name__, ("2.11.2", "3.0.6")),
    (schedulers.frozen_scheduler.__name__, ("2.11.2", "3.0.6")),
)
"""Names of scenarios, and the versions."""


def _again(scenario: Scenario, airflow: str) -> None:
    facts = {field.name: getattr(scenario, field.name) for field in fields(Scenario)}
    run, config = facts.pop("run"), dict(facts["config"])
    if airflow.startswith("2."):
        config["SCHEDULER__STANDALONE_DAG_PROCESSOR"] = FOREVER["SCHEDULER__STANDALONE_DAG_PROCESSOR"]
    facts.update(
        name=f"{scenario.name}_{airflow.rpartition('.')[0].replace('.', '_')}",
        airflow=airflow,
        config=config,
        short=0,
    )
    register(**facts)(run)


for _name, _versions in AGAIN:
    for _airflow in _versions:
        _again(SCENARIOS[_name], _airflow)
