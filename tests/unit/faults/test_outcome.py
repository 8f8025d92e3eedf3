# SPDX-License-Identifier: Apache-2.0
"""The counts and the bound of the fault scenarios' table."""

from __future__ import annotations

from math import comb

import pytest

from tests.faults import spec
from tests.faults.outcome import Outcome, upper_bound


def at_most(bad, of, share):
    return sum(comb(of, k) * share**k * (1 - share) ** (of - k) for k in range(bad + 1))


def test_none_of_many_is_the_rule_of_three():
    assert upper_bound(0, 200) == pytest.approx(1 - 0.05 ** (1 / 200))
    assert upper_bound(0, 200) == pytest.approx(3 / 200, rel=0.01)


@pytest.mark.parametrize(("bad", "of"), [(1, 200), (5, 100), (17, 20), (199, 200)])
def test_the_bound_is_the_share_at_which_so_few_are_seen_once_in_twenty(bad, of):
    assert at_most(bad, of, upper_bound(bad, of)) == pytest.approx(0.05)


@pytest.mark.parametrize(("bad", "of"), [(0, 0), (4, 4)])
def test_nothing_known_bounds_nothing(bad, of):
    assert upper_bound(bad, of) == 1.0


def test_a_launch_that_went_wrong_in_two_ways_is_one_bad_launch():
    outcome = Outcome()
    outcome.count("a")
    outcome.count("b", doubled=True, wrong=True)
    outcome.count("c", lost=True)
    assert (outcome.launches, outcome.lost, outcome.doubled, outcome.wrong, outcome.bad) == (3, 1, 1, 1, 2)
    assert outcome.examples == ["b: doubled, wrong", "c: lost"]


def test_trials_add_up():
    total, one = Outcome(), Outcome(exits=1)
    one.count("a", lost=True)
    one.note("loops", 3)
    total.add(one)
    total.add(one)
    assert (total.launches, total.lost, total.exits, total.notes) == (2, 2, 2, {"loops": 6})


def test_each_scenario_has_at_least_200_launches_and_says_what_should_happen():
    for scenario in spec.load().values():
        assert scenario.size * scenario.trials >= 200, scenario.name
        assert scenario.expected, scenario.name
        assert scenario.holes, scenario.name


def test_the_holes_that_a_test_can_reach_are_played():
    played = {hole for scenario in spec.load().values() for hole in scenario.holes.replace(",", " ").split()}
    elsewhere = {"H20", "H22"}  # SQL on other databases; a callback that the executor never takes
    assert {f"H{number}" for number in range(1, 24)} - elsewhere <= played
