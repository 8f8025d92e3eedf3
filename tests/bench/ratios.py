# SPDX-License-Identifier: Apache-2.0
"""Ratios of interleaved pairs, and how sure one may be of them.

A pair is two measurements made one right after the other, so that what the machine does besides weighs on
both. The mean is taken of the pairs' logarithms; the bounds are one-sided and of 95 %, by Student's t.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# The 95 % quantiles of Student's t by degrees of freedom; beyond the table the next smaller entry is used,
# which is the larger quantile and so errs to the safe side.
_T_95 = {
    1: 6.314, 2: 2.920, 3: 2.353, 4: 2.132, 5: 2.015, 6: 1.943, 7: 1.895, 8: 1.860, 9: 1.833, 10: 1.812,
    11: 1.796, 12: 1.782, 13: 1.771, 14: 1.761, 15: 1.753, 16: 1.746, 17: 1.740, 18: 1.734, 19: 1.729,
    20: 1.725, 25: 1.708, 30: 1.697, 40: 1.684, 60: 1.671, 120: 1.658,
}  # fmt: skip


@dataclass(frozen=True)
class Estimate:
    """A mean with its one-sided 95 % bounds, of ``n`` pairs; with one pair the bounds are infinite."""

    mean: float
    lower: float
    upper: float
    n: int

    def text(self, digits: int = 2) -> str:
        """For a table: "1.02 (0.98 to 1.06, n = 12)"."""
        return f"{self.mean:.{digits}f} ({self.lower:.{digits}f} to {self.upper:.{digits}f}, n = {self.n})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return the geometric mean of ``ours[i] / theirs[i]``, all of them positive, and its bounds.

    Raises ValueError where the series differ in length or are empty, or a value is not positive.
    """
    logs = [math.log(mine / other) for mine, other in _pairs(ours, theirs)]
    estimate = _mean(logs)
    return Estimate(math.exp(estimate.mean), math.exp(estimate.lower), math.exp(estimate.upper), estimate.n)


def difference(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    """Return the mean of ``ours[i] - theirs[i]`` and its bounds; the same errors as ``ratio``."""
    return _mean([mine - other for mine, other in _pairs(ours, theirs)])


def _pairs(ours: Sequence[float], theirs: Sequence[float]) -> list[tuple[float, float]]:
    if not ours or len(ours) != len(theirs):
        raise ValueError(f"pairs are wanted, got {len(ours)} and {len(theirs)} values")
    if min(*ours, *theirs) <= 0:
        raise ValueError("times and rates are positive, got a value that is not")
    return list(zip(ours, theirs, strict=True))


def _mean(values: Sequence[float]) -> Estimate:
    mean = statistics.fmean(values)
    if len(values) == 1:
        return Estimate(mean, -math.inf, math.inf, 1)
    width = quantile(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Estimate(mean, mean - width, mean + width, len(values))


def quantile(degrees: int) -> float:
    """Student's t: the 95 % quantile, or a slightly larger one where the table has a gap."""
    return _T_95[max(known for known in _T_95 if known <= degrees)]
