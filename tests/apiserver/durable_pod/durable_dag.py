# SPDX-License-Identifier: Apache-2.0
"""The Dag of the scenarios: each task once with our operator and once with the provider's."""

import os
from datetime import timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG

from airflow_steadfast.durable_pod import DurableKubernetesPodOperator

COMMON = {
    "namespace": "{{ run_id }}",
    "image": "registry.invalid/image:1",
    "config_file": os.environ["BENCH_KUBECONFIG"],
    "in_cluster": False,
    "get_logs": False,
    "log_events_on_startup": False,
    "startup_check_interval_seconds": 1,
    "base_container_status_polling_interval": 0.2,
    "retries": 3,
}

with DAG("durable", schedule=None) as dag:
    for prefix, operator in (("ours", DurableKubernetesPodOperator), ("stock", KubernetesPodOperator)):
        operator(task_id=prefix, **COMMON)
    durable = DurableKubernetesPodOperator
    durable(task_id="ours_kept", on_finish_action="keep_pod", **COMMON)
    durable(task_id="ours_fixed_name", name="fixed", random_name_suffix=False, **COMMON)
    durable(task_id="ours_not_durable", durable=False, **COMMON)
    durable(task_id="ours_xcom", do_xcom_push=True, **COMMON)
    KubernetesPodOperator(task_id="stock_labels", labels={"stamp": "{{ ti.try_number }}"}, **COMMON)
    durable(task_id="ours_last", **{**COMMON, "retries": 0})
    for prefix, operator in (("ours", DurableKubernetesPodOperator), ("stock", KubernetesPodOperator)):
        operator(
            task_id=f"{prefix}_timeout",
            execution_timeout=timedelta(seconds=8),
            on_finish_action="delete_succeeded_pod",
            **COMMON,
        )
    powerless = {**COMMON, "config_file": os.environ["BENCH_POWERLESS_KUBECONFIG"]}
    durable(task_id="ours_powerless", **powerless)
