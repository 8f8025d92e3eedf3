# SPDX-License-Identifier: Apache-2.0
"""Reads that answer soon: for a caller that must not wait, such as the scheduler's loop."""

from __future__ import annotations

import copy
import json
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.client.rest import RESTClientObject

TIMEOUT = (2.0, 5.0)
"""Seconds to connect, and to wait for each part of the answer."""

_NOT_FOUND = 404
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


class Listing(NamedTuple):
    """``metadata`` of each pod as the API names its fields, and the server's clock when it answered."""

    metadata: list[dict[str, Any]]
    at: datetime


def impatient(api: client.CoreV1Api) -> client.CoreV1Api:
    """Return a client like ``api``, with its credentials, that tries each request once.

    urllib3 repeats a GET by itself, and on 429 and 503 sleeps for the ``Retry-After`` that the server
    names, up to ten times. ``api`` itself is left as it is; it is returned where it cannot be copied.
    """
    try:
        once = copy.copy(api.api_client)
        configuration = copy.copy(once.configuration)
        configuration.retries = False
        once.rest_client = RESTClientObject(configuration)
        return client.CoreV1Api(once)
    except Exception:
        return api


def read_pod(api: client.CoreV1Api, name: str, namespace: str) -> Any | None:
    """Return the pod, None where there is none of that name; raises what the client raises."""
    try:
        return api.read_namespaced_pod(name=name, namespace=namespace, _request_timeout=TIMEOUT)
    except ApiException as error:
        if error.status == _NOT_FOUND:
            return None
        raise


def list_metadata(api: client.CoreV1Api, namespace: str | None, selector: str) -> Listing:
    """Return what ``metadata`` of the pods says, in one namespace or, for None, in all of them.

    Raises what the client raises; ``KeyError`` or ``ValueError`` for an answer without items or date.
    """
    once = impatient(api)
    if once is not api:
        once.api_client.default_headers = {**once.api_client.default_headers, "Accept": _METADATA_ONLY}
    request = {"label_selector": selector, "_request_timeout": TIMEOUT, "_preload_content": False}
    if namespace is None:
        answer = once.list_pod_for_all_namespaces(**request)
    else:
        answer = once.list_namespaced_pod(namespace, **request)
    items = json.loads(answer.data)["items"]
    at = parsedate_to_datetime(str(answer.headers.get("Date"))).astimezone(timezone.utc)
    return Listing([item["metadata"] for item in items], at)
