# SPDX-License-Identifier: Apache-2.0
"""The few query shapes that the panels are made of, within the targets chosen at the dashboard's top.

Rare events are asked for per rolling hour and rounded: ``increase`` extrapolates (8 events read as 8.14),
and a rate of one event in ten minutes is a number that nobody can read.
"""

from __future__ import annotations

from dashboards.selectors import Scope

SCOPE = Scope(('job=~"$job"', 'instance=~"$instance"'))
RATE = "$__rate_interval"
RANGE = "$__range"


def _grouping(by: str) -> str:
    return f" by ({by}) " if by else ""


def sum_rate(name: str, *, by: str = "") -> str:
    """Events per second over the smallest window that Grafana deems safe for the scrape interval."""
    return f"sum{_grouping(by)}({SCOPE.rate(name, RATE)})"


def per_minute(name: str, *, by: str = "") -> str:
    """Events per minute, likewise."""
    return f"{sum_rate(name, by=by)} * 60"


def events(name: str, window: str, *, by: str = "") -> str:
    """Events within ``window``, a whole number."""
    return f"round(sum{_grouping(by)}({SCOPE.increase(name, window)}))"


def share(part: str, whole: str, window: str) -> str:
    """One counter's part of another within ``window``; 0/0 (nothing happened) is NaN, which draws no line."""
    return f"sum({SCOPE.increase(part, window)}) / sum({SCOPE.increase(whole, window)})"


def happened(expression: str) -> str:
    """Leave out the series that stand at 0, so that a legend names only what happened."""
    return f"{expression} > 0"
