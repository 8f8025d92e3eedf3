# SPDX-License-Identifier: Apache-2.0
"""How much is measured: the full benchmark, or a quick look while something is being changed."""

from __future__ import annotations

from dataclasses import dataclass

BATCHES = (1, 16, 500)
"""Creation batches: the default, a usual one, and one for thousands of launches an hour."""


@dataclass(frozen=True)
class Plan:
    """Sizes and numbers of rounds; a round measures each implementation once, in turn."""

    name: str
    loop_rounds: int
    loops: dict[int, int]
    """(a) scheduler loops of a round by creation batch."""
    stale: int
    backlog_rounds: int
    small_table: int
    large_table: int
    table_rounds: dict[int, int]
    """(c) rounds by number of ids in one check."""
    rate_rounds: int
    rate_pods: dict[int, int]
    """(d) pods of a round by creation batch."""
    idle_loops: int
    reattach_pods: int
    """(g) pods of the namespace in which one is looked for."""
    reattach_rounds: int
    worker_rounds: int


FULL = Plan(
    name="full",
    loop_rounds=4,
    loops={1: 24, 16: 4, 500: 1},
    stale=500,
    backlog_rounds=5,
    small_table=1_000,
    large_table=5_000_000,
    table_rounds={1: 100, 16: 80, 500: 80},
    rate_rounds=24,
    rate_pods={1: 32, 16: 96, 500: 200},
    idle_loops=200,
    reattach_pods=5_000,
    reattach_rounds=40,
    worker_rounds=15,
)

QUICK = Plan(
    name="quick",
    loop_rounds=2,
    loops={1: 10, 16: 2, 500: 1},
    stale=50,
    backlog_rounds=1,
    small_table=1_000,
    large_table=200_000,
    table_rounds={1: 10, 16: 5, 500: 3},
    rate_rounds=3,
    rate_pods={1: 16, 16: 48, 500: 60},
    idle_loops=20,
    reattach_pods=1_000,
    reattach_rounds=5,
    worker_rounds=3,
)
