# SPDX-License-Identifier: Apache-2.0
"""The Dag of story 1: twenty-four small tasks, each of which leaves one mark in the ledger."""

from __future__ import annotations

import os
import urllib.parse
import urllib.request
from datetime import timedelta

from airflow.sdk import DAG, get_current_context, task

LEDGER = os.environ.get("DEMO_LEDGER", "http://ledger.steadfast-demo:8080")
TASKS = 24


@task(retries=0)  # type: ignore[untyped-decorator]  # Airflow is untyped here
def leave_a_mark(number: int) -> None:
    """Tell the ledger that this task of this run was executed; fails when it cannot."""
    run_id = get_current_context()["run_id"]
    mark = urllib.parse.urlencode({"run": run_id, "who": f"task-{number}", "event": "start"})
    urllib.request.urlopen(f"{LEDGER}/mark?{mark}", data=b"", timeout=30)  # noqa: S310 - the ledger's http


with DAG(
    "demo_stale_launches",
    schedule=None,
    catchup=False,
    # Above the number queued: here the quota keeps workers few, nothing of Airflow's may.
    max_active_tasks=64,
    dagrun_timeout=timedelta(minutes=30),
    tags=["steadfast-demo"],
    doc_md=__doc__,
):
    leave_a_mark.expand(number=list(range(TASKS)))
