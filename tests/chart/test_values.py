# SPDX-License-Identifier: Apache-2.0
"""What a user writes: bad input fails and names the key, good input reaches Airflow."""

from __future__ import annotations

import helm_python
import pytest
import yaml

from tests.chart import schema
from tests.chart.render import CHART, airflow_cfg, find, render, render_text

GUARDED = "KubernetesExecutor:airflow_steadfast.launch_guard.executor.GuardedKubernetesExecutor"


def set_at(path, value):
    """{"a": {"b": value}} for "a.b"."""
    for key in reversed(path.split(".")):
        value = {key: value}
    return value


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("steadfast.bogus", 1, "'/steadfast'.*'bogus'"),
        ("steadfast.launchGuard.mod", "auto", "'/steadfast/launchGuard'.*'mod'"),
        ("steadfast.launchGuard.mode", "on", "/steadfast/launchGuard/mode"),
        ("steadfast.launchGuard.mode", True, "/steadfast/launchGuard/mode"),
        ("steadfast.launchGuard.inject", "always", "/steadfast/launchGuard/inject"),
        ("steadfast.launchGuard.createRetrySeconds", -1, "/steadfast/launchGuard/createRetrySeconds"),
        ("steadfast.launchGuard.createRetrySeconds", 3601, "/steadfast/launchGuard/createRetrySeconds"),
        ("steadfast.launchGuard.maxHoldSeconds", 0, "/steadfast/launchGuard/maxHoldSeconds"),
        ("steadfast.launchGuard.maxHoldSeconds", "60s", "/steadfast/launchGuard/maxHoldSeconds"),
        (
            "steadfast.launchGuard.maxHoldSeconds",
            600,
            r"steadfast.launchGuard.maxHoldSeconds: 600 must be below",
        ),
        ("steadfast.sidecar.port", 70000, "/steadfast/sidecar/port"),
        ("steadfast.install.method", "zip", "/steadfast/install/method"),
        ("steadfast.settings.guard_max_hild", 1, "/steadfast/settings'.*'guard_max_hild'"),
        ("steadfast.settings.handoff_dir", "/x", "steadfast.settings.handoff_dir: the chart mounts"),
        ("steadfast.settings.guard_max_hold", 601, "maxHoldSeconds: 601 must be below"),
        (
            "steadfast",
            {"sidecar": {"enabled": False}, "metrics": {"podMonitor": {"enabled": True}}},
            "steadfast.metrics.podMonitor.enabled: there is nothing to scrape",
        ),
        (
            "steadfast.sidecar.clientCaSecretName",
            "ca",
            "steadfast.sidecar.clientCaSecretName: client certificates exist only over TLS",
        ),
        ("steadfst.enabled", True, "'steadfst'"),
        ("scheduler.replica", 2, "'/scheduler'.*'replica'"),
        ("workers.kubernetes.resource", {}, "/workers/kubernetes'.*'resource'"),
        ("executor", "CeleryExecutor", 'executor: "CeleryExecutor" is not supported'),
        ("executor", "KubernetesExecutor,LocalExecutor", 'executor: "LocalExecutor" is not supported'),
        ("executor", "GuardedKubernetesExecutor", 'executor: "GuardedKubernetesExecutor" is not supported'),
        ("config.core.executor", "LocalExecutor", 'config.core.executor: "LocalExecutor" differs'),
        ("postgresql.enabled", False, "data.metadataConnection.host: no database"),
        ("networkPolicies.enabled", True, "networkPolicies.enabled: not implemented"),
        ("kerberos.enabled", True, "kerberos.enabled: not implemented"),
        ("dags.gitSync.enabled", True, "dags.gitSync.enabled: not implemented"),
        ("multiNamespaceMode", True, "multiNamespaceMode: not implemented"),
        ("airflowVersion", "2.11.2", 'airflowVersion: "2.11.2" is not supported'),
        ("env", [{"name": "A", "valeu": "b"}], "/env/0'.*'valeu'"),
        ("extraEnv", "just words", "extraEnv: not a YAML list"),
    ],
)
def test_bad_values_fail_and_the_message_names_the_key(path, value, named):
    with pytest.raises(helm_python.HelmError, match=f"(?s){named}"):
        render(set_at(path, value))


def test_the_templates_know_the_same_keys_as_the_schema():
    """The check that holds where the schema is skipped must not drift from it."""
    source = (CHART / "templates" / "_validate.tpl").read_text(encoding="utf-8")
    listed = source.split('define "steadfast.knownKeys" -}}')[1].split("{{- end -}}")[0]
    known = {key: set(below) for key, below in yaml.safe_load(listed).items()}
    tree = yaml.safe_load(schema.SOURCE.read_text(encoding="utf-8"))["properties"]["steadfast"]["properties"]
    assert known.pop("settings") == {"*"}
    del tree["settings"]
    assert known == {key: set(below.get("properties", {})) for key, below in tree.items()}


def test_the_schema_is_compiled_from_its_source():
    assert schema.TARGET.read_text(encoding="utf-8") == schema.compiled()


