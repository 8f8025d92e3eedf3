# SPDX-License-Identifier: Apache-2.0
"""What the installed Airflow and its Kubernetes provider can do.

Features decide, probed on the classes themselves; versions only say whether a pair is newer than
anything tested. Functions here never raise and import nothing heavy: classes to probe are given.
"""

from __future__ import annotations

import inspect
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

TESTED_AIRFLOW: tuple[str, ...] = ("2.11.2", "3.0.6", "3.1.8", "3.2.2", "3.3.2")
LOWEST_PROVIDER = "10.8.2"
NEWEST_PROVIDER = "10.25.0"

EXECUTOR_SEAMS: Mapping[str, tuple[str, ...]] = {
    "start": ("self",),
    "sync": ("self",),
    "end": ("self",),
    "execute_async": ("self", "key", "command", "queue", "executor_config"),
    "revoke_task": ("self", "ti"),
    "adopt_launched_task": ("self", "kube_client", "pod", "tis_to_flush_by_key"),
    "_change_state": ("self", "results"),
    "_flush_task_queue": ("self",),
    "_list_pods": ("self", "query_kwargs"),
    "_make_safe_label_value": ("self", "input_value"),
    "log_task_event": ("self", "event", "extra", "ti_key"),
    "fail": ("self", "key", "info"),
}
"""Methods that the launch guard overrides or calls, with the parameters it counts on.

What it asks of a started executor besides is in ``launch_guard.seams``.
"""

LATER_EXECUTOR_SEAMS: Mapping[str, tuple[str, ...]] = {
    "_should_create_pod_for_job": ("self", "task"),  # 10.23
    "_alive_other_scheduler_job_ids": ("self",),  # 10.17
}
"""The same, where the provider has them."""

OPERATOR_SEAMS: Mapping[str, tuple[str, ...]] = {
    "execute_sync": ("self", "context"),
    "get_or_create_pod": ("self", "pod_request_obj", "context"),
    "find_pod": ("self", "namespace", "context"),
    "process_pod_deletion": ("self", "pod"),
}
"""The same for the durable pod."""

_BASE = "airflow.executors.base_executor"
_BASE_SEAMS = ("log_task_event", "fail")
"""Seams of every executor's base class; the base class's of the others do nothing, or raise."""

_QUEUE_USERS = ("_create_pods_sequentially", "_create_pods_concurrently", "sync")


@dataclass(frozen=True)
class Versions:
    """Installed versions as text; "" where one cannot be told."""

    airflow: str
    provider: str
    python: str

    def __str__(self) -> str:
        return f"Airflow {self.airflow or '?'} with provider {self.provider or '?'}"


@dataclass(frozen=True)
class Support:
    """Whether a component may be active; ``reason`` says why not, "" where it may."""

    active: bool
    reason: str = ""


def versions() -> Versions:
    """The installed versions."""
    try:
        from airflow import __version__ as airflow
    except Exception:
        airflow = ""
    try:
        from airflow.providers.cncf.kubernetes import __version__ as provider
    except Exception:
        provider = ""
    return Versions(str(airflow), str(provider), platform.python_version())


def untested_reason(found: Versions) -> str:
    """Why this pair is outside what was tested, "" where it is inside.

    Patch releases of a tested Airflow minor count as tested; a provider is tested from the lowest to
    the newest of the table.
    """
    airflow, provider = _release(found.airflow), _release(found.provider)
    if airflow[:2] not in {_release(version)[:2] for version in TESTED_AIRFLOW}:
        return f"Airflow {found.airflow or '?'} is not among the tested {', '.join(TESTED_AIRFLOW)}"
    if provider < _release(LOWEST_PROVIDER):
        return f"provider {found.provider or '?'} is older than {LOWEST_PROVIDER}, the oldest tested"
    if provider > _release(NEWEST_PROVIDER):
        return f"provider {found.provider} is newer than {NEWEST_PROVIDER}, the newest tested"
    return ""


