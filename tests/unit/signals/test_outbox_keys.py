# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from airflow_steadfast.signals import outbox
from airflow_steadfast.signals.catalogue import FALLBACK_REASONS


def test_the_key_is_the_event():
    assert outbox.event_key("identity_hit", 2) == "steadfast.event.v1.2.identity_hit"
    assert (
        outbox.event_key("label_fallback", 3, "no_record") == "steadfast.event.v1.3.label_fallback.no_record"
    )


@given(
    some.sampled_from(sorted(outbox.METRIC_BY_KIND)),
    some.integers(0, 10**6),
    some.sampled_from(FALLBACK_REASONS),
)
def test_a_key_gives_its_event_back(kind, try_number, reason):
    event = outbox.parse_key(outbox.event_key(kind, try_number, reason))
    expected = reason if kind == "label_fallback" else None
    assert event == outbox.Event(kind, try_number, expected)
    assert event.labels == ({"reason": reason} if expected else {})


def test_a_reason_outside_the_catalogue_is_other_on_both_sides():
    key = outbox.event_key("label_fallback", 2, "brand_new")
    assert key.endswith(".other")
    assert outbox.parse_key(key.replace(".other", ".brand_new")) == outbox.Event("label_fallback", 2, "other")


@pytest.mark.parametrize(
    "key",
    [
        "",
        "pod_identifier",
        "steadfast.event.v2.1.identity_hit",
        "steadfast.event.v1.",
        "steadfast.event.v1.2",
        "steadfast.event.v1.x.identity_hit",
        "steadfast.event.v1.-1.identity_hit",
        "steadfast.event.v1.²" + ".identity_hit",
        "steadfast.event.v1.2.unknown",
        "steadfast.event.v1.2.identity_hit.extra",
        "steadfast.event.v1.2.label_fallback",
        "steadfast.event.v1.2.label_fallback.no_record.extra",
        None,
        7,
    ],
)
def test_what_is_no_event_is_none(key):
    assert outbox.parse_key(key) is None


@given(some.text())
def test_parsing_never_raises(text):
    outbox.parse_key(text)
    outbox.parse_key(outbox.KEY_PREFIX + text)


@pytest.mark.parametrize(
    ("kind", "number"), [("nothing", 1), ("attempt", -1), ("attempt", True), ("attempt", "1")]
)
def test_a_wrong_call_is_refused(kind, number):
    with pytest.raises(ValueError, match=r"kind|try_number"):
        outbox.event_key(kind, number)
