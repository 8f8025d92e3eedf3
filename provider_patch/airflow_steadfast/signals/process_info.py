# SPDX-License-Identifier: Apache-2.0
"""Who writes the hand-off file: versions read from package metadata, nothing imported."""

from __future__ import annotations

import os
import platform
from importlib import metadata

import airflow_steadfast

_UNKNOWN = "unknown"


def describe_process() -> dict[str, str | int]:
    """Return pid and the versions of Airflow, provider, Python and this package. Never raises."""
    return {
        "pid": os.getpid(),
        "airflow": _version("apache-airflow-core", "apache-airflow"),
        "provider": _version("apache-airflow-providers-cncf-kubernetes"),
        "python": platform.python_version(),
        "steadfast": airflow_steadfast.__version__,
    }


def _version(*distributions: str) -> str:
    for name in distributions:
        try:
            return str(metadata.version(name) or _UNKNOWN)
        except Exception:  # noqa: S112, PERF203 - two names; broken metadata is the same as none
            continue
    return _UNKNOWN
