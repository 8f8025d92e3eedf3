# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

from airflow_steadfast.signals.catalogue import METRICS
from airflow_steadfast.signals.handoff import HistogramTotals, series_key
from steadfast_sidecar import exposition
from steadfast_sidecar.poller import Poller
from steadfast_sidecar.sources import Reading, Reason, SourceError
from steadfast_sidecar.tally import Tally
from tests.support.sidecar_process import parse

DECIDED = "steadfast_launches_decided_total"
DURATION = "steadfast_launch_check_duration_seconds"
SETTINGS = "steadfast_settings_errors_total"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def scrape(tally, accept=""):
    body, content_type = exposition.render(exposition.registry(tally), accept)
    return body.decode(), content_type


def expected_series():
    for metric in METRICS:
        for labels in metric.series():
            names = [metric.name]
            if metric.kind == "histogram":
                names = [f"{metric.name}_{suffix}" for suffix in ("count", "sum")]
            for name in names:
                yield name, frozenset(labels.items())


def test_every_series_of_the_catalogue_is_there_at_zero_before_any_read():
    body, _ = scrape(Tally())
    samples = parse(body)
    assert {series: samples[series] for series in expected_series()} == dict.fromkeys(expected_series(), 0.0)
    assert any(name == "steadfast_build_info" for name, _ in samples)


def test_nothing_but_the_catalogue_and_the_process_is_exposed():
    body, _ = scrape(Tally())
    assert "_created" not in body
    names = {name for name, _ in parse(body)}
    known = {name for name, _ in expected_series()} | {f"{DURATION}_bucket", "steadfast_build_info"}
    assert {name for name in names if not name.startswith("process_")} == known


def test_openmetrics_is_served_to_those_who_ask():
    tally = Tally()
    tally.accept("handoff", Reading(values={(DECIDED, ()): 4.0}))
    body, content_type = scrape(tally, OPENMETRICS)
    assert content_type.startswith("application/openmetrics-text")
    samples = {sample.name: sample.value for family in parse_openmetrics(body) for sample in family.samples}
    assert samples[DECIDED] == 4
    assert scrape(tally)[1].startswith("text/plain")


def test_readings_are_summed_over_the_sources():
    tally = Tally()
    histogram = HistogramTotals((0.1, 1.0), [1.0, 2.0], 1.5, 3.0)
    process = {"airflow": "3.3.2", "provider": "10.25.0"}
    reading = Reading({(SETTINGS, ()): 1.0}, {(DURATION, ()): histogram}, process, mtime=9)
    tally.accept("handoff", reading)
    tally.accept("outbox", Reading(values={(SETTINGS, ()): 2.0}, pending=5))
    samples = parse(scrape(tally)[0])
    assert samples[SETTINGS, frozenset()] == 3
    assert samples[f"{DURATION}_count", frozenset()] == 3
    assert samples[f"{DURATION}_bucket", frozenset({("le", "+Inf")})] == 3
    assert samples["steadfast_outbox_pending", frozenset()] == 5
    assert samples["steadfast_handoff_mtime_seconds", frozenset()] == 9
    build = next(dict(labels) for name, labels in samples if name == "steadfast_build_info")
    assert (build["airflow"], build["provider"]) == ("3.3.2", "10.25.0")


def test_a_failed_read_keeps_the_numbers_and_is_logged_once(caplog):
    caplog.set_level(logging.INFO)
    tally = Tally()
    up = series_key("steadfast_source_up", {"source": "handoff"})
    tally.accept("handoff", Reading(values={(DECIDED, ()): 4.0}))
    assert tally.view().values[up] == 1
    for _ in range(3):
        tally.reject("handoff", Reason("missing", "gone"))
    view = tally.view()
    assert view.values[up] == 0
    assert view.values[DECIDED, ()] == 4
    assert view.values[series_key("steadfast_collector_errors_total", {"source": "handoff"})] == 3
    tally.accept("handoff", Reading(values={(DECIDED, ()): 5.0}))
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]


def test_a_fresh_start_is_down_but_no_error():
    tally = Tally()
    tally.reject("handoff", Reason("not_yet", "the scheduler has not started"))
    view = tally.view()
    assert view.values[series_key("steadfast_source_up", {"source": "handoff"})] == 0
    assert view.values[series_key("steadfast_collector_errors_total", {"source": "handoff"})] == 0


def test_a_degraded_reading_counts_but_the_source_is_not_up():
    tally = Tally()
    tally.accept("outbox", Reading(values={(SETTINGS, ()): 2.0}, degraded=Reason("stale", "old")))
    view = tally.view()
    assert view.values[SETTINGS, ()] == 2
    assert view.values[series_key("steadfast_source_up", {"source": "outbox"})] == 0
    assert (
        view.values[series_key("steadfast_source_last_success_timestamp_seconds", {"source": "outbox"})] == 0
    )


def test_what_an_unanswering_source_counted_is_unknown_and_not_zero():
    tally = Tally()
    tally.accept("handoff", Reading(values={(DECIDED, ()): 4.0}))
    tally.reject("outbox", Reason("database:08006", "connection refused"))
    names = set(parse(scrape(tally)[0]))
    assert (DECIDED, frozenset()) in names
    assert ("steadfast_reattach_attempts_total", frozenset()) not in names
    tally.accept("outbox", Reading())
    assert parse(scrape(tally)[0])["steadfast_reattach_attempts_total", frozenset()] == 0
    tally.reject("outbox", Reason("database:08006", "connection refused"))
    assert parse(scrape(tally)[0])["steadfast_reattach_attempts_total", frozenset()] == 0


def test_a_store_that_this_airflow_does_not_have_counts_zero():
    tally = Tally()
    tally.reject("outbox", Reason("no_state_store", "Airflow is older than 3.3"))
    assert parse(scrape(tally)[0])["steadfast_reattach_attempts_total", frozenset()] == 0


class Scripted:
    """A source whose reads end as told."""

    name = "handoff"

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)

    def read(self):
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.mark.parametrize(
    ("failure", "code"),
    [(SourceError("missing", "gone"), "missing"), (RuntimeError("a bug"), "internal:RuntimeError")],
)
def test_no_failure_of_a_source_ends_its_loop(failure, code):
    tally = Tally(["handoff"])
    poller = Poller(Scripted(failure, Reading()), tally, 5)
    poller.poll()
    assert tally.health()["handoff"].code == code
    assert tally.was_read()
    poller.poll()
    assert tally.health()["handoff"] is None


def test_a_loop_that_hangs_does_not_progress(monkeypatch):
    poller = Poller(Scripted(Reading()), Tally(["handoff"]), 5)
    assert not poller.progresses(), "never started"
    monkeypatch.setattr(poller._thread, "is_alive", lambda: True)
    assert poller.progresses()
    monkeypatch.setattr(poller, "_due", poller._due - 61)
    assert not poller.progresses()
