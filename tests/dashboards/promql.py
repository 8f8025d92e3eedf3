# SPDX-License-Identifier: Apache-2.0
"""Walks over PromQL syntax trees, for the lints of panels and rules."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import promql_parser

from dashboards.prometheus import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

WINDOW = Window.until(end=0, seconds=6 * 3600, scrape=30)


@dataclass(frozen=True)
class Use:
    """One selector within an expression and what is around it, innermost last: "sum", "rate", "5m", ..."""

    name: str
    labels: dict[str, tuple[str, str]]
    around: tuple[str, ...]
    seconds: float | None


def parse(expr: str) -> Any:
    """Parse an expression of a panel or a rule; Grafana's variables are filled in. Raises ValueError."""
    return promql_parser.parse(WINDOW.fill(expr))


def uses(expr: str) -> list[Use]:
    """Return each selector of the expression."""
    return list(_uses(parse(expr), (), None))


def nodes(expr: str) -> Iterator[Any]:
    """Yield each node of the expression."""
    waiting = [parse(expr)]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _children(node)


def grouping(expr: str) -> set[str]:
    """Return the labels of the outermost ``by (...)``."""
    for node in nodes(expr):
        if isinstance(node, promql_parser.AggregateExpr):
            return set(node.modifier.labels) if node.modifier else set()
    return set()


def _children(node: Any) -> list[Any]:
    found = [getattr(node, name, None) for name in ("lhs", "rhs", "expr", "param")]
    if isinstance(node, promql_parser.MatrixSelector):
        found.append(node.vector_selector)
    if isinstance(node, promql_parser.Call):
        found += node.args
    return [child for child in found if child is not None]


def _uses(node: Any, around: tuple[str, ...], seconds: float | None) -> Iterator[Use]:
    if isinstance(node, promql_parser.VectorSelector):
        labels = {entry.name: (str(entry.op), entry.value) for entry in node.matchers.matchers}
        yield Use(node.name, labels, around, seconds)
    if isinstance(node, promql_parser.AggregateExpr):
        around = (*around, str(node.op))
    if isinstance(node, promql_parser.Call):
        around = (*around, node.func.name)
    if isinstance(node, promql_parser.MatrixSelector):
        seconds = node.range.total_seconds()
    yield from itertools.chain.from_iterable(_uses(child, around, seconds) for child in _children(node))
