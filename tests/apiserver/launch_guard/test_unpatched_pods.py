# SPDX-License-Identifier: Apache-2.0
"""Pods without the patch are given it or counted, in either mode and wherever a provider builds them."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import worker_pod
from tests.support.worker_pods import set_quota, states, submit

pytestmark = [
    pytest.mark.apiserver,
    pytest.mark.airflow,
    pytest.mark.postgres,
    pytest.mark.usefixtures("concurrent", "mounted_patch"),
]

ROOT = PurePosixPath("/opt/steadfast")
MOUNTED = """
apiVersion: v1
kind: Pod
metadata: {name: template}
spec:
  restartPolicy: Never
  containers:
    - name: base
      image: "docker.io/apache/airflow:3.3.2"
      env: [{name: PYTHONPATH, value: /opt/steadfast}]
      volumeMounts: [{name: code, mountPath: /opt/steadfast}]
  volumes: [{name: code, configMap: {name: code}}]
"""


def unpatched():
    return signals.totals().value("steadfast_worker_pods_unpatched_total")


@pytest.fixture
def mounted_patch(monkeypatch):
    """The executor runs from a mounted copy of the patch, as the chart installs it."""
    monkeypatch.setattr(worker_pod, "mounted_root", lambda: ROOT)


@pytest.fixture(params=["enforce", "observe"])
def mode(request, monkeypatch):
    monkeypatch.setenv("AIRFLOW__STEADFAST__LAUNCH_GUARD", request.param)
    return request.param


@pytest.fixture
def mounted_template(monkeypatch, tmp_path):
    """The executor's default template carries the patch; returns the path of one that does not."""
    (tmp_path / "mounted.yaml").write_text(MOUNTED)
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__POD_TEMPLATE_FILE", str(tmp_path / "mounted.yaml"))
    return str(tmp_path / "template.yaml")


@pytest.mark.parametrize("inject", ["auto", "off"])
def test_a_pod_of_another_template_is_given_the_patch_or_counted(
    inject, mode, mounted_template, tasks, start_executor, pods, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__STEADFAST__INJECT", inject)
    executor = start_executor()
    (order,) = tasks.queue(tasks.run()[:1])
    assert Path(mounted_template).exists()
    order.ti.executor_config = {"pod_template_file": mounted_template}
    submit(executor, [order])
    executor.heartbeat()
    (pod,) = pods()
    assert worker_pod.carries_patch(pod, ROOT) is (inject == "auto")
    assert unpatched() == (0 if inject == "auto" else 1)
    assert ("steadfast/launch" in pod.metadata.annotations) is (mode == "enforce")


@pytest.mark.usefixtures("mode")
@pytest.mark.parametrize("mounted", [True, False])
def test_pods_of_a_template_without_the_patch_are_counted_when_created(
    mounted, tasks, start_executor, pods, cluster, namespace, request
):
    if mounted:
        request.getfixturevalue("mounted_template")
    executor = start_executor()
    ids = tasks.run()
    submit(executor, tasks.queue(ids[:2]))
    set_quota(cluster, namespace, 0)
    executor.heartbeat()
    assert unpatched() == 0
    set_quota(cluster, namespace, 2)
    executor.heartbeat()
    assert len(pods()) == 2
    assert unpatched() == (0 if mounted else 2)


def test_a_pod_that_was_refused_for_good_is_not_counted(
    mode, tasks, start_executor, pods, cluster, namespace, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__KUBERNETES_EXECUTOR__TASK_PUBLISH_MAX_RETRIES", "0")
    monkeypatch.setenv("AIRFLOW__STEADFAST__GUARD_CREATE_RETRY", "0")
    executor = start_executor()
    set_quota(cluster, namespace, 1)
    submit(executor, tasks.queue(tasks.run()[:3]))
    executor.heartbeat()
    assert len(pods()) == 1
    assert sorted(states(executor).values()) == ["failed", "failed"], mode
    assert unpatched() == 1
