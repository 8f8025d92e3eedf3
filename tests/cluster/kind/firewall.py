# SPDX-License-Identifier: Apache-2.0
"""The few packet rules that the nodes need, in place of Docker's own.

A Docker daemon empties the chains named ``DOCKER`` when it starts, those of another daemon
too, so ours runs with ``--iptables=false``. What is left to do: let the nodes' network forward,
and let the nodes reach the world under the machine's address. Every rule names the bridge, by
which `leftovers` finds it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cluster.kind.commands import ClusterError, works
from tests.cluster.kind.prerequisites import which

if TYPE_CHECKING:
    from tests.cluster.kind.commands import Log


def rules(bridge: str, subnet: str) -> list[tuple[str, list[str]]]:
    """Return the rules as pairs of a table and the words after ``-A`` or ``-I``."""
    return [
        ("nat", ["POSTROUTING", "-s", subnet, "!", "-o", bridge, "-j", "MASQUERADE"]),
        ("filter", ["FORWARD", "-i", bridge, "-j", "ACCEPT"]),
        ("filter", ["FORWARD", "-o", bridge, "-j", "ACCEPT"]),
    ]


def open_for(bridge: str, subnet: str, log: Log) -> None:
    """Have the rules in place, before others that might refuse. Idempotent.

    Raises:
        ClusterError: no iptables.
        CommandError: a rule cannot be set.
    """
    program = which("iptables")
    if program is None:
        raise ClusterError("iptables is not there")
    for table, words in rules(bridge, subnet):
        if not works([program, "-w", "-t", table, "-C", *words]):
            log.run([program, "-w", "-t", table, "-I", *words])