def launch_guard(executor: type[Any], found: Versions, *, allow_untested: bool) -> Support:
    """Whether the launch guard may work in this executor class."""
    reason = "" if allow_untested else untested_reason(found)
    reason = reason or missing_seam(executor, EXECUTOR_SEAMS, strict=True)
    reason = reason or missing_seam(executor, there(executor, LATER_EXECUTOR_SEAMS), strict=True)
    reason = reason or _only_of_base(executor)
    if not reason and not _uses_task_queue(executor):
        reason = f"{executor.__name__} does not take its jobs from task_queue"
    if not reason and not uses(executor, "sync", "_change_state"):
        reason = f"{executor.__name__}.sync does not hand results to _change_state"
    return Support(active=not reason, reason=reason)


def durable_pod(operator: type[Any], found: Versions, *, allow_untested: bool) -> Support:
    """Whether the durable pod may work in this operator class."""
    reason = "" if allow_untested else untested_reason(found)
    reason = reason or missing_seam(operator, OPERATOR_SEAMS)
    return Support(active=not reason, reason=reason)


def missing_seam(cls: type[Any], seams: Mapping[str, tuple[str, ...]], *, strict: bool = False) -> str:
    """The first method or parameter of ``seams`` that ``cls`` lacks, as a sentence; "" if none.

    With ``strict`` a method that cannot be called without a parameter that is not named does not match.
    """
    for name, expected in seams.items():
        method = getattr(cls, name, None)
        if method is None:
            return f"{cls.__name__} has no method {name}"
        try:
            found = inspect.signature(inspect.unwrap(method)).parameters
        except (TypeError, ValueError):
            return f"{cls.__name__}.{name} has no readable signature"
        lost = [parameter for parameter in expected if parameter not in found]
        if lost:
            return f"{cls.__name__}.{name} has no parameter {lost[0]}"
        more = [parameter.name for parameter in found.values() if _is_needed(parameter)]
        asked = [parameter for parameter in more if parameter not in expected]
        if strict and asked:
            return f"{cls.__name__}.{name} asks for a parameter {asked[0]}"
    return ""


def there(cls: type[Any], seams: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """The ``seams`` whose method ``cls`` has, whatever its parameters."""
    return {name: expected for name, expected in seams.items() if hasattr(cls, name)}


def uses(cls: type[Any], method: str, name: str) -> bool:
    """Whether the code of a method names ``name``, in ``cls`` or in a class that it derives from."""
    return any(name in _names(vars(one)[method]) for one in cls.__mro__ if method in vars(one))


def _is_needed(parameter: inspect.Parameter) -> bool:
    named = parameter.kind not in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    return named and parameter.default is inspect.Parameter.empty


def _only_of_base(executor: type[Any]) -> str:
    for name in (one for one in EXECUTOR_SEAMS if one not in _BASE_SEAMS):
        defined = next((one.__module__ for one in executor.__mro__ if name in vars(one)), "")
        if defined == _BASE:
            return f"{executor.__name__} has no method {name} of its own"
    return ""


def has_task_state_store(found: Versions) -> bool:
    """Whether a task has a state store of its own (Airflow 3.3 and newer)."""
    return _release(found.airflow) >= (3, 3)


def _uses_task_queue(executor: type[Any]) -> bool:
    """Look whether the code that creates pods reads ``self.task_queue.get_nowait()``."""
    for name in _QUEUE_USERS:
        names = _names(getattr(executor, name, None))
        if "task_queue" in names and "get_nowait" in names:
            return True
    return False


def _names(method: Any) -> tuple[str, ...]:
    """The names of attributes and globals in a method's code; none for what is no function."""
    if not callable(method):
        return ()
    return getattr(getattr(inspect.unwrap(method), "__code__", None), "co_names", ())


def _release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version; pre-release and local parts do not change what was tested."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)
