# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501 - lines of a page, as wide as the other pages are
"""The catalogue as the page ``docs/metrics.md``: printed by ``python -m steadfast_sidecar metrics``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_steadfast.signals.catalogue import METRICS
from airflow_steadfast.signals.outbox import KEY_PREFIX, METRIC_BY_KIND, RETENTION

if TYPE_CHECKING:
    from airflow_steadfast.signals.catalogue import Metric

_ORIGIN = {
    "handoff": "scheduler",
    "outbox": "workers",
    "sidecar": "sidecar",
}


def page() -> str:
    """Return the page; the same catalogue gives the same bytes."""
    events = "\n".join(f"| `{kind}` | `{metric}` |" for kind, metric in METRIC_BY_KIND.items())
    return (
        _HEAD
        + "| metric | type | unit | labels | from | meaning |\n|---|---|---|---|---|---|\n"
        + "".join(_row(metric) for metric in METRICS)
        + _OUTBOX.format(prefix=KEY_PREFIX, days=RETENTION.days, events=events)
    )


def _row(metric: Metric) -> str:
    labels = "<br>".join(
        f"`{name}`: {', '.join(f'`{value}`' for value in allowed) or 'free text'}"
        for name, allowed in metric.labels.items()
    )
    meaning = metric.help if metric.stability == "stable" else f"{metric.help} (experimental)"
    return f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {_ORIGIN[metric.source]} | {meaning} |\n"


_HEAD = """\
<!-- Generated from the catalogue: python -m steadfast_sidecar metrics > docs/metrics.md -->
# Metrics

Every metric that the sidecar serves at `/metrics`. All series exist with value 0 from the first scrape on, so the
first event is an increase that `rate()` and `increase()` see. The exception is a source that is there but has not
answered since the sidecar started (the database is down): its series are left out until it does, since a zero there
would look like a counter reset and be counted again. No Dag, task, run or pod is ever a label: the log line
and the audit log of each event name them. Names and label values of stable metrics change only in a major version.

Sum counters over instances: each scheduler has a sidecar that counts its own launches, and each event of a worker is
counted by exactly one sidecar.

"""

_OUTBOX = """
The standard `process_*` metrics describe the sidecar itself.

## Where the numbers come from

**Scheduler**: totals in the hand-off file, written at each change, continued after a restart of either container. They
begin anew with a new pod, as every counter of a new instance does.

**Workers**: a row in Airflow's task state store per event, under the key `{prefix}<try>.<kind>[.<reason>]`, kept for
{days} days. A plain first try writes none. An event counts once, however often it is written or read. While the store
does not answer, `steadfast_record_errors_total` and the other workers' counters are lower bounds.

| kind | adds to |
|---|---|
{events}

**Reserved**: the sidecar understands `settings_error` already; workers of this version only log such errors.

## When a source is down

`steadfast_source_up` is 0 and the sidecar's log has one line with the reason; the last good numbers stay.

| source | reason | what it means |
|---|---|---|
| handoff | `missing` | the scheduler has not started, runs without the patch, or the shared folder is not mounted |
| handoff | `stale` | nobody has written for a minute: the scheduler is down, or its folder is read-only or full |
| handoff | `unreadable`, `malformed` | the file cannot be read, or is not of a version that this sidecar knows |
| outbox | `no_database`, `bad_url`, `no_driver`, `unsupported_database` | the connection's settings; MySQL is not read |
| outbox | `database`, `database:<SQLSTATE>` | the database does not answer, or refuses |
| outbox | `no_state_store` | Airflow below 3.3, or not migrated yet |
| outbox | `state_store_changed` | an Airflow that is newer than this sidecar |
| outbox | `no_tables` | the role may not create the tables: run `init-db` once (see `sidecar/README.md`) |
| outbox | `clear_on_success` | Airflow removes events when their task succeeds: counts are lower bounds |
| outbox | `custom_backend` | `[state_store] backend` keeps the store outside the database: nothing is counted |
"""
