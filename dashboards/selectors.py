# SPDX-License-Identifier: Apache-2.0
"""PromQL made from the metric catalogue.

A metric, label or label value that the catalogue does not have raises ``LookupError`` here, so neither
a panel nor a rule can ask for a series that nobody exposes.
"""

from __future__ import annotations

from dataclasses import dataclass

from airflow_steadfast.signals import catalogue

PREFIX = "steadfast_"
HISTOGRAM_SUFFIXES = ("_bucket", "_sum", "_count")

DROPPED = "workloads_dropped_total"
DECIDED = "launches_decided_total"

ENFORCING_MODES = ("enforce", "durable", "reattach_on_restart")
"""Values of ``mode`` under which a component changes what Airflow does; "observe" only counts."""


def family(name: str) -> catalogue.Metric:
    """Return the catalogue's entry for a series name such as ``steadfast_x_seconds_bucket``.

    Raises:
        LookupError: The catalogue has no such metric.
    """
    if metric := catalogue.BY_NAME.get(name):
        return metric
    for suffix in HISTOGRAM_SUFFIXES:
        metric = catalogue.BY_NAME.get(name.removesuffix(suffix))
        if name.endswith(suffix) and metric and metric.kind == "histogram":
            return metric
    raise LookupError(
        f"No metric {name} in airflow_steadfast/signals/catalogue.py: add it there or correct the name"
    )


@dataclass(frozen=True)
class Scope:
    """Which targets an expression reads: label matchers that every selector carries."""

    matchers: tuple[str, ...] = ()

    def series(self, name: str, **labels: str | tuple[str, ...]) -> str:
        """Return a selector for ``steadfast_<name>``; a tuple of values becomes a regular expression.

        Raises:
            LookupError: The metric, a label or a value is not in the catalogue.
        """
        metric = family(PREFIX + name)
        own = [_matcher(metric, label, wanted) for label, wanted in labels.items()]
        inside = ",".join([*own, *self.matchers])
        return f"{PREFIX}{name}{{{inside}}}" if inside else f"{PREFIX}{name}"

    def rate(self, name: str, window: str, **labels: str | tuple[str, ...]) -> str:
        """Events per second over ``window``, one series per label set."""
        return f"rate({self.series(name, **labels)}[{window}])"

    def increase(self, name: str, window: str, **labels: str | tuple[str, ...]) -> str:
        """Events within ``window``. Extrapolated, hence not whole: round it before a person reads it."""
        return f"increase({self.series(name, **labels)}[{window}])"


def _matcher(metric: catalogue.Metric, label: str, wanted: str | tuple[str, ...]) -> str:
    values = (wanted,) if isinstance(wanted, str) else wanted
    if label not in metric.labels:
        raise LookupError(f"{metric.name} has no label {label}; it has {sorted(metric.labels) or 'none'}")
    for value in values:
        if value not in metric.labels[label]:
            raise LookupError(f'{metric.name} has no {label}="{value}"; known: {metric.labels[label]}')
    operator = "=" if isinstance(wanted, str) else "=~"
    return f'{label}{operator}"{"|".join(values)}"'
