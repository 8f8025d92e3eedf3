# SPDX-License-Identifier: Apache-2.0
"""The operator's pod manager and hook, bound to the one pod that its try follows.

Both know pods by name only. The objects are the operator's own, made anew when its credentials are, so
what is put in their place here is seen by nobody else.
"""

from __future__ import annotations

import contextlib
import functools
import math
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from kubernetes.client.exceptions import ApiException

from airflow_steadfast.durable_pod import deletion, lookup, patience, termination
from airflow_steadfast.durable_pod import session as sessions
from airflow_steadfast.kube import pods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_steadfast.durable_pod.identity import Identity
    from airflow_steadfast.durable_pod.session import Session


def manager_property(native: functools.cached_property[Any]) -> functools.cached_property[Any]:
    """Return the cached property that makes the operator's pod manager and binds it."""

    def pod_manager(self: Any) -> Any:
        return _bind_manager(self, native.func(self))

    bound = functools.cached_property(functools.wraps(native.func)(pod_manager))
    bound.__set_name__(object, "pod_manager")
    return bound


def _bind_manager(operator: Any, manager: Any) -> Any:
    """Let this manager read, delete and follow only the try's own pod. Without a session it is as it was."""
    native_read, native_delete, native_logs = manager.read_pod, manager.delete_pod, manager.read_pod_logs

    def read_pod(pod: Any) -> Any:
        session = _session_of(operator, pod)
        return native_read(pod) if session is None else read_followed(session)

    def delete_pod(pod: Any) -> None:
        if sessions.current(operator) is None or pods.uid(pod) is None:
            native_delete(pod)
        else:
            deletion.delete_pod(operator, pod.metadata.name, pod.metadata.namespace, pods.uid(pod))

    def read_pod_logs(pod: Any, container_name: str, *args: Any, **keywords: Any) -> Any:
        session = _session_of(operator, pod)
        if session is None:
            return native_logs(pod, container_name, *args, **keywords)
        if keywords.get("since_seconds") is not None:
            keywords["since_seconds"] = _since(manager, pod, container_name, keywords["since_seconds"])
        return patience.call(
            lambda: native_logs(pod, container_name, *args, **keywords), f"log of pod {pod.metadata.name}"
        )

    manager.read_pod, manager.delete_pod, manager.read_pod_logs = read_pod, delete_pod, read_pod_logs
    return manager


def _session_of(operator: Any, pod: Any) -> Session | None:
    """Return the session whose pod this is by name, None where it is another or nothing is followed yet."""
    session = sessions.current(operator)
    known = session.identity if session is not None else None
    if known is None or (known.name, known.namespace) != (pod.metadata.name, pod.metadata.namespace):
        return None
    return session


def read_followed(session: Session) -> Any:
    """Return this try's pod as it is now.

    Raises PodReplacedError for a namesake, StopFollowing where the task was told to stop and a library
    has swallowed that, ApiException (404) where the pod is gone, or the client's error after
    ``patience.OUTAGE_SECONDS``.
    """
    if session.stop_requested and not session.unwinding:
        termination.raise_stop(session)
    identity = session.identity
    assert identity is not None  # noqa: S101 - callers have asked for it
    pod = patience.call(
        lambda: session.operator.client.read_namespaced_pod(
            identity.name, identity.namespace, _request_timeout=patience.REQUEST_TIMEOUT
        ),
        f"reading pod {identity.namespace}/{identity.name}",
    )
    check_uid(identity, pod)
    return pod


def find_followed(session: Session) -> Any:
    """Return this try's pod as it is now, None where it is gone; else as ``read_followed``."""
    try:
        return read_followed(session)
    except ApiException as error:
        if error.status == lookup.NOT_FOUND:
            return None
        raise


def check_uid(identity: Identity, pod: Any) -> None:
    """Raise PodReplacedError where the pod has the name but is not the one."""
    if identity.uid is not None and pods.uid(pod) != identity.uid:
        raise termination.PodReplacedError(
            f"pod {identity.namespace}/{identity.name} is no longer the one that this try follows (uid "
            f"{identity.uid}): {pods.describe(pod)} has taken its name"
        )


@contextlib.contextmanager
def checked_hook(session: Session) -> Iterator[None]:
    """Within this block the operator's hook compares the uid of the pod that it gets.

    The provider's re-entry reads the pod by its name, through the hook. Where the pod is gone,
    ``session.seen_gone`` says so afterwards, and ``session.replaced`` where another has its name: older
    providers end such a re-entry with an error of their own clean-up.
    """
    hook = session.operator.hook
    native: Callable[..., Any] = hook.get_pod

    def get_pod(name: str, namespace: str, *args: Any, **keywords: Any) -> Any:
        identity = session.identity
        if identity is None or (identity.name, identity.namespace) != (name, namespace):
            return native(name, namespace, *args, **keywords)
        try:
            pod = patience.call(
                lambda: native(name, namespace, *args, **keywords), f"reading pod {namespace}/{name}"
            )
        except ApiException as error:
            session.seen_gone = error.status == lookup.NOT_FOUND
            raise
        try:
            check_uid(identity, pod)
        except termination.PodReplacedError as error:
            session.replaced = error
            raise
        return pod

    hook.get_pod = get_pod
    try:
        yield
    finally:
        hook.__dict__.pop("get_pod", None)


def _since(manager: Any, pod: Any, container: str, asked: int) -> int:
    """Return how far back to read so that no line is lost.

    After a read that timed out the provider goes on two seconds later than the last line it has seen.
    """
    seen = getattr(manager, "container_log_times", {}).get(
        (pod.metadata.namespace, pod.metadata.name, container)
    )
    if not isinstance(seen, datetime):
        return asked
    return max(asked, math.ceil((datetime.now(tz=timezone.utc) - seen).total_seconds()))
