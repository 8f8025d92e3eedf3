# SPDX-License-Identifier: Apache-2.0
"""Renders the chart in process (Helm 4 as a library) and finds things in what comes out."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import helm_python
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REPOSITORY = Path(__file__).resolve().parents[2]
CHART = REPOSITORY / "chart"
RELEASE = "airflow"
NAMESPACE = "airflow"

Manifest = dict[str, Any]
# The C loader: the manifests hold the whole code, and the Python one takes a second for them.
_FAST: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_FAST):  # type: ignore[misc,valid-type]  # C loader or Python one
    """A safe loader that refuses a key which is written twice, as Helm's and the API server's do."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """One mapping; raises ValueError for a key written twice."""
        keys = [key.value for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise ValueError(f"keys written twice: {sorted(key for key in keys if keys.count(key) > 1)}")
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return made


WORKLOADS = ("Deployment", "StatefulSet", "Job", "DaemonSet")

# Every switch that adds an object or a container.
ALL_ON: dict[str, Any] = {
    "labels": {"release": "mine", "team": "data"},
    "airflowPodAnnotations": {"prometheus.io/port": "1"},
    "steadfast": {
        "sidecar": {
            "tlsSecretName": "{{ .Release.Name }}-tls",
            "clientCaSecretName": "{{ .Release.Name }}-clients",
            "bearerTokenSecretName": "{{ .Release.Name }}-tokens",
        },
        "metrics": {
            "scrapeAnnotations": True,
            "podMonitor": {
                "enabled": True,
                "labels": {"release": "prometheus"},
                "tlsConfig": {"serverName": "steadfast", "cert": {"secret": {"name": "c", "key": "tls.crt"}}},
                "authorization": {"credentials": {"name": "prometheus-token", "key": "token"}},
            },
            "prometheusRule": {"enabled": True},
        },
        "dashboards": {"enabled": True},
    },
    "createUserJob": {"defaultUser": {"password": "a-password"}},
    "dags": {"persistence": {"enabled": True}},
    "logs": {"persistence": {"enabled": True}},
    "triggerer": {"persistence": {"enabled": True}},
    "postgresql": {"persistence": {"enabled": True}},
    "priorityClasses": [{"name": "low", "value": 100}],
    "quotas": {"pods": "50"},
    "limits": [{"type": "Container", "max": {"memory": "1Gi"}}],
    "extraConfigMaps": {"{{ .Release.Name }}-extra": {"data": "a: b"}},
    "extraSecrets": {"{{ .Release.Name }}-extra": {"stringData": "a: b"}},
    "airflowLocalSettings": "# {{ .Release.Name }}",
}


def render_text(
    values: Mapping[str, Any] | None = None, chart: Path = CHART, namespace: str = NAMESPACE
) -> dict[str, str]:
    """Template path -> rendered text; raises helm_python.HelmError with Helm's own message."""
    with helm_python.Chart.load(str(chart)) as loaded:
        return dict(loaded.render(values=dict(values or {}), name=RELEASE, namespace=namespace))


def render(values: Mapping[str, Any] | None = None, chart: Path = CHART) -> list[Manifest]:
    """All objects, without NOTES."""
    found: list[Manifest] = []
    for path, text in sorted(render_text(values, chart).items()):
        if not path.endswith("NOTES.txt"):
            found.extend(document for document in yaml.load_all(text, Loader) if document)
    return found


@cache
def _default() -> tuple[Manifest, ...]:
    return tuple(render())


def default() -> list[Manifest]:
    """The objects of a render without values; shared, not to be changed."""
    return list(_default())


def find(objects: list[Manifest], kind: str, name: str) -> Manifest:
    """The one object of that kind and name."""
    (found,) = [item for item in objects if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


def code_map(objects: list[Manifest]) -> Manifest:
    """The code ConfigMap."""
    (found,) = [item for item in objects if "-steadfast-code-" in item["metadata"]["name"]]
    return found


def pod_template(objects: list[Manifest]) -> Manifest:
    """The pod of a task."""
    text = find(objects, "ConfigMap", f"{RELEASE}-pod-template")["data"]["pod_template_file.yaml"]
    parsed: Manifest = yaml.load(text, Loader)  # noqa: S506 - a safe loader
    return parsed


def pods(objects: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    """Every pod that comes of these objects, the task's included: (name, {"metadata", "spec"})."""
    for item in objects:
        if item["kind"] in WORKLOADS:
            yield f"{item['kind']}/{item['metadata']['name']}", item["spec"]["template"]
    if any(item["metadata"]["name"] == f"{RELEASE}-pod-template" for item in objects):
        yield "pod template", pod_template(objects)


def containers(pod: Manifest) -> Iterator[Manifest]:
    """Init containers first, then the others."""
    yield from pod["spec"].get("initContainers", [])
    yield from pod["spec"]["containers"]


def environment(container: Manifest) -> dict[str, Any]:
    """Name -> value, or the ``valueFrom`` map."""
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container.get("env", [])}


def airflow_cfg(objects: list[Manifest]) -> str:
    """Text of airflow.cfg."""
    text: str = find(objects, "ConfigMap", f"{RELEASE}-config")["data"]["airflow.cfg"]
    return text
