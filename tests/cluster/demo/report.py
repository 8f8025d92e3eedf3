# SPDX-License-Identifier: Apache-2.0
"""What the demo prints at its end: numbers as Prometheus answers them, alerts, where to look, how to stop."""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING, Any

from tests.cluster.stories import NAMESPACE, RELEASE, REPOSITORY, TOOLS_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tests.cluster.stories import Outcome

_NEVER_HIDDEN = (
    "steadfast_workloads_dropped_total",
    "steadfast_launches_decided_total",
    "steadfast_reattach_identity_hits_total",
    "steadfast_reattach_label_fallbacks_total",
)

_TIMES = ("_timestamp_seconds", "_mtime_seconds")


def table(rows: Iterable[tuple[str, ...]], head: tuple[str, ...]) -> str:
    """Lay out rows in columns; the last column is right-aligned."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]

    def laid(line: tuple[str, ...]) -> str:
        left = (cell.ljust(width) for cell, width in zip(line[:-1], widths[:-1], strict=True))
        return "  ".join((*left, line[-1].rjust(widths[-1])))

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([laid(head), rule, *(laid(row) for row in lines[1:])])


def metrics(totals: Mapping[str, float]) -> str:
    """Show each series of the catalogue that is not 0, and in any case those that the stories are about."""
    rows: list[tuple[str, ...]] = []
    for name, help_text, belongs in _families(totals):
        if name.endswith(_TIMES):
            continue
        shown = {key: value for key, value in belongs.items() if value}
        if not shown and name in _NEVER_HIDDEN:
            shown = {name: 0.0}
        rows.extend((key, help_text, f"{value:g}") for key, value in sorted(shown.items()))
    zero = sum(not value for value in totals.values())
    return f"{table(rows, ('series', 'what it counts', 'value'))}\n({zero} more series are there, at 0)"


def _families(totals: Mapping[str, float]) -> Iterator[tuple[str, str, dict[str, float]]]:
    sys.path.insert(0, str(REPOSITORY / "provider_patch"))
    try:
        from airflow_steadfast.signals.catalogue import METRICS
    finally:
        sys.path.pop(0)
    for metric in METRICS:
        family = (f"{metric.name}_count",) if metric.kind == "histogram" else (metric.name,)
        belongs = {key: value for key, value in totals.items() if key.split("{")[0] in family}
        yield metric.name, textwrap.shorten(metric.help.split(".")[0], 60, placeholder=" ..."), belongs


def outcome(told: Outcome) -> str:
    """Show a story's figures."""
    width = max(len(what) for what in told.figures)
    return "\n".join(f"    {what.ljust(width)}  {value}" for what, value in told.figures.items())


def alerts(rules: list[dict[str, Any]]) -> str:
    """Show each alerting rule that Prometheus loaded with its state now."""
    rows = []
    for rule in rules:
        labels = rule.get("labels", {})
        windows = f"{labels['long']} and {labels['short']}" if "long" in labels else "-"
        rows.append((rule["name"], windows, labels.get("severity", "-"), rule["state"]))
    return table(rows, ("alert", "windows", "severity", "state"))


def where_to_look() -> str:
    """Say where the UI, Prometheus and the dashboard are, and how to take everything down."""
    return f"""\
To look around (each port-forward in a terminal of its own):
  export KUBECONFIG="$(python3 -m tests.cluster kubeconfig)"
  export PATH="$(python3 -m tests.cluster path):$PATH"
  kubectl -n {NAMESPACE} port-forward service/{RELEASE}-api-server 8080:8080
      http://localhost:8080  the Airflow UI, no login: the Dags demo_stale_launches and demo_durable_pod,
                             each dropped launch in the audit log
  kubectl -n {TOOLS_NAMESPACE} port-forward service/prometheus 9090:9090
      http://localhost:9090  Prometheus: "Alerts" has the rules and their state
  The dashboard is dashboards/generated/steadfast-dashboard.json: import it into a Grafana that reads
  this Prometheus, or draw it with `make dashboards-preview PROMETHEUS=http://localhost:9090`.
  Pods in Error are the workers that stories 2 and 3 killed.
To tell the stories again:  make demo
To take it all down:        make cluster-down"""
