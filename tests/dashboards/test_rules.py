# SPDX-License-Identifier: Apache-2.0
"""The rules pass promtool's strictest check and its unit tests, and hold to the conventions of a mixin."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import promql_parser
import pytest
import yaml

from dashboards import rules
from dashboards.generate import GENERATED
from tests.dashboards.promql import grouping, nodes, uses

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "tests/dashboards/rules").glob("*.yaml"))
FAST_CASES = [case for case in CASES if "slow" not in case.name]
ALL = [rule for group in rules.rule_file()["groups"] for rule in group["rules"]]
ALERTS = [
    pytest.param(rule, id=f"{rule['alert']} {rule['labels'].get('long', '')}")
    for rule in ALL
    if "alert" in rule
]
RECORDS = [rule for rule in ALL if "record" in rule]


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)


@pytest.mark.promtool
def test_promtool_check():
    said = promtool("check", "rules", "--lint=all", "--lint-fatal", GENERATED / "steadfast-rules.yaml")
    assert said.returncode == 0, said.stdout + said.stderr
    assert f"SUCCESS: {len(ALL)} rules found" in said.stdout + said.stderr


@pytest.mark.promtool
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_promtool_cases(case):
    said = promtool("test", "rules", case)
    assert said.returncode == 0, said.stdout + said.stderr


def test_every_alert_has_a_firing_and_a_silent_case():
    cases = [test for case in CASES for test in yaml.safe_load(case.read_text(encoding="utf-8"))["tests"]]
    for name in {rule["alert"] for rule in ALL if "alert" in rule}:
        asked = [
            bool(check.get("exp_alerts") or check.get("exp_samples"))
            for test in cases
            for check in [*test.get("alert_rule_test", []), *test.get("promql_expr_test", [])]
            if name in (check.get("alertname") or check["expr"])
        ]
        assert {True, False} <= set(asked), name


@pytest.mark.promtool
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (">= 5", ">= 1"),
        (">= 5", ">= 500"),
        ("keep_firing_for: 15m", "keep_firing_for: 1m"),
        ("for: 2m", "for: 20m"),
        ("(14.4 * 0.01)", "(99.0 * 0.01)"),
        ("sum by (namespace, job) (rate", "sum (rate"),
        ("up == 0 and on (job, instance)", "up == 0 or"),
        ("== 0\n      unless", ">= 0\n      unless"),
        ("(steadfast_stranded_task_instances) > 0", "(steadfast_stranded_task_instances) > 2"),
        (
            "for: 10m\n    labels:\n      severity: warning\n    annotations:\n      summary: Queued task",
            "for: 1m\n    labels:\n      severity: warning\n    annotations:\n      summary: Queued task",
        ),
        ('{reason="token_expired"}[1h])) > 0', "[1h])) > 0"),
        (
            "(increase(steadfast_worker_pods_unpatched_total[1h])) > 0",
            "(increase(steadfast_worker_pods_unpatched_total[1h])) >= 0",
        ),
    ],
)
def test_the_cases_notice_a_wrong_rule(tmp_path, right, wrong):
    text = (GENERATED / "steadfast-rules.yaml").read_text(encoding="utf-8")
    assert right in text
    (tmp_path / "rules.yaml").write_text(text.replace(right, wrong), encoding="utf-8")
    outcomes = []
    for case in FAST_CASES:
        told = case.read_text(encoding="utf-8").replace(
            "../../../dashboards/generated/steadfast-rules.yaml", str(tmp_path / "rules.yaml")
        )
        (tmp_path / case.name).write_text(told, encoding="utf-8")
        outcomes.append(promtool("test", "rules", tmp_path / case.name).returncode)
    assert any(outcomes)


@pytest.mark.parametrize("alert", ALERTS)
def test_alert_conventions(alert):
    assert re.fullmatch(r"Steadfast([A-Z][a-z]+)+", alert["alert"])
    assert alert["labels"]["severity"] in {"warning", "info"}, "a drop is the guard at work: never critical"
    assert re.fullmatch(r"\d+[mh]", alert["for"])
    assert not any("$" in value for value in alert["labels"].values()), "a value in a label makes a new alert"
    notes = alert["annotations"]
    assert set(notes) == {"summary", "description", "runbook_url"}
    assert notes["summary"].endswith(".")
    assert "{{" not in notes["summary"], "one sentence for all instances"
    assert notes["description"].rstrip("}end {").endswith(".")


@pytest.mark.parametrize("alert", ALERTS)
def test_runbook_exists_and_is_about_this_alert(alert):
    base, _, page = alert["annotations"]["runbook_url"].rpartition("/")
    assert base.endswith("/docs/runbooks")
    text = (ROOT / "docs/runbooks" / page).read_text(encoding="utf-8")
    assert text.startswith(f"# {alert['alert']}\n")
    for part in ("## What it means", "## First look", "## What to do"):
        assert part in text


@pytest.mark.parametrize("alert", ALERTS)
def test_templates_read_only_labels_that_the_expression_keeps(alert):
    read = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
    assert read <= {"namespace", "job", "instance"}
    if alert["alert"] == rules.BURN_ALERT:
        assert read <= grouping(alert["expr"])


@pytest.mark.parametrize("alert", ALERTS)
def test_sampling_and_absence(alert):
    """``absent`` needs patience, and no alert looks at a single pair of samples."""
    functions = {node.func.name for node in nodes(alert["expr"]) if isinstance(node, promql_parser.Call)}
    assert not functions & {"irate", "idelta"}
    if "absent" in functions:
        assert alert["for"] == "5m"


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.get("record") or rule["alert"] + rule["for"])
def test_counters_are_read_through_a_rate_taken_before_the_sum(rule):
    for use in uses(rule["expr"]):
        if use.name.endswith("_total"):
            assert use.around == ("sum", use.around[-1])
            assert use.around[-1] in {"rate", "increase"}
            assert use.seconds
            assert use.seconds >= 4 * 60, "four scrapes at one a minute"


@pytest.mark.parametrize("rule", RECORDS, ids=lambda rule: rule["record"])
def test_recording_rules_are_named_by_level_metric_operation(rule):
    level, metric, operation = rule["record"].split(":")
    assert level == "job"
    assert "_total" not in metric
    window = operation.removeprefix("ratio_rate")
    assert f"[{window}]" in rule["expr"]
    assert grouping(rule["expr"]) == {"namespace", "job"}


def test_every_recorded_window_is_used_and_every_used_one_recorded():
    used = {window for burn in rules.BURNS for window in (burn.long, burn.short)}
    assert used == set(rules.WINDOWS)


def test_only_what_prometheus_2_42_reads():
    for group in rules.rule_file()["groups"]:
        assert set(group) == {"name", "rules"}
    assert {key for rule in ALL for key in rule} <= {
        *("record", "alert", "expr", "for"),
        *("keep_firing_for", "labels", "annotations"),
    }
