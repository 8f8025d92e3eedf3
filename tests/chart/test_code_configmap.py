# SPDX-License-Identifier: Apache-2.0
"""The patch as a ConfigMap: complete, named by its content, everywhere the same."""

from __future__ import annotations

import base64
import gzip
import importlib.metadata
import json
import shutil
import sys
from pathlib import Path

import helm_python
import pytest

from tests.chart.render import (
    CHART,
    REPOSITORY,
    code_map,
    containers,
    default,
    environment,
    pods,
    render,
    render_text,
)

PACKAGES = {"airflow_steadfast": "provider_patch", "steadfast_sidecar": "sidecar"}
CONFIGMAP_LIMIT = 1024 * 1024
RELEASE_LIMIT = 600 * 1024


def mounted_files(objects):
    """Path -> content, as a pod sees them."""
    data = code_map(objects)["data"]
    for _, pod in pods(objects):
        for volume in pod["spec"].get("volumes", []):
            if volume["name"] == "steadfast-code":
                return {item["path"]: data[item["key"]] for item in volume["configMap"]["items"]}
    raise AssertionError("no pod mounts the code")


@pytest.fixture
def copy(tmp_path):
    """The chart with real folders in the place of its links, to be changed by a test."""
    target = tmp_path / "chart"
    shutil.copytree(CHART, target, ignore=shutil.ignore_patterns("__pycache__"))
    return target


def test_every_source_file_arrives_byte_for_byte():
    expected = {
        str(path.relative_to(REPOSITORY / root)): path.read_text(encoding="utf-8")
        for package, root in PACKAGES.items()
        for path in (REPOSITORY / root / package).rglob("*.py")
    }
    found = mounted_files(render())
    assert {
        path: text for path, text in found.items() if not path.startswith("airflow_steadfast-")
    } == expected


def test_the_mounted_folder_offers_the_entry_point(tmp_path):
    for path, text in mounted_files(render()).items():
        target = tmp_path / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    (found,) = importlib.metadata.distributions(name="airflow-steadfast", path=[str(tmp_path)])
    (entry,) = found.entry_points
    assert (entry.group, entry.name, entry.value) == (
        "airflow.policy",
        "steadfast",
        "airflow_steadfast.activation",
    )
    version = (tmp_path / "airflow_steadfast" / "__init__.py").read_text(encoding="utf-8")
    assert f'__version__ = "{found.version}"' in version


def test_no_bytecode_and_no_marker_file_is_shipped(copy):
    cached = copy / "files" / "airflow_steadfast" / "__pycache__"
    cached.mkdir()
    (cached / "activation.cpython-311.pyc").write_bytes(b"\0")
    assert code_map(render(chart=copy))["metadata"]["name"] == code_map(render())["metadata"]["name"]


def test_it_is_immutable_and_kept():
    found = code_map(default())
    assert found["immutable"] is True
    assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_its_name_changes_with_a_changed_an_added_and_a_removed_file_and_with_nothing_else(copy):
    before = code_map(render(chart=copy))["metadata"]["name"]
    assert before == code_map(default())["metadata"]["name"]
    assert before == code_map(render({"scheduler": {"replicas": 3}}))["metadata"]["name"]

    source = copy / "files" / "airflow_steadfast" / "signals" / "outbox.py"
    text = source.read_text(encoding="utf-8")
    source.write_text(text + "# changed\n", encoding="utf-8")
    changed = code_map(render(chart=copy))["metadata"]["name"]
    source.write_text(text, encoding="utf-8")
    added_file = copy / "files" / "steadfast_sidecar" / "more.py"
    added_file.write_text("", encoding="utf-8")
    added = code_map(render(chart=copy))["metadata"]["name"]
    added_file.unlink()
    source.unlink()
    removed = code_map(render(chart=copy))["metadata"]["name"]
    assert len({before, changed, added, removed}) == 4


