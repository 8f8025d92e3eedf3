# SPDX-License-Identifier: Apache-2.0
"""Story 2: a worker dies by SIGKILL, its retry finds the running pod by identity, the work runs once."""

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
        Outcome("story 2, reattach by identity"),
        stage.new_run_id("reattach"),
        expected={lost_worker.ATTEMPTS: 1, lost_worker.HITS: 1},
    )
