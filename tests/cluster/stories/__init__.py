# SPDX-License-Identifier: Apache-2.0
"""The stories that ``make demo`` tells and the cluster tests check: one code for both."""

from tests.cluster.stories import fallback, reattach, restarts, stale
from tests.cluster.stories.kubectl import REPOSITORY, Kubectl, KubectlError
from tests.cluster.stories.outcome import Outcome, StoryFailedError, wait_for
from tests.cluster.stories.stage import (
    DURABLE_DAG,
    NAMESPACE,
    QUOTA,
    RELEASE,
    STALE_DAG,
    TOOLS_NAMESPACE,
    Stage,
    open_stage,
    tidy,
)

__all__ = [
    "DURABLE_DAG",
    "NAMESPACE",
    "QUOTA",
    "RELEASE",
    "REPOSITORY",
    "STALE_DAG",
    "TOOLS_NAMESPACE",
    "Kubectl",
    "KubectlError",
    "Outcome",
    "Stage",
    "StoryFailedError",
    "fallback",
    "open_stage",
    "reattach",
    "restarts",
    "stale",
    "tidy",
    "wait_for",
]
