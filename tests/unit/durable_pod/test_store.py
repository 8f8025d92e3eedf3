# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from airflow_steadfast.durable_pod.events import Events
from airflow_steadfast.durable_pod.identity import STATE_KEY, Identity
from airflow_steadfast.durable_pod.record import Record, RecordForbiddenError, SupersededError
from airflow_steadfast.durable_pod.store import (
    PAUSE_SECONDS,
    Store,
    StoreForbiddenError,
    StoreUnavailableError,
    TaskInstanceGoneError,
)

NOT_FOUND = {"detail": {"reason": "not_found", "message": "Task instance not found"}}
IDENTITY = Identity("n", "ns", uid="u")


class Answer(Exception):  # noqa: N818 - what the SDK raises has this shape
    """The SDK's error, with what the supervisor hands over."""

    def __init__(self, status: int | None, body: Any = None) -> None:
        super().__init__(str(status))
        self.error = SimpleNamespace(detail={"status_code": status, "message": "m", "detail": body})


class HttpAnswer(Exception):  # noqa: N818 - the same where no process boundary is between
    def __init__(self, status: int, body: Any) -> None:
        super().__init__(str(status))
        self.response = SimpleNamespace(status_code=status, json=lambda: body)


class Accessor:
    """A store in memory that fails as told; ``calls`` are the keys asked for."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.failure: Exception | None = None
        self.calls: list[str] = []

    def get(self, key: str) -> Any:
        self._call(key)
        return self.values.get(key)

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        self._call(key)
        self.values[key] = value

    def _call(self, key: str) -> None:
        self.calls.append(key)
        if self.failure is not None:
            raise self.failure


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def accessor() -> Accessor:
    return Accessor()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(accessor: Accessor, clock: Clock) -> Store:
    return Store(accessor, clock)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Answer(404, NOT_FOUND), TaskInstanceGoneError),
        (HttpAnswer(404, NOT_FOUND), TaskInstanceGoneError),
        (Answer(404, {"detail": "Not Found"}), StoreUnavailableError),
        (Answer(404), StoreUnavailableError),
        (Answer(403, {"detail": "no"}), StoreForbiddenError),
        (HttpAnswer(403, None), StoreForbiddenError),
        (Answer(500), StoreUnavailableError),
        (Answer(None), StoreUnavailableError),
        (TimeoutError(), StoreUnavailableError),
        (RuntimeError("anything"), StoreUnavailableError),
    ],
)
def test_the_stores_answers_are_told_apart(
    store: Store, accessor: Accessor, failure: Exception, told: type[Exception]
) -> None:
    accessor.failure = failure
    with pytest.raises(told):
        store.set("k", 1)


def test_after_no_answer_the_store_is_left_alone_for_a_while(
    store: Store, accessor: Accessor, clock: Clock
) -> None:
    accessor.failure = Answer(500)
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            store.get("k")
    assert accessor.calls == ["k"]
    accessor.failure = None
    clock.now += PAUSE_SECONDS
    assert store.get("k") is None
    assert accessor.calls == ["k", "k"]


def test_a_refusal_is_an_answer_and_pauses_nothing(store: Store, accessor: Accessor) -> None:
    accessor.failure = Answer(403)
    for _ in range(2):
        with pytest.raises(StoreForbiddenError):
            store.get("k")
    assert accessor.calls == ["k", "k"]


def test_an_event_is_written_once(store: Store, accessor: Accessor) -> None:
    events = Events(store, 2)
    events.add("identity_hit")
    events.add("identity_hit")
    events.add("label_fallback", "no_record")
    assert accessor.calls == [
        "steadfast.event.v1.2.identity_hit",
        "steadfast.event.v1.2.label_fallback.no_record",
    ]


def test_events_wait_for_the_end_of_the_try_where_the_store_does_not_answer(
    store: Store, accessor: Accessor
) -> None:
    events = Events(store, 2)
    accessor.failure = Answer(500)
    events.add("attempt")
    events.add("identity_hit")
    assert accessor.calls == ["steadfast.event.v1.2.attempt"]
    accessor.failure = None
    events.flush()
    assert set(accessor.values) == {"steadfast.event.v1.2.attempt", "steadfast.event.v1.2.identity_hit"}
    before = len(accessor.calls)
    events.flush()
    assert len(accessor.calls) == before


def test_an_event_never_raises(store: Store) -> None:
    events = Events(store, -1)
    events.add("no such kind")  # type: ignore[arg-type]  # that is the test
    events.add("attempt")
    events.flush()


@pytest.fixture
def record(store: Store) -> Record:
    return Record(store, Events(store, 1))


@pytest.mark.parametrize(
    ("stored", "problem"), [(None, "no_record"), ("text", "malformed"), ({"name": "n"}, "malformed")]
)
def test_reading_says_why_there_is_no_identity(
    record: Record, accessor: Accessor, stored: Any, problem: str
) -> None:
    accessor.values[STATE_KEY] = stored
    reading = record.read()
    assert (reading.identity, reading.problem) == (None, problem)


def test_reading_survives_a_store_that_is_down(record: Record, accessor: Accessor) -> None:
    accessor.failure = Answer(500)
    assert record.read().problem == "store_unavailable"


def test_what_is_written_is_read(record: Record) -> None:
    assert record.write_intent(IDENTITY)
    assert record.read().identity == IDENTITY


def test_only_a_gone_task_instance_and_a_forbidden_store_stop_the_intent(
    record: Record, accessor: Accessor
) -> None:
    accessor.failure = Answer(404, NOT_FOUND)
    with pytest.raises(SupersededError, match="no longer knows this task instance"):
        record.write_intent(IDENTITY)
    accessor.failure = Answer(403)
    with pytest.raises(RecordForbiddenError, match="durable=False"):
        record.write_intent(IDENTITY)
    accessor.failure = Answer(500)
    assert record.write_intent(IDENTITY) is False


def test_once_the_pod_exists_a_forbidden_store_stops_nothing(record: Record, accessor: Accessor) -> None:
    accessor.failure = Answer(403)
    assert record.write_known(IDENTITY) is False


def test_marking_as_finished_never_raises(record: Record, accessor: Accessor) -> None:
    accessor.failure = Answer(404, NOT_FOUND)
    record.mark_finished(IDENTITY)
    accessor.failure = None
    record.mark_finished(IDENTITY)
    assert accessor.values[STATE_KEY]["state"] == "finished"
