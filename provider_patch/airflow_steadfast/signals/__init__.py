# SPDX-License-Identifier: Apache-2.0
"""What leaves this process: totals for the scheduler's hand-off file, events for the workers' outbox.

    from airflow_steadfast import signals

    signals.totals().increment("steadfast_workloads_dropped_total", reason="state_changed")
    signals.outbox.event_key("identity_hit", try_number=2)

Knows no caller and imports nothing of Airflow; standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_steadfast.signals import catalogue, handoff, outbox
from airflow_steadfast.signals.process_totals import Totals

if TYPE_CHECKING:
    import os

__all__ = ["Totals", "catalogue", "configure_handoff", "handoff", "outbox", "totals"]

_TOTALS = Totals()


def totals() -> Totals:
    """Return the totals of this process. Never raises."""
    return _TOTALS


def configure_handoff(directory: str | os.PathLike[str], component: str = "scheduler") -> None:
    """Continue and write ``<directory>/<component>.json`` from this process. Idempotent, never raises.

    Each process of a scheduler's pod that starts the executor calls it; they count into one file.
    """
    _TOTALS.configure(directory, component)
