# SPDX-License-Identifier: Apache-2.0
"""A ``KubernetesPodOperator`` that survives the loss of its worker.

    from airflow_steadfast.durable_pod import DurableKubernetesPodOperator

The stock class gains the same when ``[steadfast] patch_kpo`` is on. Importing this package imports
nothing; the operator is loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.operator import DurableKubernetesPodOperator

__all__ = ["DurableKubernetesPodOperator"]


def __getattr__(name: str) -> Any:
    """Load the operator at first use."""
    if name == "DurableKubernetesPodOperator":
        from airflow_steadfast.durable_pod.operator import DurableKubernetesPodOperator

        return DurableKubernetesPodOperator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
