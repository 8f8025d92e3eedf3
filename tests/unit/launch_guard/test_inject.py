# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
from pathlib import PurePosixPath

import pytest
from kubernetes.client import models as k8s

from airflow_steadfast.launch_guard import worker_pod
from airflow_steadfast.launch_guard.inject import SECOND_NAME, Injection, Wardrobe

ROOT = PurePosixPath("/opt/steadfast")
CODE = k8s.V1Volume(name="code", config_map=k8s.V1ConfigMapVolumeSource(name="code-1"))


def pod(*, volumes=(), mounts=(), path=None, namespace="workers", **container):
    return k8s.V1Pod(
        metadata=k8s.V1ObjectMeta(name="worker", namespace=namespace),
        spec=k8s.V1PodSpec(
            volumes=list(volumes) or None,
            containers=[
                k8s.V1Container(
                    name="base",
                    volume_mounts=[k8s.V1VolumeMount(name=name, mount_path=at) for name, at in mounts]
                    or None,
                    env=[k8s.V1EnvVar(name="PYTHONPATH", value=path)] if path else None,
                    **container,
                )
            ],
        ),
    )


WHOLE = pod(volumes=[CODE], mounts=[("code", "/opt/steadfast")], path="/opt/steadfast:/opt/own")


@pytest.fixture
def injection(tmp_path):
    path = tmp_path / "template.yaml"
    path.touch()
    return Injection(lambda _: copy.deepcopy(WHOLE), str(path), "workers", ROOT)


def paths(one):
    return [variable.value for variable in one.spec.containers[0].env or () if variable.name == "PYTHONPATH"]


def test_a_bare_pod_is_given_volume_mount_and_path(injection):
    bare = pod()
    assert injection.apply(bare)
    assert worker_pod.carries_patch(bare, ROOT)
    assert bare.spec.volumes == [CODE]
    assert paths(bare) == ["/opt/steadfast"]


@pytest.mark.parametrize("path", ["/own", "/own:/opt/steadfast-old"])
def test_a_path_of_its_own_is_kept_behind(injection, path):
    one = pod(path=path)
    assert injection.apply(one)
    assert paths(one) == [f"/opt/steadfast:{path}"]


@pytest.mark.parametrize(
    ("image", "path", "given"),
    [
        ("airflow:1", None, True),
        ("own:1", None, False),  # its ENV PYTHONPATH, if it has one, would be replaced
        ("own:1", "/own", True),
    ],
)
@pytest.mark.parametrize("configured", ["airflow:1", None], ids=["in_the_configuration", "in_the_template"])
def test_the_path_of_another_image_is_not_replaced(configured, image, path, given, tmp_path):
    whole = copy.deepcopy(WHOLE)
    whole.spec.containers[0].image = "airflow:0" if configured else "airflow:1"
    (tmp_path / "template.yaml").touch()
    injection = Injection(lambda _: whole, str(tmp_path / "template.yaml"), "workers", ROOT, configured)
    one = pod(path=path, image=image)
    before = copy.deepcopy(one)
    assert injection.apply(one) is given
    assert (one == before) is not given


def test_other_volumes_mounts_and_variables_stay(injection):
    one = pod(volumes=[k8s.V1Volume(name="data")], mounts=[("data", "/data")])
    one.spec.containers[0].env = [k8s.V1EnvVar(name="A", value="b")]
    assert injection.apply(one)
    assert [volume.name for volume in one.spec.volumes] == ["data", "code"]
    assert [mount.name for mount in one.spec.containers[0].volume_mounts] == ["data", "code"]
    assert [variable.name for variable in one.spec.containers[0].env] == ["A", "PYTHONPATH"]


def test_a_volume_of_the_same_name_is_told_apart_by_what_it_is(injection):
    same = pod(volumes=[copy.deepcopy(CODE)])
    assert injection.apply(same)
    assert len(same.spec.volumes) == 1
    other = pod(volumes=[k8s.V1Volume(name="code", empty_dir=k8s.V1EmptyDirVolumeSource())])
    assert injection.apply(other)
    assert [volume.name for volume in other.spec.volumes] == ["code", SECOND_NAME]
    assert other.spec.containers[0].volume_mounts[0].name == SECOND_NAME


def test_a_path_that_comes_from_elsewhere_is_left_as_it_is(injection):
    source = [k8s.V1EnvFromSource(config_map_ref=k8s.V1ConfigMapEnvSource(name="env"))]
    one = pod(env_from=source)
    assert injection.apply(one)
    assert paths(one) == []


def test_a_mounted_pod_is_only_given_the_path(injection):
    one = pod(volumes=[CODE], mounts=[("code", "/opt/steadfast")], path="/own")
    assert injection.apply(one)
    assert len(one.spec.containers[0].volume_mounts) == 1
    assert paths(one) == ["/opt/steadfast:/own"]


def test_nothing_is_injected_into_another_namespace(injection):
    one = pod(namespace="elsewhere")
    before = one.to_dict()
    assert not injection.apply(one)
    assert one.to_dict() == before


@pytest.mark.parametrize(
    "template", [pod(), pod(mounts=[("code", "/opt/steadfast")], path="/opt/steadfast"), k8s.V1Pod()]
)
def test_a_template_without_it_gives_nothing(template, tmp_path):
    path = tmp_path / "template.yaml"
    path.touch()
    one = pod()
    assert not Injection(lambda _: template, str(path), "workers", ROOT).apply(one)
    assert one.to_dict() == pod().to_dict()


def test_a_changed_template_is_read_again(tmp_path):
    path = tmp_path / "template.yaml"
    path.touch()
    templates = [copy.deepcopy(WHOLE), pod()]
    injection = Injection(lambda _: templates.pop(), str(path), "workers", ROOT)
    assert not injection.apply(pod())
    assert not injection.apply(pod())
    assert len(templates) == 1
    (tmp_path / "new.yaml").write_text("changed")
    (tmp_path / "new.yaml").replace(path)
    assert injection.apply(pod())


def test_a_wardrobe_tells_what_it_did_once(injection, caplog, monkeypatch):
    monkeypatch.setattr(worker_pod, "_warned", set())
    caplog.set_level("INFO")
    wardrobe = Wardrobe(ROOT, injection)
    assert wardrobe.dress(copy.deepcopy(WHOLE))
    assert caplog.records == []
    assert wardrobe.dress(pod())
    assert wardrobe.dress(pod())
    assert not wardrobe.dress(pod(namespace="elsewhere"))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    assert not Wardrobe(ROOT, None).dress(pod())
    assert Wardrobe(None, None).dress(pod())
    assert wardrobe.dress(k8s.V1Pod())


def test_a_default_template_that_cannot_be_read_leaves_the_pod_as_it_is_and_is_no_patch(tmp_path):
    injection = Injection(lambda _: WHOLE, str(tmp_path / "none.yaml"), "workers", ROOT)
    bare = pod()
    assert not Wardrobe(ROOT, injection).dress(bare)
    assert bare == pod()
