# SPDX-License-Identifier: Apache-2.0
"""The chart under the commands that people type: Helm 3.22, Helm 4, and helm-unittest."""

from __future__ import annotations

import subprocess
import sys

import helm_python
import pytest
import yaml

from tests.chart.render import CHART, REPOSITORY, Loader, render

pytestmark = pytest.mark.helm

NOISE = "found symbolic link in path"


def tool(name):
    """Path of a tool: from PATH where new enough, else built once into the user's cache."""
    command = [sys.executable, "-m", "tests.cluster", "tool", name]
    done = subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def helm():
    return tool("helm")


def run(*command):
    return subprocess.run(command, check=False, capture_output=True, text=True)


def said(done):
    """What the command printed on standard error, without Helm's notes on symbolic links."""
    return "\n".join(line for line in done.stderr.splitlines() if NOISE not in line)


@pytest.mark.timeout(900)
def test_the_helm_command_lints_strictly(helm):
    # 3.22 where the project builds it; a user's own may be any from 3.19 on.
    assert run(helm, "version", "--short").stdout.startswith(("v3.", "v4."))
    done = run(helm, "lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout
    assert "ERROR" not in done.stdout


def test_helm_4_lints_strictly():
    report = helm_python.lint(str(CHART), strict=True)
    assert report["errors"] == []
    assert [item for item in report["messages"] if item["severity"] > 1] == []


def test_two_templates_of_the_command_are_the_same_bytes_and_make_what_helm_4_makes(helm):
    first, second = (run(helm, "template", "airflow", str(CHART), "-n", "airflow") for _ in range(2))
    assert first.returncode == 0, first.stderr
    assert first.stdout == second.stdout

    def keyed(objects):
        return {(item["kind"], item["metadata"]["name"]): item for item in objects}

    by_three = [item for item in yaml.load_all(first.stdout, Loader) if item]
    assert keyed(by_three) == keyed(render())


def test_where_the_schema_is_skipped_the_templates_name_the_key(helm):
    command = [helm, "template", "airflow", str(CHART), "--skip-schema-validation", "--set"]
    assert "steadfast.bogus: unknown key" in said(run(*command, "steadfast.bogus=1"))
    assert "steadfast.metrics.podMonitr: unknown key" in said(
        run(*command, "steadfast.metrics.podMonitr.enabled=true")
    )
    assert 'executor: "CeleryExecutor" is not supported' in said(run(*command, "executor=CeleryExecutor"))


@pytest.mark.timeout(900)
def test_the_helm_unittest_suites_pass():
    done = run(tool("helm-unittest"), "--file", "tests/*/*_test.yaml", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