def test_every_default_has_a_place_in_the_schema_and_every_steadfast_key_a_default():
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    tree = yaml.safe_load(schema.SOURCE.read_text(encoding="utf-8"))

    def leaves(node, path=""):
        for key, below in node.get("properties", {}).items():
            yield f"{path}.{key}"
            yield from leaves(below, f"{path}.{key}")

    def has(values, path):
        for key in path.strip(".").split("."):
            if not isinstance(values, dict) or key not in values:
                return False
            values = values[key]
        return True

    missing = [
        path for path in leaves(tree["properties"]["steadfast"]) if not has(defaults["steadfast"], path)
    ]
    inside_kubernetes_shapes = (".secrets.serviceAccount.", ".secrets.securityContexts.")
    assert [path for path in missing if not path.startswith(inside_kubernetes_shapes)] == []
    assert set(defaults) <= set(tree["properties"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, GUARDED),
        ({"executor": GUARDED}, GUARDED),
        ({"executor": "my.module.FencedKubernetesExecutor"}, "my.module.FencedKubernetesExecutor"),
        ({"steadfast": {"enabled": False}}, "KubernetesExecutor"),
        ({"steadfast": {"launchGuard": {"mode": "off"}}}, "KubernetesExecutor"),
        # what YAML makes of a bare off
        ({"steadfast": {"launchGuard": {"mode": False}}}, "KubernetesExecutor"),
        ({"steadfast": {"launchGuard": {"mode": "observe"}}}, GUARDED),
        ({"config": {"core": {"executor": "KubernetesExecutor"}}}, GUARDED),
    ],
)
def test_the_executor_that_airflow_is_given(values, expected):
    assert f"\nexecutor = {expected}\n" in airflow_cfg(render(values))


def test_settings_reach_the_section_and_the_free_map_wins():
    values = {
        "steadfast": {
            "launchGuard": {
                "mode": "observe",
                "maxHoldSeconds": 30,
                "createRetrySeconds": 0,
                "inject": False,
            },
            "durablePod": {"enabled": False},
            "settings": {"guard_max_hold": 45, "guard_recheck_age": 2},
        }
    }
    section = airflow_cfg(render(values)).split("[steadfast]")[1]
    assert section.split() == [
        "guard_check_timeout",
        "=",
        "2",
        "guard_create_retry",
        "=",
        "0",
        "guard_max_hold",
        "=",
        "45",
        "guard_recheck_age",
        "=",
        "2",
        "handoff_dir",
        "=",
        "/var/lib/steadfast/handoff",
        "inject",
        "=",
        "off",
        "launch_guard",
        "=",
        "observe",
        "patch_kpo",
        "=",
        "False",
    ]


def test_the_execution_api_is_addressed_inside_the_cluster_with_the_base_path():
    values = {"config": {"api": {"base_url": "https://data.example.com/airflow/"}}}
    objects = render(values)
    assert (
        "execution_api_server_url = http://airflow-api-server.airflow:8080/airflow/execution/\n"
        in airflow_cfg(objects)
    )
    server = find(objects, "Deployment", "airflow-api-server")["spec"]["template"]["spec"]["containers"][0]
    assert server["livenessProbe"]["httpGet"]["path"] == "/airflow/api/v2/version"


def test_off_means_nothing_of_ours():
    text = "".join(render_text({"steadfast": {"enabled": False}}).values())
    assert "steadfast-" not in text.replace("steadfast-secrets", "")
    assert "[steadfast]" not in text


def test_addons_only_makes_just_what_the_official_chart_lacks():
    values = {
        "steadfast": {
            "addonsOnly": True,
            "metrics": {"podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
            "dashboards": {"enabled": True},
        }
    }
    kinds = sorted(item["kind"] for item in render(values))
    assert kinds == ["ConfigMap", "ConfigMap", "PodMonitor", "PrometheusRule"]


def test_a_templated_timeout_is_left_to_airflow():
    render({"config": {"scheduler": {"task_queued_timeout": "{{ 900 }}"}}})


def test_numbers_reach_the_configuration_as_they_were_written():
    config = airflow_cfg(render({"config": {"core": {"max_map_length": 10_000_000, "half": 0.5, "none": 0}}}))
    assert "max_map_length = 10000000\n" in config
    assert "half = 0.5\n" in config
    assert "none = 0\n" in config


NO_CHECK = "is not told how to check"
NO_CLIENT = "asks Prometheus for a client certificate"


@pytest.mark.parametrize(
    ("sidecar", "tls_config", "said"),
    [
        ({}, {}, []),
        ({"tlsSecretName": "t"}, {}, [NO_CHECK]),
        ({"tlsSecretName": "t"}, {"serverName": "s"}, []),
        ({"tlsSecretName": "t", "clientCaSecretName": "c"}, None, [NO_CHECK, NO_CLIENT]),
        ({"tlsSecretName": "t", "clientCaSecretName": "c"}, {"serverName": "s"}, [NO_CLIENT]),
        ({"tlsSecretName": "t", "clientCaSecretName": "c"}, {"certFile": "/c"}, []),
    ],
)
def test_notes_tell_what_prometheus_still_needs(sidecar, tls_config, said):
    monitor = {"enabled": True, "tlsConfig": tls_config}
    values = {"steadfast": {"sidecar": sidecar, "metrics": {"podMonitor": monitor}}}
    notes = render_text(values)["airflow/templates/NOTES.txt"]
    assert [text for text in (NO_CHECK, NO_CLIENT) if text in notes] == said


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("steadfast.sidecar.tlsSecretName", 1),
        ("steadfast.sidecar.clientCaSecretName", {}),
        ("steadfast.sidecar.bearerTokenSecretName", True),
        ("steadfast.sidecar.bearerTokenSecretKey", ""),
        ("steadfast.metrics.podMonitor.tlsConfig", "ca.crt"),
        ("steadfast.metrics.podMonitor.authorization", "Bearer x"),
    ],
)
def test_a_value_of_the_wrong_form_is_refused_with_its_path(key, value):
    with pytest.raises(helm_python.HelmError, match="/" + key.replace(".", "/")):
        render(set_at(key, value))
