# SPDX-License-Identifier: Apache-2.0
"""The guard is put in whole or not at all, and loses no job to a failure of its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from airflow_steadfast.launch_guard import launcher
from airflow_steadfast.launch_guard.guard import Guard
from tests.support.guard_queue import World, plain_launches, total


@pytest.mark.parametrize("observe", [True, False])
def test_a_launcher_that_cannot_be_wrapped_leaves_the_stock_queue(observe, monkeypatch):
    """The queue needs the guard's loops: alone, it would hand out nothing that came back to it."""

    def fail(*_):
        raise RuntimeError("other seams")

    monkeypatch.setattr(launcher, "wrap", fail)
    monkeypatch.setattr(launcher, "look", fail)
    stock = object()
    guard = Guard.__new__(Guard)
    guard.__dict__.update(
        observe=observe,
        queue=object(),
        _executor=SimpleNamespace(task_queue=stock),
        _creation=None,
    )
    with pytest.raises(RuntimeError, match="other seams"):
        guard.take_over()
    assert guard._executor.task_queue is stock


def test_a_job_is_handed_out_even_if_its_token_cannot_be_looked_at(monkeypatch):
    plain_launches(monkeypatch)
    world = World()

    def fail(_):
        raise RuntimeError("a token of another kind")

    monkeypatch.setattr(world.tokens, "refresh", fail)
    world.put("a", "b")
    assert world.loop() == ["a", "b"]
    assert total("launch_check_errors_total", reason="internal_error") == 2
