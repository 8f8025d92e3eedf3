# SPDX-License-Identifier: Apache-2.0
"""Whatever fails, a key that the executor counts as running has a pod or a queued job; none has two pods."""

from __future__ import annotations

import random

import pytest
from kubernetes.client import models as k8s

from tests.support.fault_proxy import Fault, refusal
from tests.support.worker_pods import beat, states, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]

ONE_POD = r"/pods/[^/]+$"


class SurpriseError(Exception):
    """Something that no executor's loop expects."""


def some_fault(chance):
    status = chance.choice([403, 429, 500, 502, 503, 504])
    return chance.choice(
        [
            Fault("drop_reply", forward=True, count=1),
            Fault("reset", count=1),
            refusal(status, retry_after=0, count=1),
            refusal(504, forward=True, count=1),
            Fault("reset", method="GET", path=ONE_POD, count=1),
            refusal(500, method="GET", path=ONE_POD, count=1),
            refusal(500, method="DELETE", path=ONE_POD, count=1),
            refusal(409, method="PATCH", path=ONE_POD, count=1),
        ]
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("budget", ["0", "3600"], ids=["executors_rule", "budget"])
def test_books_and_pods_agree_after_every_loop(
    seed, budget, concurrent, proxy, tasks, start_executor, pods, monkeypatch
):
    chance = random.Random(seed)  # noqa: S311 - a seeded choice of faults
    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_CREATE_RETRY", budget)
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES", "2")
    executor = start_executor()
    native = executor.kube_client.api_client.sanitize_for_serialization

    def sanitize(pod):
        if isinstance(pod, k8s.V1Pod) and chance.random() < 0.03:
            raise SurpriseError
        return native(pod)

    monkeypatch.setattr(executor.kube_client.api_client, "sanitize_for_serialization", sanitize)
    ids = tasks.run()
    failed = set()
    for _ in range(6):
        for _ in range(6):
            proxy.add(some_fault(chance))
        busy = failed | {key.task_id for key in executor.running} | set(task_ids(pods()))
        idle = [one for number, one in enumerate(ids) if f"task_{number}" not in busy]
        submit(executor, tasks.queue(idle))
        executor.trigger_tasks(100)
        if chance.random() < 0.5 and idle:
            tasks.change(idle[:1], state="scheduled")
        beat(executor)
        with_pod = task_ids(pods())
        queued = [entry.job.key.task_id for entry in executor.task_queue._line]
        assert len(with_pod) == len(set(with_pod)), with_pod
        for key in executor.running:
            assert key.task_id in with_pod or key.task_id in queued, key.task_id
        for task_id in queued:
            assert task_id in {key.task_id for key in executor.running}
        failed |= set(states(executor))
        executor.event_buffer.clear()
    proxy.clear()
    beat(executor, lambda: executor.task_queue.qsize() == 0)
    assert {key.task_id for key in executor.running} <= set(task_ids(pods()))
