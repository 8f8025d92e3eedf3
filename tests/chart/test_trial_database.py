# SPDX-License-Identifier: Apache-2.0
"""The trial PostgreSQL: its data goes with its pod, so nothing takes that pod away without need."""

from __future__ import annotations

import shutil

import pytest

from tests.chart.render import CHART, find, render


def test_an_upgrade_of_chart_or_code_does_not_restart_the_trial_database(tmp_path):
    copy = tmp_path / "chart"
    shutil.copytree(CHART, copy, ignore=shutil.ignore_patterns("__pycache__"))
    about = copy / "Chart.yaml"
    about.write_text(
        about.read_text(encoding="utf-8").replace("version: 0.", "version: 9."), encoding="utf-8"
    )
    (copy / "files" / "airflow_steadfast" / "more.py").write_text("", encoding="utf-8")
    before, after = (
        find(render(chart=chart), "StatefulSet", "airflow-postgresql") for chart in (CHART, copy)
    )
    assert before["metadata"]["labels"]["chart"] != after["metadata"]["labels"]["chart"]
    assert before["spec"] == after["spec"]


def migration_job(values):
    (found,) = [
        item["metadata"]["name"]
        for item in render(values)
        if "run-airflow-migrations" in item["metadata"]["name"]
    ]
    return found


@pytest.mark.parametrize(("persistent", "runs_again"), [(False, True), (True, False)])
def test_a_pod_that_comes_back_empty_is_migrated_again(persistent, runs_again):
    plain = {"postgresql": {"persistence": {"enabled": persistent}}}
    changed = {
        "postgresql": {"persistence": {"enabled": persistent}, "resources": {"limits": {"memory": "1Gi"}}}
    }
    assert (migration_job(plain) != migration_job(changed)) is runs_again
