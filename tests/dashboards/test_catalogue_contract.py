# SPDX-License-Identifier: Apache-2.0
"""Every metric that somebody draws, alerts on or writes about exists, and every one that exists is drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from airflow_steadfast import settings
from airflow_steadfast.signals import catalogue
from dashboards import dashboard, rules, sample, selectors
from steadfast_sidecar import exposition
from steadfast_sidecar.tally import Tally
from tests.dashboards.promql import uses

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = dashboard.build()
DRAWN = [target["expr"] for panel in DOCUMENT["panels"] for target in panel["targets"]]
MARKED = [entry["expr"] for entry in DOCUMENT["annotations"]["list"]]
RULES = [rule for group in rules.rule_file()["groups"] for rule in group["rules"]]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
FROM_PROMETHEUS = {"up", "ALERTS"}


def families(expressions: list[str]) -> set[str]:
    names = {use.name for expr in expressions for use in uses(expr)}
    return {selectors.family(name).name for name in names - FROM_PROMETHEUS - RECORDED}


def test_every_metric_of_the_catalogue_is_on_the_dashboard():
    assert set(catalogue.BY_NAME) - families([*DRAWN, *MARKED]) == set()


def test_everything_drawn_or_alerted_on_is_in_the_catalogue():
    families([*DRAWN, *MARKED, *(rule["expr"] for rule in RULES)])


def test_labels_asked_for_are_the_catalogues():
    """Beside the scrape's own, an expression may name only labels that its metric has, and their values."""
    for expr in [*DRAWN, *MARKED, *(rule["expr"] for rule in RULES)]:
        for use in uses(expr):
            if use.name in FROM_PROMETHEUS | RECORDED:
                continue
            metric = selectors.family(use.name)
            for label, (_, value) in use.labels.items():
                if label not in {"job", "instance"}:
                    assert set(value.split("|")) <= set(metric.labels[label]), (use, label)


@pytest.mark.parametrize("path", sorted((ROOT / "docs/runbooks").glob("*.md")), ids=lambda path: path.name)
def test_runbooks_name_only_metrics_that_exist(path):
    for name in re.findall(r"\bsteadfast_\w+", path.read_text(encoding="utf-8")):
        if name != "steadfast_sidecar":
            selectors.family(name)


def test_the_launch_guards_page_explains_every_reason_and_names_only_what_exists():
    page = (ROOT / "docs/launch-guard.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    assert set(catalogue.DROP_REASONS) | set(catalogue.CHECK_ERROR_REASONS) <= explained
    for name in re.findall(r"\bsteadfast_\w+", page):
        selectors.family(name)
    known = {setting.name for setting in settings.table()}
    assert set(re.findall(r"`(guard_\w+)`", page)) <= known


def test_the_sample_moves_what_panels_filter_and_has_every_series():
    names = set(re.findall(r"^(\w+)\{", sample.openmetrics(), re.MULTILINE)) - FROM_PROMETHEUS
    assert {selectors.family(name).name for name in names} == set(catalogue.BY_NAME)


def test_a_sidecar_exposes_each_series_that_is_asked_for():
    page, _ = exposition.render(exposition.registry(Tally()), "text/plain")
    exposed = [
        sample for family in text_string_to_metric_families(page.decode()) for sample in family.samples
    ]
    for expr in [*DRAWN, *MARKED, *(rule["expr"] for rule in RULES)]:
        for use in uses(expr):
            if use.name in FROM_PROMETHEUS | RECORDED:
                continue
            wanted = {label: set(value.split("|")) for label, (_, value) in use.labels.items()}
            for label in ("job", "instance"):
                wanted.pop(label, None)
            assert any(
                sample.name == use.name
                and all(sample.labels.get(label) in allowed for label, allowed in wanted.items())
                for sample in exposed
            ), use
