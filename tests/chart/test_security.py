# SPDX-License-Identifier: Apache-2.0
"""Pod Security "restricted" on every pod that the chart makes; who holds which secret and which right."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from steadfast_sidecar.settings import KEYS
from tests.chart.render import ALL_ON, containers, default, environment, find, pod_template, pods, render

SECRET_NAMES = {
    "AIRFLOW__CORE__FERNET_KEY",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
    "AIRFLOW__API__SECRET_KEY",
    "AIRFLOW__API_AUTH__JWT_SECRET",
    "AIRFLOW_CONN_AIRFLOW_DB",
}
ALLOWED_VOLUMES = {
    "configMap",
    "emptyDir",
    "persistentVolumeClaim",
    "secret",
    "projected",
    "downwardAPI",
    "csi",
}


def container_violations(container, context):
    """What a container breaks, its pod's context given."""
    own = container.get("securityContext", {})
    capabilities = own.get("capabilities", {})
    profile = own.get("seccompProfile", context.get("seccompProfile", {}))
    checks = {
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
        "privileged": not own.get("privileged"),
        "capabilities": capabilities.get("drop") == ["ALL"] and not capabilities.get("add"),
        "runAsNonRoot": own.get("runAsNonRoot", context.get("runAsNonRoot")) is True,
        "runAsUser": own.get("runAsUser", context.get("runAsUser")) != 0,
        "seccompProfile": profile.get("type") in {"RuntimeDefault", "Localhost"},
        "hostPort": not any("hostPort" in port for port in container.get("ports", [])),
    }
    return [f"{container['name']}: {check}" for check, holds in checks.items() if not holds]


def restricted_violations(pod):
    """What kubernetes.io/docs/concepts/security/pod-security-standards forbids at level restricted."""
    spec = pod["spec"]
    found = [key for key in ("hostNetwork", "hostPID", "hostIPC") if spec.get(key)]
    found += [
        f"volume {volume['name']}"
        for volume in spec.get("volumes", [])
        if not set(volume) - {"name"} <= ALLOWED_VOLUMES
    ]
    for container in containers(pod):
        found += container_violations(container, spec.get("securityContext", {}))
    return found


@pytest.mark.parametrize("values", [{}, ALL_ON], ids=["default", "all on"])
def test_every_pod_passes_the_restricted_standard(values):
    made = dict(pods(render(values)))
    assert len(made) >= 8
    assert {name: restricted_violations(pod) for name, pod in made.items()} == {name: [] for name in made}


def test_a_users_context_is_merged_and_keeps_what_it_does_not_name():
    objects = render(
        {
            "securityContexts": {"pod": {"fsGroup": 4711}},
            "workers": {"securityContexts": {"pod": {"runAsUser": 7}}},
        }
    )
    assert restricted_violations(pod_template(objects)) == []
    assert pod_template(objects)["spec"]["securityContext"]["fsGroup"] == 4711
    assert pod_template(objects)["spec"]["securityContext"]["runAsUser"] == 7


def test_a_user_can_take_a_default_away_on_purpose():
    objects = render({"scheduler": {"securityContexts": {"pod": {"runAsNonRoot": False}}}})
    scheduler = find(objects, "Deployment", "airflow-scheduler")["spec"]["template"]
    assert scheduler["spec"]["securityContext"]["runAsNonRoot"] is False


def test_task_pods_hold_none_of_airflows_secrets():
    (base,) = pod_template(default())["spec"]["containers"]
    assert not SECRET_NAMES & set(environment(base))


def test_task_pods_get_the_metadata_connection_when_it_is_asked_for():
    (base,) = pod_template(render({"steadfast": {"workers": {"metadataAccess": True}}}))["spec"]["containers"]
    given = SECRET_NAMES & set(environment(base))
    assert given == {
        "AIRFLOW__CORE__FERNET_KEY",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN",
        "AIRFLOW__API__SECRET_KEY",
    }


def test_only_those_who_sign_or_check_tokens_hold_the_token_key():
    holders = {
        container["name"]
        for _, pod in pods(default())
        for container in containers(pod)
        if "AIRFLOW__API_AUTH__JWT_SECRET" in environment(container)
    }
    assert holders == {"api-server", "scheduler", "run-airflow-migrations"}


