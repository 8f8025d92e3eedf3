# SPDX-License-Identifier: Apache-2.0
"""Recording and alert rules, as the dictionary that a Prometheus rule file holds.

The burn alert follows the multi-window form of the SRE workbook ("Alerting on SLOs"): the objective is
that 99 % of the launches decided are still wanted. A window pair fires when both its windows spend the
budget of 1 % faster than its factor allows, so it starts soon and stops soon. A drop is the guard
at work, not a fault: what burns is the queue (slow pod creation, a quota, API throttling), so the
severity is never above "warning".

Names follow prometheus.io ("Recording rules": ``level:metric:operations``). Only what Prometheus 2.42
reads is used: ``keep_firing_for`` yes, group ``labels`` and ``query_offset`` no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from dashboards.selectors import DECIDED, DROPPED, Scope

RUNBOOKS = "https://steadfast.example/docs/runbooks"
"""Where the runbooks are published. A reserved name: the chart writes the deployment's own address there
(``steadfast.metrics.prometheusRule.runbookBaseUrl``), or leaves the annotation out."""
BURN_ALERT = "SteadfastStaleDropBurn"

BUDGET = 0.01
"""Share of the launches decided that may be dropped as stale: the objective is 99 % fresh."""

MIN_DROPS = 5
"""Drops within the long window below which a ratio says nothing: one drop of three launches is 33 %."""

KEEP_FIRING = "15m"
"""The alert outlasts a pause of this length in the drops, instead of ending and starting again."""

STRANDED_WAIT = "10m"
"""Longer than Airflow takes to adopt orphans: ``[scheduler] orphaned_tasks_check_interval``, 5 minutes."""

_HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Written by `python -m dashboards generate`: do not edit.
"""

BY_JOB = "(namespace, job)"

_RULES = Scope()


@dataclass(frozen=True)
class Burn:
    """One window pair: fires when both windows exceed ``factor`` times the budget for ``wait``."""

    long: str
    short: str
    factor: float
    wait: str
    severity: str

    @property
    def threshold(self) -> float:
        """The share of launches dropped above which this pair fires."""
        return self.factor * BUDGET


BURNS = (
    Burn("1h", "5m", 14.4, "2m", "warning"),
    Burn("6h", "30m", 6.0, "15m", "warning"),
    Burn("1d", "2h", 3.0, "1h", "info"),
    Burn("3d", "6h", 1.0, "3h", "info"),
)
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")


def ratio_name(window: str) -> str:
    """Name of the recorded share of launches dropped over ``window``."""
    return f"job:steadfast_workloads_dropped_per_launches_decided:ratio_rate{window}"


def rule_file() -> dict[str, Any]:
    """Return the whole rule file: ``{"groups": [...]}``.

    The burn alert stands in one group with what it reads: rules of one group are evaluated in their order at
    one moment, those of two groups are not.
    """
    ratios = [_recorded_ratio(window) for window in WINDOWS]
    burns = [_burn_alert(burn) for burn in BURNS]
    return {
        "groups": [
            {"name": "steadfast-stale-drops", "rules": [*ratios, *burns]},
            {"name": "steadfast-health", "rules": [_sidecar_down(), _patch_inactive()]},
            {"name": "steadfast-launches", "rules": [_stranded(), _tokens_expired(), _unpatched()]},
        ]
    }


def _recorded_ratio(window: str) -> dict[str, Any]:
    dropped, decided = (_RULES.rate(name, window) for name in (DROPPED, DECIDED))
    return {
        "record": ratio_name(window),
        "expr": f"  sum by {BY_JOB} ({dropped})\n/\n  sum by {BY_JOB} ({decided})\n",
    }


def _burn_alert(burn: Burn) -> dict[str, Any]:
    limit = f"({burn.factor} * {BUDGET})"
    drops = _RULES.increase(DROPPED, burn.long)
    return _alert(
        BURN_ALERT,
        runbook="stale-drop-burn",
        expr=(
            f"  {ratio_name(burn.long)} > {limit}\n"
            f"and\n"
            f"  {ratio_name(burn.short)} > {limit}\n"
            f"and\n"
            f"  sum by {BY_JOB} ({drops}) >= {MIN_DROPS}\n"
        ),
        wait=burn.wait,
        keep_firing=KEEP_FIRING,
        labels={"severity": burn.severity, "long": burn.long, "short": burn.short},
        summary="Queued Airflow workloads go stale before their worker pod is created.",
        description=(
            "{{ $value | humanizePercentage }} of the launches decided in the last "
            f"{burn.long} were dropped as stale in {{{{ $labels.job }}}} "
            f"(limit {burn.threshold:.1%}, also exceeded over {burn.short}). "
            "Nothing wrong was launched; work waits too long in the queue. Look at the drop reasons, then at "
            "quotas, API throttling and how fast worker pods are created."
        ),
    )


