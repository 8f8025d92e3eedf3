# SPDX-License-Identifier: Apache-2.0
"""The choices of an operator, else of the deployment: four small questions with two answers each.

An operator gets them as parameters of the same name, so that ``default_args`` and ``.partial()`` reach
them; None, the default, is the deployment's ``[steadfast]`` setting.
"""

from __future__ import annotations

from typing import Any

from airflow_steadfast import settings

CHOICES: dict[str, tuple[str, ...]] = {
    "on_finished": ("harvest", "rerun"),
    "on_lost_xcom": ("rerun", "fail"),
    "on_clear": ("fresh", "reattach"),
    "on_unknown_kill": ("keep", "delete"),
}


def check(name: str, value: Any) -> Any:
    """Return the value of an operator's parameter. Raises ValueError that names it and what is allowed."""
    if value is not None and value not in CHOICES[name]:
        raise ValueError(f"{name} is {value!r}: give one of {', '.join(CHOICES[name])}, or leave it out")
    return value


def chosen(operator: Any, name: str) -> str:
    """Return the operator's choice, else the deployment's. Never raises."""
    own = getattr(operator, name, None)
    return own if own in CHOICES[name] else str(getattr(settings.current(), name))
