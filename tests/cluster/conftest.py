# SPDX-License-Identifier: Apache-2.0
"""The cluster that cluster tests share: started and given the demo's release once, and left running."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.demo import install
from tests.cluster.stories import NAMESPACE, Kubectl, Stage, open_stage, tidy

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS_AT_ONCE = 4


@pytest.fixture(scope="session")
def cluster() -> Kubectl:
    """A running cluster with the demo's release in it; all of it idempotent."""
    install.start_cluster()
    kubectl = Kubectl.of_the_cluster(NAMESPACE)
    install.prepare_namespaces(kubectl, WORKERS_AT_ONCE)
    install.install_release(kubectl)
    install.install_tools(kubectl)
    install.wait_until_ready(kubectl, print)
    return kubectl


@pytest.fixture(scope="session")
def stage(cluster: Kubectl) -> Iterator[Stage]:
    with open_stage() as stage:
        tidy(stage, WORKERS_AT_ONCE)
        install.check_sidecar_is_scraped(stage.metrics.sidecar_up)
        yield stage