def _sidecar_down() -> dict[str, Any]:
    info = _RULES.series("build_info")
    return _alert(
        "SteadfastSidecarDown",
        runbook="sidecar-down",
        expr=f"  (up == 0 and on (job, instance) present_over_time({info}[1h]))\nor\n  absent({info})\n",
        wait="5m",
        labels={"severity": "warning"},
        summary="The Steadfast sidecar cannot be scraped, so its silence is not good news.",
        description=(
            "{{ if $labels.instance }}The sidecar at {{ $labels.instance }} of {{ $labels.job }} does not "
            "answer the scrape.{{ else }}No Steadfast sidecar is scraped at all.{{ end }} "
            "Tasks are not affected. No drop, reattach or error is seen until it is back; what is counted "
            "meanwhile appears then, as long as the scheduler's pod lives."
        ),
    )


def _patch_inactive() -> dict[str, Any]:
    guard = {"component": "launch_guard"}
    working = _RULES.series("patch_active", **guard, mode=("enforce", "observe"))
    chosen = _RULES.series("patch_active", **guard, mode="off")
    return _alert(
        "SteadfastPatchInactive",
        runbook="patch-inactive",
        expr=(
            f"  max by (namespace, job, instance) ({working}) == 0\n"
            f"unless\n"
            f"  max by (namespace, job, instance) ({chosen}) == 1\n"
        ),
        wait="10m",
        labels={"severity": "warning"},
        summary="A scheduler runs without the launch guard although it is not switched off.",
        description=(
            "The scheduler at {{ $labels.instance }} of {{ $labels.job }} launches worker pods with "
            "Airflow's native behaviour. Read its first log lines that name steadfast: they give the "
            "reason, most often an untested provider version or an executor setting that does not name the "
            "guard."
        ),
    )


def _stranded() -> dict[str, Any]:
    stranded = _RULES.series("stranded_task_instances")
    return _alert(
        "SteadfastTaskInstancesStranded",
        runbook="task-instances-stranded",
        expr=f"sum by {BY_JOB} ({stranded}) > 0\n",
        wait=STRANDED_WAIT,
        labels={"severity": "warning"},
        summary="Queued task instances have no living scheduler and will not start by themselves.",
        description=(
            "{{ $value }} task instances of {{ $labels.job }} are queued, and the scheduler that should "
            "launch them does not exist or is dead. The launch guard dropped them because they were not "
            "its own scheduler's. Airflow's own recovery had its time. Clear them."
        ),
    )


def _tokens_expired() -> dict[str, Any]:
    expired = _RULES.increase(DROPPED, "1h", reason="token_expired")
    return _alert(
        "SteadfastLaunchTokensExpired",
        runbook="launch-tokens-expired",
        expr=f"sum by {BY_JOB} ({expired}) > 0\n",
        wait="1m",
        keep_firing=KEEP_FIRING,
        labels={"severity": "warning"},
        summary="Queued workloads waited so long for a pod that their launch token expired.",
        description=(
            "About {{ $value | printf `%.0f` }} launches of {{ $labels.job }} outlived their token in the "
            "queue within the last 1h. Each is launched again with a new token, so no task fails by it; but "
            "work waits longer than [scheduler] task_queued_timeout for its pod. Look at quotas, API "
            "throttling and how fast worker pods are created."
        ),
    )


def _unpatched() -> dict[str, Any]:
    unpatched = _RULES.increase("worker_pods_unpatched_total", "1h")
    return _alert(
        "SteadfastWorkerPodsUnpatched",
        runbook="worker-pods-unpatched",
        expr=f"sum by {BY_JOB} ({unpatched}) > 0\n",
        wait="1m",
        keep_firing=KEEP_FIRING,
        labels={"severity": "info"},
        summary="Worker pods run without the patch, so their operators behave as Airflow's own.",
        description=(
            "About {{ $value | printf `%.0f` }} worker pods of {{ $labels.job }} were launched without "
            "Steadfast's code within the last 1h: their pod template lacks it and it could not be added. "
            "Their tasks run, but a KubernetesPodOperator in them does not keep its pod. The scheduler's "
            "log names the first."
        ),
    )


def _alert(
    name: str,
    *,
    runbook: str,
    expr: str,
    wait: str,
    labels: dict[str, str],
    summary: str,
    description: str,
    keep_firing: str | None = None,
) -> dict[str, Any]:
    alert: dict[str, Any] = {"alert": name, "expr": expr, "for": wait}
    if keep_firing:
        alert["keep_firing_for"] = keep_firing
    return alert | {
        "labels": labels,
        "annotations": {
            "summary": summary,
            "description": description,
            "runbook_url": f"{RUNBOOKS}/{runbook}.md",
        },
    }


class _BlockDumper(yaml.SafeDumper):
    """Writes a text of several lines as a block, as people write rules."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_BlockDumper.add_representer(str, _text)


def rules_yaml() -> str:
    """Return the rule file as YAML; the same text on every call."""
    body = yaml.dump(rule_file(), Dumper=_BlockDumper, sort_keys=False, width=110, allow_unicode=True)
    return f"{_HEADER}{body}"
