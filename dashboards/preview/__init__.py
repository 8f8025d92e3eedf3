# SPDX-License-Identifier: Apache-2.0
"""A picture of the dashboard, drawn from the answers of a Prometheus.

For the README and for a look without Grafana. It reads the same JSON that Grafana gets, so a panel that is
wrong here is wrong there; it is no screenshot and says so.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from dashboards import dashboard, sample
from dashboards.preview import drawing
from dashboards.preview.answers import ask
from dashboards.prometheus import Client, Window, backfilled
from dashboards.selectors import Scope

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


__all__ = ["draw_dashboard"]

MOST_SECONDS = 6 * 3600


def draw_dashboard(output: Path, *, url: str | None, minutes: int | None, end: float | None) -> None:
    """Draw the dashboard over the last ``minutes`` before ``end`` (Unix seconds) to the PNG ``output``.

    Without ``url`` a throw-away Prometheus with made-up history answers. Without ``minutes`` the picture
    reaches back to the first number that it has, six hours at most.

    Raises:
        PrometheusError: No Prometheus, or it refuses a query.
    """
    document = dashboard.build()
    with _source(url) as client:
        last = end or (time.time() if url else float(sample.END))
        scrape = client.scrape_interval() if url else sample.SCRAPE
        seconds = minutes * 60 if minutes else _reach(client, Window.until(last, MOST_SECONDS, scrape))
        window = Window.until(last, seconds, scrape)
        panels = [ask(client, panel, window) for panel in document["panels"]]
        marks = {
            entry["name"]: client.range(entry["expr"], window) for entry in document["annotations"]["list"]
        }
    origin = "the answers of a live Prometheus" if url else "sample data in a real Prometheus"
    drawing.draw(output, document["title"], origin, panels, marks, window)


def _reach(client: Client, window: Window) -> int:
    """Return how far back, in seconds, the numbers go, with a little room before them."""
    present = client.range(f"count({Scope().series('build_info')})", window)
    if not present:
        return MOST_SECONDS
    age = window.end - present[0].points[0][0]
    return min(MOST_SECONDS, round(age * 1.05) + 2 * window.step)


@contextlib.contextmanager
def _source(url: str | None) -> Iterator[Client]:
    if url:
        yield Client(url)
    else:
        with backfilled(sample.openmetrics()) as client:
            yield client
