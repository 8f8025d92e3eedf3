# SPDX-License-Identifier: Apache-2.0
"""An API server's refusal is one readable line in the scheduler's log."""

from __future__ import annotations

import json

import pytest
from kubernetes.client.exceptions import ApiException

from airflow_steadfast.launch_guard.answers import describe


def refusal(status, reason, body):
    error = ApiException(status=status, reason=reason)
    error.body = body
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            refusal(403, "Forbidden", json.dumps({"message": "pods is forbidden: exceeded quota: workers"})),
            "403 pods is forbidden: exceeded quota: workers",
        ),
        (refusal(429, "Too Many Requests", None), "429 Too Many Requests"),
        (refusal(504, "Gateway Timeout", b"upstream\nrequest timeout"), "504 upstream request timeout"),
        (refusal(0, None, None), "no answer"),
        (ConnectionResetError("reset by peer"), "ConnectionResetError('reset by peer')"),
        (refusal(500, "", "x" * 1_000), "500 " + "x" * 296),
    ],
)
def test_one_line_with_status_and_message(error, said):
    assert describe(error) == said
