# SPDX-License-Identifier: Apache-2.0
"""Counts of a scenario, and what they bound."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field

CONFIDENCE = 0.95


@dataclass
class Outcome:
    """Launches that were looked at, and how many of them went wrong in which way.

    ``lost``: should have got a pod and got none. ``doubled``: more pods than the launch should get, one for
    work that had moved on, or one of a launch that nobody asked for. ``wrong``: not lost, but another end
    than it should have (state, books, a pod that stays, report). ``bad`` launches went wrong in at least one
    way. ``exits`` counts scheduler loops that ended by an exception, which ends the scheduler. ``notes`` are
    figures worth telling, summed by name.
    """

    launches: int = 0
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    bad: int = 0
    exits: int = 0
    notes: dict[str, float] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add another trial's counts."""
        for name in ("launches", "lost", "doubled", "wrong", "bad", "exits"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name, value in other.notes.items():
            self.notes[name] = self.notes.get(name, 0) + value
        self.examples = (self.examples + other.examples)[:5]

    def count(self, launch: str, *, lost: bool = False, doubled: bool = False, wrong: bool = False) -> None:
        """Count one launch; ``launch`` says which, and is kept as an example where it went wrong."""
        self.launches += 1
        self.lost += lost
        self.doubled += doubled
        self.wrong += wrong
        if lost or doubled or wrong:
            self.bad += 1
            if len(self.examples) < 5:
                kinds = [
                    kind for kind, is_so in (("lost", lost), ("doubled", doubled), ("wrong", wrong)) if is_so
                ]
                self.examples.append(f"{launch}: {', '.join(kinds)}")

    def note(self, name: str, value: float = 1) -> None:
        self.notes[name] = self.notes.get(name, 0) + value

    @property
    def upper_bound(self) -> float:
        """95 % upper bound of the share of bad launches."""
        return upper_bound(self.bad, self.launches)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def upper_bound(bad: int, of: int, confidence: float = CONFIDENCE) -> float:
    """The one-sided Clopper-Pearson bound: 0 of n gives 1 - 0.05**(1/n), about 3/n (the rule of three).

    It takes launches as independent; those of one trial share its fault, so it is a lower edge of what is
    not known.
    """
    if of == 0 or bad >= of:
        return 1.0
    low, high = bad / of, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _at_most(bad, of, middle) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _at_most(bad: int, of: int, share: float) -> float:
    """The probability of at most ``bad`` of ``of``, by logarithms so that it does not underflow."""
    if share <= 0:
        return 1.0
    if share >= 1:
        return 0.0
    terms = (
        math.lgamma(of + 1)
        - math.lgamma(k + 1)
        - math.lgamma(of - k + 1)
        + k * math.log(share)
        + (of - k) * math.log1p(-share)
        for k in range(bad + 1)
    )
    return math.fsum(math.exp(term) for term in terms)
