# SPDX-License-Identifier: Apache-2.0
"""How many launches are held, summed over the executors of this process: they share one gauge."""

from __future__ import annotations

import weakref
from typing import Any

from airflow_steadfast import signals

_held: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def publish(queue: Any, count: int) -> None:
    """Set what one executor's queue holds; the gauge tells of all queues that are still alive."""
    _held[queue] = count
    signals.totals().set_gauge("steadfast_launches_held", sum(_held.values()))


def forget_all() -> None:
    """Forget every queue (tests)."""
    _held.clear()
