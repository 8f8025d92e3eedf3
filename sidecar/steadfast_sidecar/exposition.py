# SPDX-License-Identifier: Apache-2.0
"""The tally as Prometheus metric families, in the catalogue's order."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder

import airflow_steadfast
from airflow_steadfast.signals.catalogue import METRICS
from airflow_steadfast.signals.handoff import series_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client.core import Metric as Family

    from airflow_steadfast.signals.catalogue import Metric
    from steadfast_sidecar.tally import Tally, View

_EMPTY = "unknown"


class CatalogueCollector:
    """Renders one view per scrape; it holds no numbers, reads no source and emits no ``_created`` series."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally

    def describe(self) -> list[Family]:
        """Return the families without samples, so that registering needs no scrape."""
        return [_family(metric) for metric in METRICS]

    def collect(self) -> Iterator[Family]:
        """Yield every family with every series of its closed label sets."""
        view = self._tally.view()
        for metric in METRICS:
            family = _family(metric)
            if metric.name == "steadfast_build_info":
                family.add_metric(_build_labels(metric, view), 1)
            else:
                _add_series(family, metric, view)
            yield family


def registry(tally: Tally) -> CollectorRegistry:
    """Return a registry of the catalogue and the sidecar's own ``process_*`` metrics."""
    result = CollectorRegistry(auto_describe=False)
    result.register(CatalogueCollector(tally))
    ProcessCollector(registry=result)
    return result


def render(source: CollectorRegistry, accept: str, names: Sequence[str] = ()) -> tuple[bytes, str]:
    """Return body and content type: OpenMetrics where the request accepts it, else the text format.

    ``names`` restricts it to some series, as the Prometheus clients' ``name[]`` does.
    """
    encoder, content_type = choose_encoder(accept)
    return encoder(source.restricted_registry(names) if names else source), content_type


def _family(metric: Metric) -> Family:
    labels = list(metric.labels)
    if metric.kind == "counter":
        return CounterMetricFamily(metric.name, metric.help, labels=labels)
    if metric.kind == "gauge":
        return GaugeMetricFamily(metric.name, metric.help, labels=labels)
    return HistogramMetricFamily(metric.name, metric.help, labels=labels)


def _add_series(family: Family, metric: Metric, view: View) -> None:
    for labels in metric.series():
        key = series_key(metric.name, labels)
        if key not in view.values and key not in view.histograms:
            continue
        if metric.kind != "histogram":
            family.add_metric(list(labels.values()), view.values[key])
            continue
        totals = view.histograms[key]
        buckets = [(str(bound), count) for bound, count in zip(totals.bounds, totals.counts, strict=True)]
        family.add_metric(list(labels.values()), [*buckets, ("+Inf", totals.count)], totals.sum)


def _build_labels(metric: Metric, view: View) -> list[str]:
    known = {
        "version": airflow_steadfast.__version__,
        "python": platform.python_version(),
        "airflow": str(view.process.get("airflow", _EMPTY)),
        "provider": str(view.process.get("provider", _EMPTY)),
    }
    return [known[label] for label in metric.labels]
