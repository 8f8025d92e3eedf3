# SPDX-License-Identifier: Apache-2.0
"""When a token is renewed, with which generator, and that a failure leaves everything as it was."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from airflow_steadfast.launch_guard import renewal, workload
from airflow_steadfast.launch_guard import token as tokens
from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch

NOW = 10_000.0


def jwt(expires, issued=None):
    claims = {"exp": expires, **({} if issued is None else {"iat": issued})}
    return f"h.{base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b'=').decode()}.s"


class Job(NamedTuple):
    key: str
    command: list[Any]


@dataclass
class Attempt:
    job: Any


@dataclass
class Workload:
    ti: Any
    token: str

    def model_copy(self, *, update):
        return replace(self, **update)


class ScopedWorkload(Workload):
    """As of Airflow 3.2: the class issues tokens itself."""

    @staticmethod
    def generate_token(sub, generator):
        return generator.generate({"sub": sub, "scope": "workload"})


class Generator:
    def __init__(self, expires=NOW + 600):
        self.expires = expires
        self.asked = []

    def generate(self, claims):
        self.asked.append(claims)
        if self.expires is None:
            raise RuntimeError("no key")
        return jwt(self.expires, NOW)


@pytest.fixture(autouse=True)
def plain_launches(monkeypatch):
    monkeypatch.setattr(
        workload,
        "launch_of",
        lambda job: Launch("a", 1, key=None, token_expires_at=tokens.expires_at(job.command[0].token)),
    )


def made(expires, *, generator=None, issued=NOW - 600, kind=ScopedWorkload):
    generator = generator or Generator()
    job = Job("key", [kind(SimpleNamespace(id="a"), jwt(expires, issued))])
    executor = SimpleNamespace(jwt_generator=generator, pod_launch_attempts={"key": Attempt(job)})
    entry = Entry(job, workload.launch_of(job))
    return renewal.TokenRenewal(executor, wall=lambda: NOW), entry, executor


@pytest.mark.parametrize(("expires", "expired"), [(NOW - 1, True), (NOW, True), (NOW + 1, False)])
def test_a_token_is_good_until_it_expires(expires, expired):
    renewing, entry, _ = made(expires)
    assert renewing.expired(entry) is expired


def test_what_says_no_time_never_expires():
    renewing, entry, executor = made(NOW)
    entry.launch = replace(entry.launch, token_expires_at=None)
    assert not renewing.expired(entry)
    renewing.refresh(entry)
    assert executor.jwt_generator.asked == []
    assert not renewing.expired(Entry("command"))
    renewing.refresh(Entry("command"))


@pytest.mark.parametrize(
    ("kind", "claims"),
    [(ScopedWorkload, {"sub": "a", "scope": "workload"}), (Workload, {"sub": "a"})],
    ids=["3.2 and newer", "3.0 and 3.1"],
)
def test_a_renewed_job_differs_in_its_token_only(kind, claims):
    renewing, entry, executor = made(NOW - 1, kind=kind)
    job = renewing.renew(entry)
    assert executor.jwt_generator.asked == [claims]
    assert job.key == "key"
    assert job.command == [replace(entry.job.command[0], token=jwt(NOW + 600, NOW))]
    assert tokens.expires_at(entry.job.command[0].token) == NOW - 1
    assert executor.pod_launch_attempts["key"].job is job


def test_an_attempt_of_another_job_is_left_alone():
    renewing, entry, executor = made(NOW - 1)
    other = executor.pod_launch_attempts["key"].job = Job(*entry.job)
    assert renewing.renew(entry) is not None
    assert executor.pod_launch_attempts["key"].job is other


def test_an_executor_without_attempts_renews_too():
    renewing, entry, executor = made(NOW - 1)
    del executor.pod_launch_attempts
    assert renewing.renew(entry) is not None


@pytest.mark.parametrize("expires", [None, NOW - 5, NOW])
def test_no_better_token_is_none(expires, caplog):
    renewing, entry, executor = made(NOW - 1, generator=Generator(expires))
    assert renewing.renew(entry) is None
    assert renewing.renew(entry) is None
    assert executor.pod_launch_attempts["key"].job is entry.job
    said = [record for record in caplog.records if "cannot be renewed" in record.getMessage()]
    assert len(said) == (1 if expires is None else 0)


@pytest.mark.parametrize(
    ("issued", "left", "renewed"),
    [
        (NOW - 480, 120, True),
        (NOW - 479, 121, False),
        (NOW - 30, 30, True),
        (NOW - 29, 31, False),
        (None, 1, False),
        (None, 0, True),
    ],
)
def test_a_token_with_little_time_left_is_renewed_in_place(issued, left, renewed):
    renewing, entry, executor = made(NOW + left, issued=issued)
    old = entry.job
    renewing.refresh(entry)
    assert (entry.job is not old) is renewed
    if renewed:
        assert entry.launch.token_expires_at == NOW + 600
        assert executor.pod_launch_attempts["key"].job is entry.job


def test_a_token_that_cannot_be_renewed_in_place_is_used_as_it_is():
    renewing, entry, _ = made(NOW + 1, generator=Generator(None))
    old = entry.job
    renewing.refresh(entry)
    assert entry.job is old
