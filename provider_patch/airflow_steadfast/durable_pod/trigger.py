# SPDX-License-Identifier: Apache-2.0
"""The triggerer's half: a trigger that was given a uid watches and deletes that pod only.

The uid comes in the trigger's ``trigger_kwargs``, which triggers without this package take, store and
echo as well; the operator compares it again when it resumes. A trigger without it is as it was, so
this is on wherever the patch is loaded.
"""

from __future__ import annotations

import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger("airflow_steadfast.durable_pod")

UID_KWARG = "_pod_uid"
MARK = "_steadfast_uid_bound"

_GONE = frozenset({404, 409})


class PodReplacedError(Exception):
    """Another pod has the name of the pod that this trigger was made for."""


def install(module: Any) -> None:
    """Bind the trigger class of its imported module to uids. Idempotent.

    Raises TypeError, with nothing changed, where the class does not fit.
    """
    trigger = module.KubernetesPodTrigger
    if MARK in vars(trigger):
        return
    read = getattr(trigger, "_get_pod", None)
    if read is None or not hasattr(trigger, "hook"):
        raise TypeError(f"{trigger.__name__} has no _get_pod, or no hook")
    changes: dict[str, Any] = {"_get_pod": _checked(read)}
    for name in ("on_kill", "cleanup"):
        method = vars(trigger).get(name)
        if inspect.iscoroutinefunction(method):
            changes[name] = _deleting(method)
    for name, change in changes.items():
        setattr(trigger, name, change)
    setattr(trigger, MARK, True)


def uid_of(trigger: Any) -> str | None:
    """Return the uid that the trigger was given, None for a trigger of another origin."""
    given = getattr(trigger, "trigger_kwargs", None)
    uid = given.get(UID_KWARG) if isinstance(given, dict) else None
    return uid if isinstance(uid, str) and uid else None


def _checked(native: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    async def _get_pod(self: Any) -> Any:
        pod = await native(self)
        wanted = uid_of(self)
        found = getattr(getattr(pod, "metadata", None), "uid", None)
        if wanted is not None and found != wanted:
            raise PodReplacedError(
                f"pod {self.pod_namespace}/{self.pod_name} is no longer the one that this task follows (uid "
                f"{wanted}): another pod (uid {found}) has taken its name"
            )
        return pod

    return _get_pod


def _deleting(native: Callable[..., Any]) -> Callable[..., Any]:
    """Let the native method decide whether to delete, and bind the delete to the uid."""

    @functools.wraps(native)
    async def method(self: Any) -> Any:
        uid = uid_of(self)
        if uid is not None:
            hook = self.hook
            hook.delete_pod = functools.partial(_delete, hook, uid)
        return await native(self)

    return method


async def _delete(
    hook: Any, uid: str, name: str, namespace: str, grace_period_seconds: int | None = None, **_: Any
) -> None:
    """Delete the pod of this uid; one that is gone, or whose name another has, is no error."""
    from kubernetes_asyncio import client

    options = client.V1DeleteOptions(
        grace_period_seconds=grace_period_seconds, preconditions=client.V1Preconditions(uid=uid)
    )
    async with hook.get_conn() as connection:
        try:
            await client.CoreV1Api(connection).delete_namespaced_pod(
                name=name, namespace=namespace, body=options
            )
        except client.ApiException as error:
            if error.status not in _GONE:
                raise
            log.info("pod %s/%s (uid %s) was gone already", namespace, name, uid)
