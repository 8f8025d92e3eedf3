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

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


__all__ = ["draw_dashboard"]


def draw_dashboard(output: Path, *, url: str | None, minutes: int, end: float | None, scrape: int) -> None:
    """Draw the dashboard over the last ``minutes`` before ``end`` (Unix seconds) to the PNG ``output``.

    Without ``url`` a throw-away Prometheus with made-up history answers.

    Raises:
        PrometheusError: No Prometheus, or it refuses a query.
    """
    document = dashboard.build()
    with _source(url) as client:
        last = end or (time.time() if url else float(sample.END))
        window = Window.until(last, minutes * 60, scrape if url else sample.SCRAPE)
        panels = [ask(client, panel, window) for panel in document["panels"]]
        marks = {
            entry["name"]: client.range(entry["expr"], window) for entry in document["annotations"]["list"]
        }
    origin = "the answers of a live Prometheus" if url else "sample data in a real Prometheus"
    drawing.draw(output, document["title"], origin, panels, marks, window)


@contextlib.contextmanager
def _source(url: str | None) -> Iterator[Client]:
    if url:
        yield Client(url)
    else:
        with backfilled(sample.openmetrics()) as client:
            yield client
