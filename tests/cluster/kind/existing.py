# SPDX-License-Identifier: Apache-2.0
"""``CLUSTER=existing``: the cluster of the current kubeconfig context, used only when asked for by name."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cluster.kind.commands import ClusterError, CommandError, output
from tests.cluster.kind.prerequisites import which

VARIABLE = "CLUSTER"


def asked_for() -> bool:
    """Return whether ``CLUSTER=existing`` is set.

    Raises:
        ClusterError: the variable has another value.
    """
    value = os.environ.get(VARIABLE, "")
    if value not in {"", "kind", "existing"}:
        raise ClusterError(f"{VARIABLE}={value}: 'existing' is your current context; else leave it out")
    return value == "existing"


def kubeconfig() -> str:
    """Return the user's own kubeconfig, as kubectl finds it."""
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def check() -> str:
    """Return the name of the current context of a cluster that answers.

    Raises:
        ClusterError: no kubectl, no current context, or no answer.
    """
    program = which("kubectl")
    if program is None:
        raise ClusterError("CLUSTER=existing needs kubectl on PATH")
    try:
        context = output([program, "config", "current-context"]).strip()
        output([program, "get", "--raw", "/readyz", "--request-timeout=15s"])
    except CommandError as error:
        raise ClusterError(f"CLUSTER=existing: the current context does not answer: {error}") from error
    return context
