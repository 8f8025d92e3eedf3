# SPDX-License-Identifier: Apache-2.0
"""Subclasses of the operator that are no pod tasks: they manage a Job or a Spark application.

They have their own way to find their work again, so all of this package passes them by.
"""

from __future__ import annotations

from typing import Any

LEFT_ALONE = frozenset({"KubernetesJobOperator", "SparkKubernetesOperator"})
"""By name: importing their modules, with what those import, only to compare would cost every task."""

_PROVIDER = "airflow.providers.cncf.kubernetes."


def is_left_alone(operator: Any) -> bool:
    """Return whether the operator is one of the provider's LEFT_ALONE, or a subclass of one."""
    return any(
        cls.__name__ in LEFT_ALONE and str(cls.__module__).startswith(_PROVIDER)
        for cls in type(operator).__mro__
    )
