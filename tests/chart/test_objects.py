# SPDX-License-Identifier: Apache-2.0
"""The objects: valid, the same at every render, named as the official chart's, each variable once."""

from __future__ import annotations

import kubernetes_validate
import pytest
import yaml

from tests.chart.render import (
    ALL_ON,
    CHART,
    airflow_cfg,
    containers,
    default,
    environment,
    find,
    pod_template,
    pods,
    render,
    render_text,
)

CUSTOM_KINDS = {"PodMonitor", "PrometheusRule"}
EVERYTHING_TWICE = {
    "env": [
        {"name": "AIRFLOW_HOME", "value": "/opt/airflow"},
        {"name": "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "value": "postgresql://elsewhere/db"},
        {"name": "PYTHONPATH", "value": "/a"},
        {"name": "MINE", "value": "root"},
        {"name": "MINE", "value": "root again"},
    ],
    "extraEnv": "- name: MINE\n  value: extra\n- name: PYTHONPATH\n  value: /b\n",
    "secret": [{"envName": "MINE", "secretName": "mine"}],
    "scheduler": {"env": [{"name": "MINE", "value": "scheduler"}]},
    "workers": {"env": [{"name": "MINE", "value": "worker"}]},
    "createUserJob": {"defaultUser": {"password": "a-password"}},
}


@pytest.mark.parametrize("values", [{}, ALL_ON, EVERYTHING_TWICE], ids=["default", "all on", "adversarial"])
@pytest.mark.parametrize("version", ["1.30", "1.34"])
def test_every_object_is_valid_to_the_letter(values, version):
    objects = render(values)
    for item in [*objects, pod_template(objects)]:
        if item["kind"] not in CUSTOM_KINDS:
            kubernetes_validate.validate(item, version, strict=True)


@pytest.mark.parametrize("values", [{}, ALL_ON], ids=["default", "all on"])
def test_two_renders_are_the_same_bytes(values):
    assert render_text(values) == render_text(values)


def test_an_upgrade_renders_what_an_install_renders():
    import helm_python

    with helm_python.Chart.load(str(CHART)) as chart:
        first = chart.render(name="airflow", namespace="airflow", is_install=True, revision=1)
        later = chart.render(name="airflow", namespace="airflow", is_upgrade=True, revision=7)
    assert first == later


def test_the_templates_use_nothing_random_nor_the_cluster():
    for path in (CHART / "templates").rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8")
            for word in (
                "rand",
                "lookup ",
                "uuidv4",
                "genCA",
                "genPrivateKey",
                "now",
                "Capabilities",
                "Revision",
            ):
                assert f"{{{{ {word}" not in text, path
                assert f"({word}" not in text, path
                assert f"- {word}" not in text, path


def test_no_container_has_two_entries_of_one_name():
    for name, pod in pods(render(EVERYTHING_TWICE)):
        for container in containers(pod):
            names = [item["name"] for item in container.get("env", [])]
            assert len(names) == len(set(names)), (name, container["name"])


def test_the_last_entry_of_a_name_wins_and_the_path_is_extended_once():
    objects = render(EVERYTHING_TWICE)
    spec = find(objects, "Deployment", "airflow-scheduler")["spec"]["template"]["spec"]
    scheduler = environment(spec["containers"][0])
    assert scheduler["MINE"] == "scheduler"
    assert scheduler["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] == "postgresql://elsewhere/db"
    assert scheduler["PYTHONPATH"] == "/b:/opt/steadfast"
    worker = environment(pod_template(objects)["spec"]["containers"][0])
    assert worker["MINE"] == "worker"
    server = find(objects, "Deployment", "airflow-api-server")["spec"]["template"]["spec"]["containers"][0]
    assert environment(server)["MINE"] == "extra"


def test_a_components_environment_does_not_leak_into_tasks():
    objects = render({"scheduler": {"env": [{"name": "ONLY_SCHEDULER", "value": "x"}]}})
    assert "ONLY_SCHEDULER" not in environment(pod_template(objects)["spec"]["containers"][0])
    assert "ONLY_SCHEDULER" not in airflow_cfg(objects)


def test_names_and_selectors_are_those_of_the_official_chart():
    named = {(item["kind"], item["metadata"]["name"]) for item in default()}
    for kind, name in [
        ("Deployment", "airflow-scheduler"),
        ("Deployment", "airflow-api-server"),
        ("Deployment", "airflow-dag-processor"),
        ("StatefulSet", "airflow-triggerer"),
        ("Service", "airflow-api-server"),
        ("Service", "airflow-triggerer"),
        ("ConfigMap", "airflow-config"),
        ("ServiceAccount", "airflow-scheduler"),
        ("ServiceAccount", "airflow-worker"),
    ]:
        assert (kind, name) in named
    for item in default():
        if item["kind"] in {"Deployment", "StatefulSet"}:
            component = item["metadata"]["labels"]["component"]
            expected = {"tier": "airflow", "component": component, "release": "airflow"}
            assert item["spec"]["selector"]["matchLabels"] == expected


def test_the_migration_job_is_no_hook_and_its_name_follows_its_spec():
    def name(values):
        (found,) = [item for item in render(values) if "run-airflow-migrations" in item["metadata"]["name"]]
        assert "annotations" not in found["metadata"]
        return found["metadata"]["name"]

    first = name({})
    assert first == name({"scheduler": {"replicas": 2}})
    assert first != name({"images": {"airflow": {"tag": "3.3.3"}}})
    assert first != name({"migrateDatabaseJob": {"resources": {"limits": {"memory": "1Gi"}}}})


def test_no_object_is_a_hook():
    for item in render(ALL_ON):
        assert not any("helm.sh/hook" in key for key in item["metadata"].get("annotations", {}))


def test_the_secrets_job_follows_its_script_and_its_plan():
    def name(values):
        found = [item["metadata"]["name"] for item in render(values) if item["kind"] == "Job"]
        return [item for item in found if "-secrets-" in item]

    assert name({}) != name({"jwtSecretName": "mine"})
    given = {
        "fernetKey": "f",
        "jwtSecret": "j",
        "apiSecretKey": "a",
        "postgresql": {"auth": {"postgresPassword": "p@ss word"}},
    }
    assert name(given) == []
    secrets = {item["metadata"]["name"] for item in render(given) if item["kind"] == "Secret"}
    assert secrets == {
        "airflow-fernet-key",
        "airflow-jwt-secret",
        "airflow-api-secret-key",
        "airflow-postgresql",
        "airflow-metadata",
    }


def test_every_long_lived_container_has_a_startup_probe_with_five_minutes():
    for name, pod in pods(default()):
        if name.startswith("Job") or name == "pod template":
            continue
        for container in containers(pod):
            if container["name"] == "wait-for-airflow-migrations":
                continue
            probe = container["startupProbe"]
            assert probe["periodSeconds"] * probe["failureThreshold"] >= 300, (name, container["name"])
            assert container["livenessProbe"]["timeoutSeconds"] >= 20, (name, container["name"])


def test_every_container_asks_for_resources():
    for name, pod in pods(default()):
        for container in containers(pod):
            assert {"cpu", "memory"} <= set(container["resources"]["requests"]), (name, container["name"])


def test_the_sidecar_is_native_comes_second_and_never_gates_the_pod_by_readiness():
    spec = find(default(), "Deployment", "airflow-scheduler")["spec"]["template"]["spec"]
    assert [item["name"] for item in spec["initContainers"]] == [
        "wait-for-airflow-migrations",
        "steadfast-sidecar",
    ]
    sidecar = spec["initContainers"][1]
    assert sidecar["restartPolicy"] == "Always"
    assert "readinessProbe" not in sidecar
    assert sidecar["ports"] == [{"name": "sf-metrics", "containerPort": 9109}]
    handoff = {mount["name"]: mount for mount in sidecar["volumeMounts"]}["steadfast-handoff"]
    assert handoff == {
        "name": "steadfast-handoff",
        "mountPath": "/var/lib/steadfast/handoff",
        "readOnly": True,
    }
    scheduler = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}["steadfast-handoff"]
    assert scheduler == {"name": "steadfast-handoff", "mountPath": "/var/lib/steadfast/handoff"}


def test_the_sidecar_can_be_an_ordinary_container_or_absent():
    def parts(values):
        spec = find(render({"steadfast": {"sidecar": values}}), "Deployment", "airflow-scheduler")["spec"][
            "template"
        ]["spec"]
        return [item["name"] for item in spec["initContainers"]], [
            item["name"] for item in spec["containers"]
        ]

    assert parts({"native": False}) == (["wait-for-airflow-migrations"], ["scheduler", "steadfast-sidecar"])
    assert parts({"enabled": False}) == (["wait-for-airflow-migrations"], ["scheduler"])


WORKER_KEYS = {
    "resources": {"limits": {"memory": "1Gi"}},
    "terminationGracePeriodSeconds": 5,
    "safeToEvict": True,
    "extraInitContainers": [{"name": "first", "image": "x"}],
    "extraContainers": [{"name": "more", "image": "x"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
    "nodeSelector": {"disk": "ssd"},
    "runtimeClassName": "gvisor",
    "priorityClassName": "low",
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"key": "a", "operator": "Exists"}],
    "topologySpreadConstraints": [{"maxSkew": 1}],
    "schedulerName": "other",
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    "podAnnotations": {"a": "b"},
    "labels": {"team": "data"},
    "env": [{"name": "A", "value": "b"}],
    "command": ["x"],
    "securityContexts": {"pod": {"fsGroup": 1}},
    "containerLifecycleHooks": {"preStop": {"exec": {"command": ["x"]}}},
    "serviceAccount": {"name": "mine"},
}


@pytest.mark.parametrize("key", sorted(WORKER_KEYS))
@pytest.mark.parametrize("legacy", [False, True], ids=["workers.kubernetes", "workers"])
def test_each_worker_key_changes_the_task_pod(key, legacy):
    given = {key: WORKER_KEYS[key]}
    defaults = {"kubernetes": {key: None}} if legacy else {}
    values = {"workers": {**given, **defaults} if legacy else {"kubernetes": given}}
    assert pod_template(render(values)) != pod_template(default())


def test_monitoring_objects_select_the_scheduler_and_carry_the_users_labels():
    objects = render(ALL_ON)
    monitor = find(objects, "PodMonitor", "airflow-steadfast")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["selector"]["matchLabels"] == {
        "tier": "airflow",
        "component": "scheduler",
        "release": "airflow",
    }
    plain = find(
        render({"steadfast": {"metrics": {"podMonitor": {"enabled": True}}}}),
        "PodMonitor",
        "airflow-steadfast",
    )
    assert plain["spec"]["podMetricsEndpoints"] == [
        {"port": "sf-metrics", "path": "/metrics", "interval": "30s"}
    ]
    rule = find(objects, "PrometheusRule", "airflow-steadfast")
    assert any("alert" in item for group in rule["spec"]["groups"] for item in group["rules"])
    boards = find(objects, "ConfigMap", "airflow-steadfast-dashboards")
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert all(yaml.safe_load(text)["panels"] for text in boards["data"].values())


def test_no_user_is_made_without_a_password_nor_for_another_auth_manager():
    assert not [item for item in default() if "create-user" in item["metadata"]["name"]]
    simple = "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
    values = {
        "createUserJob": {"defaultUser": {"password": "x"}},
        "config": {"core": {"auth_manager": simple}},
    }
    assert not [item for item in render(values) if "create-user" in item["metadata"]["name"]]