def test_a_changed_file_rolls_every_airflow_pod(copy):
    before = dict(pods(render(chart=copy)))
    source = copy / "files" / "airflow_steadfast" / "signals" / "outbox.py"
    source.write_text(source.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    after = dict(pods(render(chart=copy)))
    unchanged = {name for name in before if after.get(name) == before[name]}
    assert {name.split("/")[1].rsplit("-", 1)[0] for name in unchanged if name.startswith("Job")} <= {
        "airflow-secrets"
    }
    assert {name for name in unchanged if not name.startswith("Job")} == {"StatefulSet/airflow-postgresql"}


def test_every_airflow_container_has_the_code_and_the_path_to_it():
    without = []
    for name, pod in pods(default()):
        for container in containers(pod):
            mounts = {mount["name"]: mount for mount in container.get("volumeMounts", [])}
            if "steadfast-code" not in mounts:
                without.append(container["name"])
                continue
            assert mounts["steadfast-code"]["mountPath"] == "/opt/steadfast", name
            assert mounts["steadfast-code"]["readOnly"] is True, name
            assert environment(container)["PYTHONPATH"] == "/opt/steadfast", name
    assert sorted(without) == ["postgresql", "secrets"]


def test_a_users_pythonpath_is_kept_in_front():
    objects = render({"env": [{"name": "PYTHONPATH", "value": "/opt/mine"}]})
    found = {
        environment(container)["PYTHONPATH"]
        for _, pod in pods(objects)
        for container in containers(pod)
        if "PYTHONPATH" in environment(container)
    }
    assert found == {"/opt/mine:/opt/steadfast"}


def test_a_pythonpath_that_cannot_be_extended_fails_and_says_so():
    source = {"configMapKeyRef": {"name": "x", "key": "y"}}
    with pytest.raises(helm_python.HelmError, match="PYTHONPATH needs a plain value"):
        render({"env": [{"name": "PYTHONPATH", "valueFrom": source}]})


@pytest.mark.parametrize("lost", ["airflow_steadfast", "steadfast_sidecar"])
def test_a_dropped_link_fails_the_render_and_names_the_file(copy, lost):
    shutil.rmtree(copy / "files" / lost)
    with pytest.raises(
        helm_python.HelmError, match=f"chart/files/{lost}/__init__.py is missing.*|no __version__"
    ):
        render(chart=copy)


def test_the_packaged_chart_renders_the_same(tmp_path):
    archive = helm_python.package(str(CHART), destination=str(tmp_path))
    assert render_text(chart=Path(archive)) == render_text()


def test_by_image_there_is_no_configmap_and_no_mount():
    objects = render({"steadfast": {"install": {"method": "image"}}})
    assert not [item for item in objects if "steadfast-code" in item["metadata"]["name"]]
    assert "steadfast-code" not in json.dumps(objects)
    assert "/opt/steadfast" not in json.dumps(objects)


def test_it_fits_a_configmap_and_the_release_fits_a_secret():
    data = code_map(default())["data"]
    assert sum(len(key) + len(text.encode()) for key, text in data.items()) < CONFIGMAP_LIMIT * 3 // 4
    with helm_python.Chart.load(str(CHART)) as chart:
        release = {
            "name": "airflow",
            "chart": {
                "metadata": chart.metadata,
                "templates": chart.templates,
                "values": chart.values,
                "schema": base64.b64encode((CHART / "values.schema.json").read_bytes()).decode(),
                "files": [
                    {**item, "data": base64.b64encode(item["data"].encode()).decode()} for item in chart.files
                ],
            },
            "manifest": "\n---\n".join(text for _, text in sorted(render_text().items())),
        }
    payload = base64.b64encode(gzip.compress(json.dumps(release).encode(), 9))
    print(
        f"release payload {len(payload) / 1024:.0f} KiB, code {sum(map(len, data.values())) / 1024:.0f} KiB",
        file=sys.stderr,
    )
    assert len(payload) < RELEASE_LIMIT
