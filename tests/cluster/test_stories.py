# SPDX-License-Identifier: Apache-2.0
"""The three stories as tests. Each ``tell`` counts executions and raises with what it expected and saw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import WORKERS_AT_ONCE
from tests.cluster.stories import fallback, reattach, restarts, stale

if TYPE_CHECKING:
    from tests.cluster.stories import Stage

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1500)]


def test_no_pod_is_launched_for_work_that_was_cleared_while_it_waited(stage: Stage) -> None:
    told = stale.tell(stage, WORKERS_AT_ONCE)

    assert told.figures["worker pods for superseded task instances"] == "0"
    assert told.figures["executions"] == str(stale.TASKS)


def test_killing_the_sidecar_and_the_scheduler_loses_and_doubles_no_count(stage: Stage) -> None:
    assert restarts.tell(stage).figures["counters lost or doubled"] == "{}"


def test_a_retry_finds_its_pod_by_identity_and_the_work_runs_once(stage: Stage) -> None:
    assert reattach.tell(stage).figures["executions of the pod"] == "1"


def test_without_the_stored_identity_one_label_search_finds_it_and_is_counted(stage: Stage) -> None:
    assert fallback.tell(stage).figures["executions of the pod"] == "1"
