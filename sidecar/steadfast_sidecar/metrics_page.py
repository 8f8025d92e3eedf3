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
{days} days. A plain first try writes none. An event counts once, however often it is written or read. A sidecar counts
from its first scrape on, since a first sample that holds events shows no increase, and leaves what comes after its
SIGTERM to another. While the store does not answer, `steadfast_record_errors_total` and the other workers' counters are lower bounds.

| kind | adds to |
|---|---|
{events}

**Reserved**: the sidecar understands `settings_error` already; workers of this version only log such errors.

## When a source is down

`steadfast_source_up` is 0 and the sidecar's log has one line with the reason; the last good numbers stay.

`steadfast_source_up` says whether the numbers are live, `steadfast_collector_errors_total` whether something breaks.
They differ on purpose: a read that fails is counted each time, a condition that lasts until somebody changes the
installation once when it begins (**once** below), and one that a sound installation may have never (**never**). A
counter that rose for ever below Airflow 3.3 would hide what breaks there. What lasts is asked for every twelfth turn.
An alert on `steadfast_source_up{{source="outbox"}}` leaves out the Airflow that has no task state store by
`unless on (instance) steadfast_build_info{{airflow=~"2\\\\..*|3\\\\.[0-2]\\\\..*"}}`.

| source | reason | counted | what it means |
|---|---|---|---|
| handoff | `not_yet` | never | the folder is there, the scheduler has not written yet: it starts, or runs without the patch |
| handoff | `missing` | each | the shared folder is not mounted, or the file that was there is gone |
| handoff | `stale` | never | nobody has written for a minute: the scheduler is down, or its folder is read-only or full |
| handoff | `unreadable`, `malformed` | each | the file cannot be read, or is not of a version that this sidecar knows |
| outbox | `no_database`, `bad_url`, `no_driver`, `unsupported_database` | once | the connection's settings; MySQL is not read |
| outbox | `database`, `database:<SQLSTATE>` | each | the database does not answer, or refuses |
| outbox | `no_state_store` | never | Airflow below 3.3, or not migrated yet: there is no store to read |
| outbox | `state_store_changed` | once | an Airflow that is newer than this sidecar |
| outbox | `no_tables` | once | the role may not create the tables: run `init-db` once (see `sidecar/README.md`) |
| outbox | `clear_on_success` | never | Airflow removes events when their task succeeds: counts are lower bounds |
| outbox | `custom_backend` | never | `[state_store] backend` keeps the store outside the database: nothing is counted |
| both | `stalled` | once | a read did not come back within 20 s; the connection is cut off and the next read makes a new one |
| both | `internal:<class>` | each | a bug: please report the log line |
"""
