# SPDX-License-Identifier: Apache-2.0
"""What a token says of itself is read without its key, and nothing that it may hold breaks the reading."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_steadfast.launch_guard import token

EXP = b'"exp"'


def part(value):
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(text).rstrip(b"=").decode()


def jwt(claims, signature="c2ln"):
    return f"{part({'alg': 'HS512'})}.{part(claims)}.{signature}"


@pytest.mark.parametrize("padding", range(4))
def test_expiry_and_lifetime_are_read_whatever_the_length(padding):
    text = jwt({"exp": 1_700_000_600, "iat": 1_700_000_000, "sub": "x" * padding})
    assert token.expires_at(text) == 1_700_000_600
    assert token.lifetime(text) == 600


def test_a_fraction_of_a_second_is_a_time_too():
    assert token.expires_at(jwt({"exp": 12.5})) == 12.5


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "a",
        "a.b",
        "..",
        "a.b.c.d",
        b"a.b.c",
        7,
        "a.é.c",
        f"a.{part(b'no json')}.c",
        f"a.{part([1, 2])}.c",
        f"a.{part(b'[' * 100_000)}.c",
        f"a.{part(bytes([0xFF, 0xFE]))}.c",
        f"a.{'b' * 5}.c",
        jwt({}),
        jwt({"exp": "1700000600"}),
        jwt({"exp": True}),
        jwt({"exp": None}),
        jwt({"exp": [1]}),
        jwt({"exp": 10**400}),
        f"a.{part(b'{%s: NaN}' % EXP)}.c",
        f"a.{part(b'{%s: -Infinity}' % EXP)}.c",
    ],
)
def test_what_says_no_time_has_none(text):
    assert token.expires_at(text) is None
    assert token.lifetime(text) is None


@pytest.mark.parametrize("claims", [{"exp": 600}, {"iat": 600}, {"exp": 600, "iat": "0"}])
def test_a_lifetime_needs_both_ends(claims):
    assert token.lifetime(jwt(claims)) is None


@given(st.one_of(st.text(), st.binary(), st.none(), st.text().map(lambda text: f"a.{text}.c")))
def test_no_token_raises(text):
    assert token.claims(text) == {} or isinstance(token.claims(text), dict)


def test_without_renewal_nothing_expires():
    assert not token.NO_RENEWAL.expired(None)
    assert token.NO_RENEWAL.renew(None) is None
