# SPDX-License-Identifier: Apache-2.0
"""Story 3: as story 2, but the stored identity is gone when the retry looks: one label search, counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.stories import lost_worker
from tests.cluster.stories.outcome import Outcome

if TYPE_CHECKING:
    from tests.cluster.stories.stage import Stage


def tell(stage: Stage) -> Outcome:
    """Play the story and return its figures; raises StoryFailedError where it does not come out as told."""
    return lost_worker.tell(
        stage,
        Outcome("story 3, label fallback"),
        stage.new_run_id("fallback"),
        expected={lost_worker.ATTEMPTS: 1, lost_worker.fallback_series("no_record"): 1},
        while_down=_remove_the_record,
    )


def _remove_the_record(stage: Stage, run_id: str, outcome: Outcome) -> None:
    removed = lost_worker.remove_identity(stage, run_id)
    outcome.expect("stored identities removed while the worker was down", 1, removed)
