# SPDX-License-Identifier: Apache-2.0
"""Six hours in the life of one Airflow, made up, for the default preview and for the tests of the panels.

Every series of the catalogue exists from the first sample, and every one that a panel filters by "> 0"
moves at least once.
"""

from __future__ import annotations

import math
from collections import defaultdict

from airflow_steadfast.signals import catalogue
from dashboards.rules import BURN_ALERT
from dashboards.selectors import PREFIX

END = 1793620800
"""2026-11-02 12:00 UTC, in Unix seconds: fixed, so that the same picture comes out every time."""

MINUTES = 360
SCRAPE = 30
TARGET = {"job": "airflow/airflow-scheduler", "instance": "10.244.1.7:9109", "namespace": "airflow"}

# What happens, in minutes from the start.
UPGRADE = 40
"""Observe mode until here, then a new version in enforce mode."""
WOULD_DROP, WOULD_DROP_END = 18, 24
"""A run is cleared in observe mode: nothing is dropped, but counted."""
TAKE_OVER = 120
"""One task is taken over by another scheduler."""
SILENCE, SILENCE_END = 170, 173
"""The metadata database does not answer."""
QUOTA, QUOTA_END = 298, 352
"""A quota blocks worker pods, and runs that wait for it are cleared."""
DRAIN = 236
"""A node is drained while KubernetesPodOperator tasks run on it."""

Labels = tuple[tuple[str, str], ...]


def openmetrics() -> str:
    """Return the six hours as OpenMetrics text with timestamps; the same text on every call."""
    airflow = _Airflow()
    history: dict[tuple[str, Labels], list[str]] = defaultdict(list)
    start = END - MINUTES * 60
    for second in range(0, MINUTES * 60 + 1, SCRAPE):
        _live(airflow, second, start + second)
        for (name, labels), value in {**airflow.values, **_around(second)}.items():
            text = ",".join(f'{label}="{value}"' for label, value in sorted((dict(labels) | TARGET).items()))
            history[name, labels].append(f"{name}{{{text}}} {value:.10g} {start + second}")
    # The samples of one metric must follow one another.
    lines = [line for key in sorted(history) for line in history[key]]
    return "\n".join([*lines, "# EOF", ""])


