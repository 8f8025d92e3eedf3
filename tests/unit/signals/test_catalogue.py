# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re

import pytest

from airflow_steadfast.signals.catalogue import BY_NAME, METRICS
from airflow_steadfast.signals.outbox import METRIC_BY_KIND

FORBIDDEN_LABELS = {
    "dag_id", "task_id", "run_id", "pod", "job", "instance", "namespace", "service", "container",
}  # fmt: skip


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_each_metric_follows_the_naming_rules(metric):
    assert re.fullmatch(r"steadfast_[a-z][a-z_]*[a-z]", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert metric.help.endswith(".")
    assert not FORBIDDEN_LABELS & set(metric.labels)
    assert len(list(metric.series())) <= 16
    assert bool(metric.buckets) == (metric.kind == "histogram")
    assert list(metric.buckets) == sorted(metric.buckets)


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_combinations_are_made_of_the_labels_values_and_leave_none_out(metric):
    rows = list(metric.series())
    for label, allowed in metric.labels.items():
        assert {row[label] for row in rows} == set(allowed)
    assert len({tuple(row.items()) for row in rows}) == len(rows)
    assert all(set(row) == set(metric.labels) for row in rows if row)


def test_names_are_unique():
    assert len(BY_NAME) == len(METRICS)


def test_a_free_text_label_has_no_series_to_start_at_zero():
    assert list(BY_NAME["steadfast_build_info"].series()) == []


def test_every_event_adds_to_a_counter_of_the_catalogue():
    for name in METRIC_BY_KIND.values():
        assert BY_NAME[name].kind == "counter"


def test_labels_that_do_not_fit_become_other():
    metric = BY_NAME["steadfast_workloads_dropped_total"]
    assert metric.normalise({"reason": "state_changed"}) == ({"reason": "state_changed"}, ())
    assert metric.normalise({"reason": "new"}) == ({"reason": "other"}, ("reason",))
    assert metric.normalise({}) == ({"reason": "other"}, ("reason",))
    assert metric.normalise({"reason": "state_changed", "dag_id": "d"}) == (
        {"reason": "state_changed"},
        ("dag_id",),
    )