def test_the_sidecar_holds_the_metadata_connection_alone_or_a_narrower_one():
    def sidecar(values):
        spec = find(render(values), "Deployment", "airflow-scheduler")["spec"]["template"]["spec"]
        (found,) = [item for item in spec["initContainers"] if item["name"] == "steadfast-sidecar"]
        return environment(found)

    assert SECRET_NAMES & set(sidecar({})) == {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"}
    narrow = sidecar({"steadfast": {"sidecar": {"databaseSecretName": "reader"}}})
    assert not SECRET_NAMES & set(narrow)
    assert narrow["STEADFAST_DATABASE_URL"] == {"secretKeyRef": {"name": "reader", "key": "connection"}}


def test_the_sidecar_alone_is_given_its_certificate_and_tokens_under_settings_that_it_knows():
    own = {"tlsSecretName": "tls", "clientCaSecretName": "ca", "bearerTokenSecretName": "tokens"}
    spec = find(render({"steadfast": {"sidecar": own}}), "Deployment", "airflow-scheduler")["spec"][
        "template"
    ]
    secrets = {
        volume["name"]
        for volume in spec["spec"]["volumes"]
        if volume.get("secret", {}).get("secretName") in own.values()
    }
    assert len(secrets) == 3
    mounts = {
        container["name"]: {
            mount["mountPath"]: mount for mount in container["volumeMounts"] if mount["name"] in secrets
        }
        for container in containers(spec)
    }
    given = mounts.pop("steadfast-sidecar")
    assert len(given) == 3
    # A mount by subPath would never show a change of the Secret.
    assert all(mount["readOnly"] and "subPath" not in mount for mount in given.values())
    assert not any(mounts.values())
    (sidecar,) = [container for container in containers(spec) if container["name"] == "steadfast-sidecar"]
    known = {key.variable: key.name for key in KEYS}
    variables = {name: text for name, text in environment(sidecar).items() if name.startswith("STEADFAST_")}
    assert set(variables) <= set(known)
    files = [text for name, text in variables.items() if known[name].endswith("_file")]
    assert {str(PurePosixPath(text).parent) for text in files} == set(given)
    assert len(files) == 4


def test_task_and_scheduler_accounts_have_pod_rights_and_nothing_on_configmaps_or_secrets():
    role = find(default(), "Role", "airflow-pod-launcher-role")
    rights = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
    assert rights == {
        "pods": {"create", "get", "list", "watch", "patch", "delete"},
        "pods/log": {"get"},
        "pods/exec": {"create", "get"},
        "events": {"list", "watch"},
    }
    bound = find(default(), "RoleBinding", "airflow-pod-launcher-rolebinding")["subjects"]
    assert {item["name"] for item in bound} == {"airflow-scheduler", "airflow-worker", "airflow-triggerer"}


def test_no_role_may_touch_configmaps():
    roles = [item for item in render(ALL_ON) if item["kind"] in {"Role", "ClusterRole"}]
    assert not any(
        "configmaps" in rule["resources"] or "*" in rule["resources"]
        for role in roles
        for rule in role["rules"]
    )
    assert not any(item["kind"] == "ClusterRole" for item in roles)


def test_components_without_need_mount_no_token_of_the_api():
    accounts = {item["metadata"]["name"]: item for item in default() if item["kind"] == "ServiceAccount"}
    assert accounts["airflow-dag-processor"]["automountServiceAccountToken"] is False
    assert accounts["airflow-migrate-database-job"]["automountServiceAccountToken"] is False
    assert accounts["airflow-worker"]["automountServiceAccountToken"] is True
    postgres = find(default(), "StatefulSet", "airflow-postgresql")
    assert postgres["spec"]["template"]["spec"]["automountServiceAccountToken"] is False


def test_the_secrets_job_may_create_and_read_its_own_secrets_only():
    role = find(default(), "Role", "airflow-secrets-role")
    create, get = role["rules"]
    assert create["verbs"] == ["create"]
    assert get["verbs"] == ["get"]
    assert set(get["resourceNames"]) == {
        "airflow-fernet-key",
        "airflow-jwt-secret",
        "airflow-api-secret-key",
        "airflow-metadata",
        "airflow-postgresql",
    }
