# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import http.client
import json

import pytest
import urllib3
from aiohttp import ClientConnectionError, ServerDisconnectedError
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client.exceptions import ApiException
from kubernetes_asyncio.client.exceptions import ApiException as AsyncApiException

from airflow_steadfast.launch_guard.answers import Answer, classify


def answer(status, body="", headers=None, cls=ApiException):
    error = cls(status=status, reason="because")
    error.body, error.headers = body, headers
    return error


def status_object(reason="", message=""):
    return json.dumps({"kind": "Status", "reason": reason, "message": message})


EXISTS = status_object("AlreadyExists", 'pods "a" already exists')
MODIFIED = status_object("Conflict", "the object has been modified; please apply your changes")
QUOTA = status_object("Forbidden", 'pods "a" is forbidden: exceeded quota: workers')


@pytest.mark.parametrize("cls", [ApiException, AsyncApiException])
@pytest.mark.parametrize(
    ("status", "body", "headers", "expected"),
    [
        (409, EXISTS, None, Answer("exists")),
        (409, EXISTS.encode(), None, Answer("exists")),
        (409, 'pods "a" already exists', None, Answer("exists")),
        (409, MODIFIED, None, Answer("refused")),
        (409, "", None, Answer("final")),
        (403, QUOTA, None, Answer("refused")),
        (403, status_object("Forbidden", "no right to create pods"), None, Answer("final")),
        (422, status_object("Invalid", "already exists"), None, Answer("final")),
        (400, "[1]", None, Answer("final")),
        (404, None, None, Answer("final")),
        (500, None, None, Answer("unknown")),
        (502, "<html>", None, Answer("unknown")),
        (503, None, {"Retry-After": "7"}, Answer("unknown", 7.0)),
        (504, None, {}, Answer("unknown")),
        (0, None, None, Answer("unknown")),
        (None, None, None, Answer("unknown")),
        (429, None, {"Retry-After": "7"}, Answer("throttled", 7.0)),
        (429, None, {"Retry-After": "3600"}, Answer("throttled", 300.0)),
        (429, None, {"Retry-After": "-1"}, Answer("throttled", 0.0)),
        (429, None, {"Retry-After": "nan"}, Answer("throttled", 1.0)),
        (429, None, {"Retry-After": "Fri, 31 Dec 2026 23:59:59 GMT"}, Answer("throttled", 1.0)),
        (429, None, None, Answer("throttled", 1.0)),
    ],
)
def test_answers_of_a_server(cls, status, body, headers, expected):
    for sent in (True, False):
        assert classify(answer(status, body, headers, cls), sent=sent) == expected


LOST = [
    urllib3.exceptions.ProtocolError("reset"),
    urllib3.exceptions.ReadTimeoutError(None, "/", "late"),
    ConnectionResetError(),
    TimeoutError(),
    asyncio.TimeoutError(),
    http.client.RemoteDisconnected(),
    ClientConnectionError(),
    ServerDisconnectedError(),
]


@pytest.mark.parametrize("error", LOST, ids=lambda error: type(error).__name__)
def test_a_lost_reply_leaves_open_whether_there_is_a_pod_if_the_create_was_sent(error):
    assert classify(error, sent=True) == Answer("unknown")
    assert classify(error, sent=False) == Answer("final")


@pytest.mark.parametrize("error", [ValueError(), RuntimeError(), KeyError("a")])
def test_other_errors_are_final(error):
    assert classify(error, sent=True) == Answer("final")


@given(st.one_of(st.none(), st.integers()), st.one_of(st.none(), st.text(), st.binary()), st.text())
def test_no_answer_is_too_odd(status, body, header):
    assert classify(answer(status, body, {"Retry-After": header}), sent=True).kind