class _Airflow:
    """The totals of one scheduler and its sidecar, by metric and labels; all at 0 to begin with."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, Labels], float] = {
            (name, _key(labels | extra)): 0.0
            for metric in catalogue.METRICS
            for labels in metric.series()
            for name, extra in _exposed(metric)
        }

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        self.values[PREFIX + name, _key(labels)] += amount

    def put(self, name: str, value: float, **labels: str) -> None:
        self.add(name, value - self.values[PREFIX + name, _key(labels)], **labels)

    def observe(self, name: str, seconds: float) -> None:
        for bound in catalogue.BY_NAME[PREFIX + name].buckets:
            if seconds <= bound:
                self.add(f"{name}_bucket", le=f"{bound}")
        self.add(f"{name}_bucket", le="+Inf")
        self.add(f"{name}_sum", seconds)
        self.add(f"{name}_count")


def _exposed(metric: catalogue.Metric) -> list[tuple[str, dict[str, str]]]:
    if metric.kind != "histogram":
        return [(metric.name, {})]
    bounds = [f"{bound}" for bound in metric.buckets] + ["+Inf"]
    buckets = [(f"{metric.name}_bucket", {"le": bound}) for bound in bounds]
    return [*buckets, (f"{metric.name}_sum", {}), (f"{metric.name}_count", {})]


def _key(labels: dict[str, str]) -> Labels:
    return tuple(sorted(labels.items()))


def _around(second: int) -> dict[tuple[str, Labels], float]:
    """Return what is not a number of ours, or has free-text labels: up, the versions, the alert."""
    minute = second / 60
    provider = "10.24.0" if minute < UPGRADE else "10.25.0"
    versions = {"version": "0.1.0", "python": "3.11.7", "airflow": "3.3.2", "provider": provider}
    series = {("up", _key({})): 1.0, (f"{PREFIX}build_info", _key(versions)): 1.0}
    alert = {"alertname": BURN_ALERT, "severity": "warning", "long": "1h", "short": "5m"}
    if QUOTA + 3 <= minute < QUOTA + 5:
        series["ALERTS", _key(alert | {"alertstate": "pending"})] = 1.0
    if minute >= QUOTA + 5:
        series["ALERTS", _key(alert | {"alertstate": "firing"})] = 1.0
    return series


def _live(airflow: _Airflow, second: int, now: int) -> None:
    """Let one scrape interval pass."""
    minute = second / 60
    if second == 0:
        return
    blocked, silent = QUOTA <= minute < QUOTA_END, SILENCE <= minute < SILENCE_END
    _launch(airflow, second, blocked=blocked, silent=silent)
    _drop(airflow, second, blocked=blocked)
    _reattach(airflow, second)
    _health(airflow, second, now, silent=silent)


def _launch(airflow: _Airflow, second: int, *, blocked: bool, silent: bool) -> None:
    wave = math.sin(second / 60 / 57) + 0.4 * math.sin(second / 60 / 7)
    launches = 0 if silent else 1 if blocked else round(5 + 2 * wave)
    airflow.add("launches_decided_total", launches)
    airflow.add("launch_checks_total", 34 if blocked else launches)
    for loop in range(6):
        jitter = 1 + 0.5 * math.sin(second * 0.37 + loop * 1.7)
        base = 2.1 if silent else 0.018 if blocked else 0.0045
        airflow.observe("launch_check_duration_seconds", base * jitter)
    if silent:
        airflow.add("launch_check_errors_total", 4, reason="timeout")
        airflow.add("launch_check_errors_total", 1, reason="database_error")
    airflow.put("launches_held", 14 if silent else 0)
    if second == SILENCE_END * 60:
        airflow.add("launches_failed_open_total", 3)


def _drop(airflow: _Airflow, second: int, *, blocked: bool) -> None:
    minute = second / 60
    dropped = {}
    if blocked:
        dropped = {
            "state_changed": 2 if second % 90 else 4,
            "try_superseded": 1,
            "token_expired": int(minute > QUOTA + 10 and second % 120 == 0),
            "task_instance_missing": int(second % 180 == 0),
        }
    if second == TAKE_OVER * 60:
        dropped["owner_changed"] = 1
    for reason, amount in dropped.items():
        airflow.add("workloads_dropped_total", amount, reason=reason)
        airflow.add("launches_decided_total", amount)
    if WOULD_DROP <= minute < WOULD_DROP_END:
        airflow.add("workloads_would_drop_total", 1, reason="state_changed")
    airflow.add("pods_revoked_total", int(blocked and second % 600 == 0))
    airflow.add("pods_adopted_total", int(second == (SILENCE_END + 1) * 60))
    airflow.put("stranded_task_instances", 2 if SILENCE_END <= minute < SILENCE_END + 4 else 0)


def _reattach(airflow: _Airflow, second: int) -> None:
    if second == UPGRADE * 60 + SCRAPE:
        airflow.add("reattach_attempts_total", 2)
        airflow.add("reattach_label_fallbacks_total", 2, reason="no_record")
        airflow.add("settings_errors_total")
        airflow.add("worker_pods_unpatched_total", 2)
    if DRAIN * 60 <= second < DRAIN * 60 + 5 * SCRAPE:
        airflow.add("reattach_attempts_total", 6)
        airflow.add("reattach_identity_hits_total", 6)
    if second == (DRAIN + 3) * 60:
        airflow.add("reattach_attempts_total", 2)
        airflow.add("reattach_label_fallbacks_total", 1, reason="pod_gone")
        airflow.add("reattach_label_fallbacks_total", 1, reason="terminating")
        airflow.add("pods_harvested_total", 3)
        airflow.add("record_errors_total")


def _health(airflow: _Airflow, second: int, now: int, *, silent: bool) -> None:
    minute = second / 60
    for mode, on in (("observe", minute < UPGRADE), ("enforce", minute >= UPGRADE)):
        airflow.put("patch_active", int(on), component="launch_guard", mode=mode)
    airflow.put("patch_active", 1, component="durable_pod", mode="durable")
    airflow.put("source_up", 1, source="handoff")
    airflow.put("source_up", int(not silent), source="outbox")
    airflow.put("source_last_success_timestamp_seconds", now - 3, source="handoff")
    if silent:
        airflow.add("collector_errors_total", 6, source="outbox")
    else:
        airflow.put("source_last_success_timestamp_seconds", now - 3, source="outbox")
    airflow.put("handoff_mtime_seconds", now - 2 - second % 7)
    airflow.put("outbox_pending", 4 if minute in {DRAIN, DRAIN + 0.5} else 0)
    airflow.add("handoff_write_errors_total", int(second == 90 * 60))
