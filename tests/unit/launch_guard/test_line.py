# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch
from airflow_steadfast.launch_guard.line import Line


def entry(name="a", try_number=1):
    return Entry([name], Launch(name, try_number, key=None))


def test_of_two_copies_the_one_ordered_first_is_the_older_in_whatever_order_they_join():
    line = Line()
    first, second = entry(), entry()
    assert line.join(second) is None
    assert line.join(first) is first
    line.remove(first)
    assert line.join(first) is first
    line.remove(second)
    assert line.join(entry()) is None


def test_the_newest_copy_is_known_until_it_left():
    line = Line()
    first, second = entry(), entry()
    line.join(first)
    assert line.join(second) is first
    line.remove(first)
    assert first.queued is False
    assert second.queued
    third = entry()
    assert line.join(third) is second


def test_another_try_and_what_cannot_be_compared_are_no_copies():
    line = Line()
    assert line.join(entry(try_number=1)) is None
    assert line.join(entry(try_number=2)) is None
    assert line.join(Entry("command")) is None
    assert line.join(Entry("command")) is None
    assert len(line) == 4


def test_the_order_is_held_then_ready_then_waiting():
    line = Line()
    parts = {name: [entry(f"{name}{number}") for number in range(2)] for name in ("waiting", "held", "ready")}
    for name, entries in parts.items():
        for one in entries:
            line.join(one)
            getattr(line, name).append(line.waiting.pop())
    expected = parts["held"] + parts["ready"] + parts["waiting"]
    assert list(line) == expected
    line.all_wait()
    assert list(line.waiting) == expected
    assert not line.held
    assert not line.ready
    assert [line.pop() for _ in range(7)] == [*expected, None]


def test_the_first_of_all_is_popped_from_each_part():
    line = Line()
    one = entry()
    for part in (line.held, line.ready, line.waiting):
        line.join(one)
        line.waiting.clear()
        part.append(one)
        assert line.pop() is one
        assert not one.queued
        assert line.join(entry()) is None
        line.pop()


def test_moving_takes_out_only_what_is_named():
    line = Line()
    entries = [entry(str(number)) for number in range(4)]
    for one in entries:
        line.join(one)
    line.move(entries[1:3], line.waiting)
    assert list(line.waiting) == [entries[0], entries[3]]


def test_removing_finds_an_entry_in_any_part_and_may_be_repeated():
    line = Line()
    for part in ("held", "ready", "waiting"):
        one = entry()
        line.join(one)
        getattr(line, part).append(line.waiting.pop())
        line.remove(one)
        line.remove(one)
        assert len(line) == 0
        assert not one.queued


def test_an_entry_is_no_older_copy_of_itself():
    line = Line()
    one = entry()
    line.join(one)
    line.waiting.clear()
    assert line.join(one) is None
    assert list(line) == [one]
