# SPDX-License-Identifier: Apache-2.0
"""A two-node Kubernetes on this machine: the façade that demo and tests use.

`up`, `down`, `status`, `tool` and `environment` are described in `lifecycle`; `ClusterError` is
the one error that a caller has to expect.
"""

from tests.cluster.kind.commands import ClusterError
from tests.cluster.kind.lifecycle import down, environment, status, tool, up
from tests.cluster.kind.versions import CLUSTER

__all__ = ["CLUSTER", "ClusterError", "down", "environment", "status", "tool", "up"]
