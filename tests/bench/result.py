# SPDX-License-Identifier: Apache-2.0
"""What a section of the benchmark found: a table for the page, and each promise with its figure."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Promise:
    """A promise, the figure that was measured for it, and whether that keeps it."""

    text: str
    found: str
    met: bool


@dataclass
class Result:
    """``lines`` are Markdown; ``raw`` is what they were computed from."""

    title: str
    lines: list[str] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    raw: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    load: str = ""

    def promise(self, text: str, found: str, *, met: bool) -> None:
        """Add a promise."""
        self.promises.append(Promise(text, found, met))

    def say(self, *paragraphs: str) -> None:
        """Add paragraphs."""
        for paragraph in paragraphs:
            self.lines += ["", paragraph]

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table."""
        self.lines += ["", _row(head), _row(["---"] * len(head)), *map(_row, rows)]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Result:
        """Return what ``as_dict`` was made from."""
        return cls(**{**values, "promises": [Promise(**promise) for promise in values["promises"]]})


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def milliseconds(seconds: float) -> str:
    """A time for a table."""
    return f"{seconds * 1e3:.2f} ms"
