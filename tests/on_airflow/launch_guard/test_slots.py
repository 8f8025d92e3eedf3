# SPDX-License-Identifier: Apache-2.0
"""A task instance whose executor_config is wrong fails, and its slot is free again (report #67643)."""

from __future__ import annotations

from importlib.metadata import version

import pytest
from packaging.version import Version

from tests.support.airflow_lines import CommandOrder, submit

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

LEAKS = Version(version("apache-airflow-providers-cncf-kubernetes")) < Version("10.25.0")
WRONG = {"pod_override": "this is no pod"}


def with_config(order, config):
    if isinstance(order, CommandOrder):
        order.ti.executor_config = config
        return order
    return order.model_copy(update={"ti": order.ti.model_copy(update={"executor_config": config})})


def loops(executor, orders):
    submit(executor, orders)
    for _ in range(3):
        executor.heartbeat()
    failed = [
        key.task_id for key, (state, _) in executor.get_event_buffer().items() if "failed" in str(state)
    ]
    return failed, sorted(key.task_id for key in executor.running)


def test_the_slot_is_free_after_the_failure(tasks, start_executor):
    good, bad = tasks.queue(tasks.run()[:2])
    assert loops(start_executor(), [good, with_config(bad, WRONG)]) == (["task_1"], ["task_0"])


def test_upstream_keeps_the_slot_before_provider_10_25(tasks, start_executor):
    good, bad = tasks.queue(tasks.run()[:2])
    failed, running = loops(start_executor(stock=True), [good, with_config(bad, WRONG)])
    assert failed == ["task_1"]
    assert running == (["task_0", "task_1"] if LEAKS else ["task_0"])
