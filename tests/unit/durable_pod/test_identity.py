# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_steadfast.durable_pod.identity import (
    Identity,
    MalformedIdentityError,
    cluster_fingerprint,
    parse,
)

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?", fullmatch=True)
TEXTS = st.none() | st.text(min_size=1)
NUMBERS = st.none() | st.integers(min_value=0, max_value=10_000)
IDENTITIES = st.builds(
    Identity,
    name=NAMES,
    namespace=NAMES,
    uid=TEXTS,
    launch=TEXTS,
    try_number=NUMBERS,
    max_tries=NUMBERS,
    cluster=TEXTS,
    state=st.sampled_from(["creating", "created", "finished"]),
)


@given(IDENTITIES)
def test_what_is_stored_is_read_back(identity: Identity) -> None:
    assert parse(json.loads(json.dumps(identity.to_value()))) == identity


ANYTHING = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists)


@given(ANYTHING | st.dictionaries(st.text(), ANYTHING))
def test_any_other_value_is_refused_or_read_but_nothing_else_is_raised(value: object) -> None:
    with contextlib.suppress(MalformedIdentityError):
        parse(value)


def test_the_value_is_a_superset_of_the_providers() -> None:
    assert {"name": "n", "namespace": "ns"}.items() <= Identity("n", "ns", uid="u").to_value().items()


def test_the_providers_own_value_is_an_identity_without_uid() -> None:
    identity = parse({"name": "job-x7f3", "namespace": "etl"})
    assert identity == Identity("job-x7f3", "etl")
    assert not identity.is_intent


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert parse({"name": "n", "namespace": "ns", "v": 9, "new": []}) == Identity("n", "ns")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "NoneType, not an object"),
        ("job", "str, not an object"),
        ({}, "name is None"),
        ({"name": "n"}, "namespace is None"),
        ({"name": 7, "namespace": "ns"}, "name is 7"),
        ({"name": "Not_A_Name", "namespace": "ns"}, "name is 'Not_A_Name'"),
        ({"name": "n" * 254, "namespace": "ns"}, "name is 'nnn"),
        ({"name": "n/../m", "namespace": "ns"}, "not a Kubernetes name"),
        ({"name": "n", "namespace": "a.b"}, "namespace is 'a.b'"),
        ({"name": "n", "namespace": "ns", "uid": ""}, "uid is ''"),
        ({"name": "n", "namespace": "ns", "uid": 3}, "uid is 3"),
        ({"name": "n", "namespace": "ns", "try": True}, "try is True"),
        ({"name": "n", "namespace": "ns", "state": "gone"}, "state is 'gone'"),
    ],
)
def test_a_value_that_could_lead_to_a_wrong_pod_is_malformed_and_says_why(value: object, says: str) -> None:
    with pytest.raises(MalformedIdentityError, match=says.replace(".", r"\.")):
        parse(value)


def test_an_intent_becomes_known_and_then_finished() -> None:
    intent = Identity("n", "ns", launch="l", state="creating")
    assert intent.is_intent
    known = intent.with_uid("u")
    assert (known.uid, known.state, known.is_intent) == ("u", "created", False)
    assert known.as_finished().to_value()["state"] == "finished"


def test_clusters_are_told_apart_by_address_and_authority() -> None:
    one = cluster_fingerprint("https://10.0.0.1:443", b"ca")
    assert one == cluster_fingerprint("https://10.0.0.1:443/", b"ca")
    assert (
        len(
            {
                one,
                cluster_fingerprint("https://10.0.0.2:443", b"ca"),
                cluster_fingerprint("https://10.0.0.1:443", b"other"),
            }
        )
        == 3
    )
    assert "10.0.0.1" not in one
