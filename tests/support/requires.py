# SPDX-License-Identifier: Apache-2.0
"""Marks for tests of what only some Airflows have; each reason names the test of the others."""

from __future__ import annotations

import pytest

from airflow_steadfast import capabilities

HAS_STATE_STORE = capabilities.has_task_state_store(capabilities.versions())


def state_store(instead: str) -> pytest.MarkDecorator:
    """Skip below Airflow 3.3; ``instead`` names the test or module that asserts what holds there."""
    return pytest.mark.skipif(
        not HAS_STATE_STORE, reason=f"no task state store below Airflow 3.3: {instead} asserts what holds"
    )


def no_state_store(instead: str) -> pytest.MarkDecorator:
    """Skip from Airflow 3.3 on; ``instead`` names the test or module that asserts what holds there."""
    return pytest.mark.skipif(
        HAS_STATE_STORE, reason=f"Airflow 3.3 and later have a task state store: {instead} asserts what holds"
    )
