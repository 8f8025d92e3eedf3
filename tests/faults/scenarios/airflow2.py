# SPDX-License-Identifier: Apache-2.0
"""What is other on Airflow 2.11: workloads are command lines that carry neither id nor token."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from tests.faults.outcome import Outcome
from tests.faults.spec import register
from tests.support.fault_proxy import refusal

if TYPE_CHECKING:
    from tests.faults.stage import Stage

AIRFLOW = "2.11.2"
FOREVER = {
    "KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES": "-1",
    "SCHEDULER__STANDALONE_DAG_PROCESSOR": "True",
}


@register(
    holes="H10, #69760",
    title="tasks cleared while they are queued under 429",
    expected="no pod for the old try, exactly one for the new one",
    size=200,
    trials=1,
    config=FOREVER,
    airflow=AIRFLOW,
)
def command_cleared_while_queued(stage: Stage) -> Outcome:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    old = stage.rows()
    stage.proxy.add(refusal(429, retry_after=1))
    scheduler.heartbeat()
    scheduler.events()
    stage.clear_rows(old)
    scheduler.schedule()
    assert all(row.try_number == 2 for row in stage.rows()), "a clear did not lead to a second try"
    stage.proxy.clear()
    time.sleep(1.1)  # the Retry-After of the 429 (1 s) that the executor waits out
    stage.settle(quiet=8)
    return stage.judge_now(old)


@register(
    holes="H12, #66396",
    title="completed pods of a scheduler that is alive, seen by a second one",
    expected="the second one leaves them alone",
    size=200,
    trials=1,
    config={**FOREVER, "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "0"},
    airflow=AIRFLOW,
)
def completed_pods_of_another(stage: Stage) -> Outcome:
    stage.dag()
    first = stage.scheduler()
    first.schedule()
    first.heartbeat()
    first.beat()
    stage.workers.play()
    owners = _owners(stage)
    second = stage.scheduler()
    second.beat()
    second.heartbeat()
    after = _owners(stage)
    outcome = Outcome(exits=sum(one.exits for one in stage.schedulers))
    for name, owner in owners.items():
        outcome.count(f"{name}: owner {owner}, now {after.get(name)}", wrong=after.get(name) != owner)
    outcome.note("PATCH requests", stage.audit_verbs()["patch"])
    return outcome


def _owners(stage: Stage) -> dict[str, str]:
    """The scheduler's job id that each pod is labelled with."""
    return {pod["metadata"]["name"]: pod["metadata"]["labels"]["airflow-worker"] for pod in stage.pods.all()}
