# SPDX-License-Identifier: Apache-2.0
"""The rules of Grafana's dashboard-linter, over PromQL's syntax tree, and what we ask of panels beyond."""

from __future__ import annotations

import re

import pytest

from airflow_steadfast.signals import catalogue
from dashboards import dashboard, selectors
from dashboards.rules import BURNS
from tests.dashboards.promql import WINDOW, parse, uses

DOCUMENT = dashboard.build()
PANELS = DOCUMENT["panels"]
TARGETS = [
    pytest.param(panel, target, id=f"{panel['title']}: {target['legendFormat']}")
    for panel in PANELS
    for target in panel["targets"]
]
VARIABLES = {variable["name"]: variable for variable in DOCUMENT["templating"]["list"]}

KNOWN_UNITS = {"short", "percentunit", "s", "cpm", "dateTimeFromNow"}
NOT_OURS = {"ALERTS": "Prometheus's own series, which carries the rule's labels: a job but no instance"}
RATES = {"rate", "irate", "increase"}


def test_template_datasource():
    assert VARIABLES["datasource"]["type"] == "datasource"
    assert VARIABLES["datasource"]["query"] == "prometheus"
    assert VARIABLES["datasource"]["label"] == "Data source"


@pytest.mark.parametrize("name", ["job", "instance"])
def test_template_job_and_instance(name):
    variable = VARIABLES[name]
    assert variable["type"] == "query"
    assert variable["datasource"]["uid"] == "${datasource}"
    assert variable["multi"] is True
    assert variable["includeAll"] is True
    assert variable["allValue"] == ".+"
    assert variable["label"][0].isupper()


@pytest.mark.parametrize("name", ["job", "instance"])
def test_template_label_promql(name):
    match = re.fullmatch(r"label_values\((.+), (\w+)\)", VARIABLES[name]["query"])
    assert match
    assert match[2] == name
    parse(match[1])
    assert VARIABLES[name]["definition"] == VARIABLES[name]["query"]


@pytest.mark.parametrize("name", ["job", "instance"])
def test_template_on_time_change_reload(name):
    assert VARIABLES[name]["refresh"] == 2


def test_uneditable():
    assert DOCUMENT["editable"] is False


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_title_description(panel):
    assert panel["title"]
    assert not panel["title"].endswith(".")
    # A description explains and says what to do, in the size of a tooltip.
    assert 100 < len(panel["description"]) < 420, len(panel["description"])
    assert panel["description"].rstrip().endswith(".")


def test_no_two_panels_have_one_title():
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_datasource(panel):
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_units(panel):
    options = [panel["fieldConfig"]["defaults"].get("unit")]
    for override in panel["fieldConfig"]["overrides"]:
        options += [entry["value"] for entry in override["properties"] if entry["id"] == "unit"]
    assert set(options) <= KNOWN_UNITS


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_no_targets(panel):
    assert panel["targets"]
    assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_target_promql(panel, target):
    parse(target["expr"])


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_target_rate_interval(panel, target):
    """``rate`` follows the scrape interval; a fixed window is for ``increase``, and spans four scrapes."""
    for window in re.findall(r"\birate?\(|\brate\([^[]+\[([^]]+)\]", target["expr"]):
        assert window == "$__rate_interval"
    for use in uses(target["expr"]):
        assert use.seconds is None or use.seconds >= 4 * WINDOW.scrape


@pytest.mark.parametrize(("panel", "target"), TARGETS)
@pytest.mark.parametrize("label", ["job", "instance"])
def test_target_job_and_instance(panel, target, label):
    for use in uses(target["expr"].replace(f"${label}", f"CHOSEN_{label}")):
        if use.name in NOT_OURS and label == "instance":
            continue
        assert use.labels[label][1] == f"CHOSEN_{label}", use
        assert use.labels[label][0].endswith("Re"), use


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_target_counter_agg(panel, target):
    """A counter is read only through a rate, and the rate is taken before the sum."""
    for use in uses(target["expr"]):
        is_counter = use.name.endswith(("_total", "_bucket", "_sum", "_count"))
        assert is_counter == bool(RATES & set(use.around)), use
        if is_counter:
            assert use.around[-1] in RATES
            assert "sum" in use.around


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_legend_names_only_labels_that_the_query_keeps(panel, target):
    kept = set(re.findall(r"by \(([\w, ]+)\)", target["expr"].replace("by (le)", "")))
    kept = {label.strip() for group in kept for label in group.split(",")}
    assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) == kept


@pytest.mark.parametrize(("panel", "target"), TARGETS)
def test_tiles_ask_once_and_graphs_over_time(panel, target):
    assert bool(target.get("instant")) == (panel["type"] == "stat")
    assert bool(target.get("range")) == (panel["type"] == "timeseries")


def test_limits_drawn_are_those_of_the_rules():
    drawn = {
        step["value"]
        for panel in PANELS
        if panel["title"].startswith("Share")
        for step in panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
    }
    assert sorted(drawn - {None, 0}) == pytest.approx([BURNS[-1].threshold, BURNS[0].threshold])


@pytest.mark.parametrize(
    ("name", "labels", "complaint"),
    [
        ("workload_dropped_total", {}, "No metric steadfast_workload_dropped_total"),
        ("workloads_dropped_total", {"raison": "other"}, "no label raison; it has ['reason']"),
        ("workloads_dropped_total", {"reason": "stale"}, 'no reason="stale"'),
        ("launches_held", {"reason": "other"}, "it has none"),
        ("launches_held_sum", {}, "No metric steadfast_launches_held_sum"),
    ],
)
def test_a_selector_outside_the_catalogue_is_refused(name, labels, complaint):
    with pytest.raises(LookupError, match=re.escape(complaint)):
        selectors.Scope().series(name, **labels)


def test_reasons_named_in_descriptions_exist():
    reasons = {*catalogue.DROP_REASONS, *catalogue.FALLBACK_REASONS}
    described = " ".join(panel["description"] for panel in PANELS)
    for word in re.findall(r"\b[a-z]+_[a-z_]+\b", described):
        known = word in reasons or word in {"task_queued_timeout", "guard_max_hold"}
        assert known, f"{word} is neither a reason nor a setting"
    assert reasons - {catalogue.OTHER} <= set(re.findall(r"[a-z_]+", described))
