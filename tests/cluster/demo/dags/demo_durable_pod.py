# SPDX-License-Identifier: Apache-2.0
"""The Dag of stories 2 and 3: one pod that works until the story lets it finish.

It leaves a mark at each end. It uses the stock operator: the chart's patch makes it durable.
"""

from __future__ import annotations

import os
from datetime import timedelta

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

LEDGER = os.environ.get("DEMO_LEDGER", "http://ledger.steadfast-demo:8080")
IMAGE = os.environ.get("DEMO_IMAGE", "docker.io/apache/airflow:3.3.2")

WORK = """
import os, time, urllib.parse, urllib.request
run, ledger = os.environ["RUN"], os.environ["LEDGER"]

def ask(page, **query):
    body = b"" if page == "mark" else None
    address = f"{ledger}/{page}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, data=body, timeout=30) as answer:
        return answer.read().decode()

ask("mark", run=run, who=os.environ["HOSTNAME"], event="start")
print("at work", flush=True)
deadline = time.monotonic() + 900
while ask("released", run=run) != "yes":
    if time.monotonic() > deadline:
        raise SystemExit("nobody let this pod finish")
    time.sleep(1)
ask("mark", run=run, who=os.environ["HOSTNAME"], event="end")
print("done", flush=True)
"""

with DAG(
    "demo_durable_pod",
    schedule=None,
    catchup=False,
    dagrun_timeout=timedelta(minutes=30),
    tags=["steadfast-demo"],
    doc_md=__doc__,
):
    KubernetesPodOperator(
        task_id="work",
        name="demo-work",
        image=IMAGE,
        cmds=["python3"],
        arguments=["-c", WORK],
        env_vars={"RUN": "{{ run_id }}", "LEDGER": LEDGER},
        annotations={"demo/run": "{{ run_id }}"},
        kubernetes_conn_id=None,
        in_cluster=True,
        get_logs=True,
        retries=1,
        # Long enough for story 3 to remove the stored identity before the retry looks for it.
        retry_delay=timedelta(seconds=8),
        startup_timeout_seconds=300,
        container_resources=k8s.V1ResourceRequirements(requests={"cpu": "10m", "memory": "32Mi"}),
        security_context={"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        container_security_context={"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    )
