# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from kubernetes.client import models as k8s

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
def test_a_pod_carries_the_patch_by_mount_and_path(worker, carries):
    assert worker_pod.carries_patch(worker, ROOT) is carries


def test_the_first_pod_without_it_is_logged(caplog, monkeypatch):
    monkeypatch.setattr(worker_pod, "_warned", set())
    for _ in range(2):
        worker_pod.warn_once(pod(mount=None), ROOT)
    (record,) = caplog.records
    assert "worker" in record.getMessage()


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


def test_a_mounted_configmap_is_known_by_its_mount_and_not_by_what_its_links_point_to(
    monkeypatch, tmp_path
) -> None:
    dated = tmp_path / "..2026_12_01" / "airflow_steadfast"
    dated.mkdir(parents=True)
    (dated / "__init__.py").touch()
    (tmp_path / "airflow_steadfast").symlink_to(dated)
    monkeypatch.setattr(
        worker_pod.airflow_steadfast, "__file__", str(tmp_path / "airflow_steadfast" / "__init__.py")
    )
    assert worker_pod.mounted_root() == PurePosixPath(tmp_path)
