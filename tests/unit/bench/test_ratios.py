# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math

import pytest

from tests.bench import ratios


def test_the_mean_of_ratios_is_geometric():
    assert ratios.ratio([2, 1], [1, 2]).mean == pytest.approx(1)
    assert ratios.ratio([8, 2], [1, 1]).mean == pytest.approx(4)


def test_the_bounds_are_students():
    # logarithms 0 and 2: mean 1, deviation sqrt 2, one degree of freedom
    found = ratios.ratio([1, math.e**2], [1, 1])
    assert math.log(found.lower) == pytest.approx(1 - 6.314)
    assert math.log(found.upper) == pytest.approx(1 + 6.314)
    assert found.n == 2


def test_differences():
    found = ratios.difference([3, 5, 7], [1, 2, 3])
    assert found.mean == pytest.approx(3)
    assert found.upper == pytest.approx(3 + 2.920 / math.sqrt(3))
    assert found.lower == pytest.approx(3 - 2.920 / math.sqrt(3))


def test_one_pair_proves_nothing():
    found = ratios.ratio([1], [1])
    assert found.lower == 0
    assert found.upper == math.inf


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1], [1, 2]), ([1, 0], [1, 1]), ([1], [-1])])
def test_what_are_no_pairs_is_refused(ours, theirs):
    with pytest.raises(ValueError, match=r"pairs are wanted|positive"):
        ratios.ratio(ours, theirs)


def test_a_gap_of_the_table_errs_to_the_safe_side():
    assert ratios.quantile(22) == ratios.quantile(20)
    assert ratios.quantile(10_000) == ratios.quantile(120)
