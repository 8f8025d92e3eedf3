# SPDX-License-Identifier: Apache-2.0
"""A provider whose seams have another shape: its pods are made and their ends told as without a guard.

Each method works as before and takes whatever it is given, so that nothing says what it counts on.
"""

from __future__ import annotations

import pytest
from airflow.providers.cncf.kubernetes.executors import kubernetes_executor_utils
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor
from airflow.providers.cncf.kubernetes.executors.kubernetes_executor_utils import AirflowKubernetesScheduler

from airflow_steadfast import capabilities, signals
from airflow_steadfast.kube.pods import LAUNCH_ANNOTATION
from airflow_steadfast.launch_guard import naming, seams
from airflow_steadfast.launch_guard.queue import GuardedQueue
from tests.support.worker_pods import beat, play, states, submit, task_ids

pytestmark = [pytest.mark.apiserver, pytest.mark.airflow, pytest.mark.postgres]

# without an argument there is no other shape
PLAIN = {name for name, parameters in capabilities.EXECUTOR_SEAMS.items() if parameters == ("self",)}
CHANGED = [
    *((KubernetesExecutor, name) for name in capabilities.EXECUTOR_SEAMS if name not in PLAIN),
    *(
        (KubernetesExecutor, name)
        for name in capabilities.there(KubernetesExecutor, {"_should_create_pod_for_job": ()})
    ),
    *((AirflowKubernetesScheduler, name) for name in seams.LAUNCHER),
    *(
        (AirflowKubernetesScheduler, name)
        for name in capabilities.there(AirflowKubernetesScheduler, seams.LATER_LAUNCHER)
    ),
    (kubernetes_executor_utils, naming.SEAM),
]


def of_another_shape(native):
    def other(*given, **named):
        return native(*given, **named)

    return other


@pytest.mark.parametrize(
    ("owner", "name"), CHANGED, ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_seam_of_another_shape_leaves_the_executor_to_the_provider(
    owner, name, tasks, start_executor, pods, cluster, monkeypatch
):
    monkeypatch.setattr(owner, name, of_another_shape(getattr(owner, name)))
    executor = start_executor()
    assert not isinstance(executor.task_queue, GuardedQueue)
    for mode in signals.catalogue.MODES:
        assert not signals.totals().value("steadfast_patch_active", component="launch_guard", mode=mode)
    ids = tasks.run()[:2]
    submit(executor, tasks.queue(ids))
    beat(executor, lambda: len(pods()) == 2)
    assert task_ids(pods()) == ["task_0", "task_1"]
    assert not any(LAUNCH_ANNOTATION in pod.metadata.annotations for pod in pods())
    first = next(pod for pod in pods() if pod.metadata.annotations["task_id"] == "task_0")
    tasks.change(ids[:1], state="success")
    play(cluster, first, "Succeeded")
    beat(executor, lambda: states(executor) != {})
    assert states(executor) == {"task_0": "success"}


def test_a_method_with_one_parameter_more_is_called_as_the_provider_calls_it(
    tasks, start_executor, pods, monkeypatch
):
    """The guard's own method of that name does not know the parameter."""
    native, told = KubernetesExecutor.adopt_launched_task, []

    def adopt_launched_task(self, kube_client, pod, tis_to_flush_by_key, told_too):
        told.append(told_too)
        return native(self, kube_client, pod, tis_to_flush_by_key)

    monkeypatch.setattr(KubernetesExecutor, "adopt_launched_task", adopt_launched_task)
    executor = start_executor()
    assert not isinstance(executor.task_queue, GuardedQueue)
    ids = tasks.run()[:1]
    submit(executor, tasks.queue(ids))
    beat(executor, lambda: len(pods()) == 1)
    (pod,) = pods()
    executor.adopt_launched_task(executor.kube_client, pod, {}, "more")
    assert told == ["more"]
