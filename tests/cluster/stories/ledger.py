# SPDX-License-Identifier: Apache-2.0
"""The ledger: each execution leaves a mark there that outlives its pod, and a waiting pod asks to go on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cluster.stories.kubectl import Kubectl


class Ledger:
    """The client's side of the service in ``tests/cluster/demo/ledger_server.py``."""

    def __init__(self, kubectl: Kubectl, service: str = "ledger", port: int = 8080) -> None:
        """Take the cluster with the ledger's namespace as the default one."""
        self._kubectl = kubectl
        self._service = service
        self._port = port

    def marks(self, run_id: str, event: str = "start") -> list[dict[str, str]]:
        """Return the marks of one run, in the order in which they were made: ``who`` did ``event``."""
        text = self._kubectl.service_get(self._service, self._port, "marks", run=run_id, event=event)
        found: list[dict[str, str]] = json.loads(text)
        return found

    def release(self, run_id: str) -> None:
        """Let the pods of this run finish; idempotent."""
        self._kubectl.service_post(self._service, self._port, "release", run=run_id)
