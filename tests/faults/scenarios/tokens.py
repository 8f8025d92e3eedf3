# SPDX-License-Identifier: Apache-2.0
"""Queued for so long that the workload's launch token has expired."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from tests.faults.spec import register
from tests.faults.stage import Want
from tests.support.fault_proxy import refusal

if TYPE_CHECKING:
    from tests.faults.outcome import Outcome
    from tests.faults.scheduler import Scheduler
    from tests.faults.stage import Stage

QUEUED_TIMEOUT = 30
CONFIG = {
    "KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES": "-1",
    "SCHEDULER__TASK_QUEUED_TIMEOUT": str(QUEUED_TIMEOUT),
    "API_AUTH__JWT_LEEWAY": "0",
}
SECRET = "AIRFLOW__API_AUTH__JWT_SECRET"


def _queued_for_long(stage: Stage) -> Scheduler:
    stage.dag()
    scheduler = stage.scheduler()
    scheduler.schedule()
    stage.proxy.add(refusal(429, retry_after=1))
    scheduler.heartbeat()
    scheduler.events()
    time.sleep(QUEUED_TIMEOUT + 1)  # a token is good for as long
    stage.proxy.clear()
    return scheduler


@register(
    holes="H23",
    title="queued under 429 until the workload's launch token has expired",
    expected="no worker starts with a dead token: launched with a new one, the task succeeds",
    size=200,
    trials=1,
    config=CONFIG,
)
def expired_token(stage: Stage) -> Outcome:
    _queued_for_long(stage)
    stage.settle(quiet=8)
    return stage.judge(map(Want, stage.rows()))


@register(
    holes="H23",
    title="the same where no new token can be issued (no signing key) until core queues the task again",
    expected="no worker starts with a dead token: one pod, after the requeue, the task succeeds in this try",
    size=200,
    trials=1,
    config=CONFIG,
)
def expired_token_no_key(stage: Stage) -> Outcome:
    scheduler = _queued_for_long(stage)
    secret = os.environ[SECRET]
    os.environ[SECRET] = ""
    scheduler.executor.__dict__.pop("jwt_generator", None)  # made once, with the key that there was
    for _ in range(3):
        scheduler.survives(scheduler.work)
        while stage.workers.play():
            pass
    early = len(stage.audit.created())
    os.environ[SECRET] = secret
    scheduler.survives(scheduler.stuck)
    stage.settle(quiet=8)
    outcome = stage.judge(map(Want, stage.rows()))
    outcome.note("pods created with a dead token", early)
    return outcome
