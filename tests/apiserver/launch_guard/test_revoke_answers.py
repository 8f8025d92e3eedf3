# SPDX-License-Identifier: Apache-2.0
"""Revoking a pod while the API server fails: no slot is kept, and no pod stays unseen by the watcher."""

from __future__ import annotations

import pytest

from tests.support.fault_proxy import Fault, refusal
from tests.support.worker_pods import beat, play, submit

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]

REVOKED = "airflow_pod_revoked"


@pytest.fixture
def void_pod(proxy, tasks, start_executor, monkeypatch):
    """An executor that has just created the pod of a task instance that was requeued meanwhile."""
    executor = start_executor()
    ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids))
    executor.trigger_tasks(100)
    recheck = executor._steadfast_guard._recheck
    look = recheck._look

    def requeue_and_look():
        tasks.change(ids, state="scheduled")
        return look()

    monkeypatch.setattr(recheck, "_look", requeue_and_look)
    return executor


@pytest.mark.parametrize(
    "fault",
    [
        Fault("drop_reply", forward=True, method="DELETE", path=r"/pods/[^/]+$", count=1),
        Fault("drop_reply", forward=True, method="PATCH", path=r"/pods/[^/]+$", count=1),
        refusal(500, method="DELETE", path=r"/pods/[^/]+$", count=1),
    ],
    ids=["delete_without_an_answer", "mark_without_an_answer", "delete_refused"],
)
def test_a_revoked_pod_frees_its_slot_whatever_was_answered(fault, void_pod, proxy, pods):
    proxy.add(fault)
    beat(void_pod, lambda: not pods())
    beat(void_pod, lambda: not void_pod.running)


@pytest.mark.parametrize("refused", ["DELETE", "PATCH"])
def test_a_pod_that_started_after_a_failed_revocation_is_seen_again(refused, void_pod, proxy, pods, cluster):
    """The mark makes the executor's watcher blind for the pod: its end would never be told."""
    if refused == "DELETE":
        proxy.add(refusal(500, method="DELETE", path=r"/pods/[^/]+$", count=1))
    else:
        proxy.add(Fault("drop_reply", forward=True, method="PATCH", path=r"/pods/[^/]+$", count=1))
    beat(void_pod)
    (pod,) = pods()
    assert pod.metadata.labels[REVOKED] == "True"
    play(cluster, pod, "Running")
    beat(void_pod, lambda: REVOKED not in pods()[0].metadata.labels)
    play(cluster, pods()[0], "Failed", "Error")
    beat(void_pod, lambda: not void_pod.running)
