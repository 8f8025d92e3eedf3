# SPDX-License-Identifier: Apache-2.0
"""Values files written for the official chart are taken: every key known, what has no effect is said."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.chart import schema
from tests.chart.render import airflow_cfg, pod_template, render, render_text

DATA = Path(__file__).parent / "data"
GUARDED = "KubernetesExecutor:airflow_steadfast.launch_guard.executor.GuardedKubernetesExecutor"

# What the official chart's root offers (1.22 and the 2.0 line): a values file written for it must be taken.
OFFICIAL_ROOT = frozenset(
    [
        "fullnameOverride",
        "nameOverride",
        "useStandardNaming",
        "revisionHistoryLimit",
        "uid",
        "gid",
        "securityContext",
        "securityContexts",
        "containerLifecycleHooks",
        "airflowHome",
        "defaultAirflowRepository",
        "defaultAirflowTag",
        "defaultAirflowDigest",
        "airflowVersion",
        "images",
        "nodeSelector",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "schedulerName",
        "labels",
        "enableServiceLinks",
        "imagePullSecrets",
        "ingress",
        "networkPolicies",
        "airflowPodAnnotations",
        "airflowConfigAnnotations",
        "airflowLocalSettings",
        "rbac",
        "executor",
        "allowPodLaunching",
        "allowJobLaunching",
        "env",
        "volumes",
        "volumeMounts",
        "secret",
        "enableBuiltInSecretEnvVars",
        "priorityClasses",
        "extraSecrets",
        "extraConfigMaps",
        "extraEnv",
        "extraEnvFrom",
        "data",
        "fernetKey",
        "fernetKeySecretName",
        "fernetKeySecretAnnotations",
        "apiSecretKey",
        "apiSecretAnnotations",
        "apiSecretKeySecretName",
        "jwtSecret",
        "jwtSecretAnnotations",
        "jwtSecretName",
        "webserverSecretKey",
        "webserverSecretAnnotations",
        "webserverSecretKeySecretName",
        "kerberos",
        "workers",
        "scheduler",
        "createUserJob",
        "migrateDatabaseJob",
        "apiServer",
        "webserver",
        "triggerer",
        "dagProcessor",
        "flower",
        "statsd",
        "otelCollector",
        "pgbouncer",
        "redis",
        "registry",
        "elasticsearch",
        "opensearch",
        "ports",
        "quotas",
        "limits",
        "cleanup",
        "databaseCleanup",
        "postgresql",
        "config",
        "multiNamespaceMode",
        "podTemplate",
        "dags",
        "logs",
        "ipFamilyPolicy",
        "ipFamilies",
        "mountConfigAsDir",
    ]
)


def test_the_official_root_keys_are_all_known():
    tree = yaml.safe_load(schema.SOURCE.read_text(encoding="utf-8"))
    assert OFFICIAL_ROOT - set(tree["properties"]) == set()


def test_a_values_file_of_the_official_chart_is_taken():
    values = {
        "executor": "KubernetesExecutor",
        "useStandardNaming": True,
        "statsd": {"enabled": True},
        "redis": {"enabled": True},
        "webserverSecretKeySecretName": "old",
        "data": {"metadataSecretName": "my-db", "brokerUrl": None},
        "postgresql": {"enabled": False},
        "config": {"core": {"executor": "{{ .Values.executor }}"}},
        "scheduler": {
            "logGroomerSidecar": {"enabled": True, "retentionDays": 7},
            "podDisruptionBudget": {"enabled": True},
        },
        "workers": {"resources": {"requests": {"cpu": "1"}}, "celery": {"replicas": 2}},
        "migrateDatabaseJob": {"useHelmHooks": False},
        "x-shared": {"a": "b"},
    }
    notes = render_text(values)["airflow/templates/NOTES.txt"]
    assert (
        "without effect in this chart: statsd.enabled, redis.enabled, scheduler.podDisruptionBudget.enabled"
        in notes
    )
    objects = render(values)
    assert pod_template(objects)["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "100m", "memory": "256Mi"}
    }
    assert f"executor = {GUARDED}\n" in airflow_cfg(objects)


def test_the_whole_tree_of_the_official_chart_is_taken_as_it_stands():
    """Every key of chart 1.22 with its default (long texts and templates left out), but for the executor."""
    tree = json.loads(
        (Path(__file__).parent / "data" / "official-values-1.22.json").read_text(encoding="utf-8")
    )
    assert len(tree) > 80
    objects = render({**tree, "executor": "KubernetesExecutor"})
    assert {"Deployment", "StatefulSet", "Job", "Service"} <= {item["kind"] for item in objects}
    assert not [item for item in objects if "redis" in item["metadata"]["name"]]


@pytest.mark.parametrize(("limit", "count"), [(None, 1), ("1500m", 2), ("2", 2), ("0.5", 1)])
def test_helpers_that_official_values_call_are_here(limit, count):
    call = '{{ include "cpu_count" .Values.scheduler.resources.limits.cpu }}'
    values = {
        "scheduler": {"resources": {"limits": {"cpu": limit}}},
        "config": {"celery": {"sync_parallelism": call}},
    }
    assert f"sync_parallelism = {count}\n" in airflow_cfg(render(values))
