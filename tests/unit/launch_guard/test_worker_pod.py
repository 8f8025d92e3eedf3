# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from kubernetes.client import models as k8s

from airflow_steadfast import signals
from airflow_steadfast.launch_guard import worker_pod

ROOT = PurePosixPath("/opt/steadfast")


def pod(mount="/opt/steadfast", path="/opt/steadfast", **container):
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(name="worker"),
        spec=k8s.V1PodSpec(
            containers=[
                k8s.V1Container(
                    name="base",
                    volume_mounts=[k8s.V1VolumeMount(name="code", mount_path=mount)] if mount else None,
                    env=[k8s.V1EnvVar(name="PYTHONPATH", value=path)] if path else None,
                    **container,
                )
            ]
        ),
    )


FROM_CONFIG = [k8s.V1EnvFromSource(config_map_ref=k8s.V1ConfigMapEnvSource(name="env"))]


@pytest.mark.parametrize(
    ("worker", "carries"),
    [
        (pod(), True),
        (pod(path="/other:/opt/steadfast/"), True),
        (pod(mount="/opt"), True),
        (pod(path=None, env_from=FROM_CONFIG), True),
        (pod(mount=None), False),
        (pod(mount="/opt/steadfast-old"), False),
        (pod(path="/other"), False),
        (pod(path=None), False),
    ],
)
def test_a_pod_carries_the_patch_by_mount_and_path(worker, carries, monkeypatch):
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    assert worker_pod.carries_patch(worker, ROOT) is carries
    worker_pod.look(worker, ROOT)
    assert signals.totals().value("steadfast_worker_pods_unpatched_total") == (not carries)


def test_a_patch_in_the_image_is_not_looked_for(monkeypatch):
    import sys

    monkeypatch.setattr(
        worker_pod.airflow_steadfast,
        "__file__",
        f"{sys.prefix}/lib/site-packages/airflow_steadfast/__init__.py",
    )
    assert worker_pod.mounted_root() is None
    monkeypatch.setattr(
        worker_pod.airflow_steadfast, "__file__", "/opt/steadfast/airflow_steadfast/__init__.py"
    )
    assert worker_pod.mounted_root() == ROOT
