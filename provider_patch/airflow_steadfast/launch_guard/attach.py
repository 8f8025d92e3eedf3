# SPDX-License-Identifier: Apache-2.0
"""Puts the guard into a started executor, where it may work; otherwise says once why not."""

from __future__ import annotations

import contextlib
import logging
import sys
from typing import TYPE_CHECKING, Any

from airflow_steadfast import capabilities, settings, signals
from airflow_steadfast.launch_guard import seams
from airflow_steadfast.launch_guard.guard import Guard

if TYPE_CHECKING:
    from airflow_steadfast.settings import Settings

log = logging.getLogger("airflow_steadfast.launch_guard")


def attach(executor: Any, stock: type[Any]) -> Guard | None:
    """Give a started executor its guard, or None where it is to work natively. Never raises.

    ``stock`` is the executor class of the provider. Only the scheduler's executor gets one: an
    executor that somebody else starts has no numeric job id.
    """
    try:
        return _attach(executor, stock)
    except Exception:
        log.exception("The launch guard is not active, the executor works natively")
        with contextlib.suppress(Exception):
            seams.stock_methods(executor, stock)
        with contextlib.suppress(Exception):
            _publish("native", active=False)
        return None


def _attach(executor: Any, stock: type[Any]) -> Guard | None:
    job_id = _numeric(executor.scheduler_job_id)
    if job_id is None:
        log.info(
            "The launch guard is not active: job id %r is not a scheduler's, launches are not compared",
            executor.scheduler_job_id,
        )
        signals.totals().increment("steadfast_launch_check_errors_total", reason="job_id_not_numeric")
        seams.stock_methods(executor, stock)
        return None
    chosen = settings.current()
    signals.configure_handoff(chosen.handoff_dir)
    found = capabilities.versions()
    _publish_durable_pod(chosen, found)
    if chosen.launch_guard == "off":
        # 1, unlike native: an alert must tell a guard that is switched off from one that failed to start
        _publish("off", active=True)
        seams.stock_methods(executor, stock)
        return None
    support = capabilities.launch_guard(stock, found, allow_untested=chosen.allow_untested)
    reason = support.reason or seams.missing(executor, stock)
    if reason:
        log.log(
            logging.ERROR if chosen.launch_guard == "enforce" else logging.WARNING,
            "The launch guard is not active, the executor works natively: %s",
            reason,
        )
        seams.stock_methods(executor, stock)
        _publish("native", active=False)
        return None
    mode = "observe" if chosen.launch_guard == "observe" else "enforce"
    guard = Guard(executor, job_id, chosen, observe=mode == "observe")
    guard.take_over()
    _publish(mode, active=True)
    log.info("The launch guard is active: mode=%s scheduler_job_id=%s, %s", mode, job_id, found)
    return guard


def _numeric(job_id: Any) -> int | None:
    try:
        return int(job_id)
    except (TypeError, ValueError):
        return None


def _publish(mode: str, *, active: bool, component: str = "launch_guard") -> None:
    totals = signals.totals()
    for known in signals.catalogue.MODES:
        totals.set_gauge(
            "steadfast_patch_active", int(active and known == mode), component=component, mode=known
        )
    totals.flush(force=True)


def _publish_durable_pod(chosen: Settings, found: capabilities.Versions) -> None:
    """Tell of the durable pod as well: worker processes share the configuration but not the hand-off file."""
    if not chosen.patch_kpo:
        _publish("off", active=True, component="durable_pod")
        return
    untested = "" if chosen.allow_untested else capabilities.untested_reason(found)
    # looked up, not imported: without the hook the guard still works
    hook = sys.modules.get("airflow_steadfast.import_hook")
    active = hook is not None and hook.installed() and not untested
    mode = "durable" if capabilities.has_task_state_store(found) else "reattach_on_restart"
    _publish(mode, active=active, component="durable_pod")
