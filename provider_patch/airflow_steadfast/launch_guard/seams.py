# SPDX-License-Identifier: Apache-2.0
"""What the guard needs of a started executor: its launcher, its books, the provider's records.

The executor's own methods are in ``capabilities``. A provider that lacks a seam, or has it in another
shape, is left alone, so that no launch meets an AttributeError of the guard in the middle of a loop.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from airflow_steadfast import capabilities
from airflow_steadfast.launch_guard import naming
from airflow_steadfast.launch_guard.existing import REVOKED_LABEL
from airflow_steadfast.launch_guard.results import ADOPTED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

LAUNCHER: Mapping[str, tuple[str, ...]] = {
    "run_next": ("self", "next_job"),
    "run_pod_async": ("self", "pod"),
    "delete_pod": ("self", "pod_name", "namespace"),
    "patch_pod_executor_done": ("self", "pod_name", "namespace"),
}
"""Methods of the launcher, with the parameters that the guard counts on."""

LATER_LAUNCHER: Mapping[str, tuple[str, ...]] = {
    "_build_pod_request": ("self", "next_job"),
    "run_next_batch": ("self", "next_jobs"),
}
"""The same, where the provider has them (10.21)."""

ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "task_queue": ("put", "get_nowait", "task_done", "qsize", "join"),
    "result_queue": ("put",),
    "event_buffer": ("get", "items", "pop"),
    "running": ("add", "discard"),
    "_task_event_logs": ("append",),
    "kube_config": (
        "worker_pods_creation_batch_size",
        "delete_worker_pods",
        "delete_worker_pods_on_failure",
        "pod_template_file",
        "kube_namespace",
        "multi_namespace_mode",
        "kube_image",
    ),
    "kube_scheduler": ("kube_client",),
    "kube_client": ("api_client",),
    "job_id": (),
}
"""What a started executor has, and what of each of them is used."""

RECORDS: Mapping[str, tuple[str, ...]] = {
    "KubernetesJob": ("key", "command"),
    "KubernetesResults": ("key", "state", "pod_name", "namespace", "resource_version"),
}
"""The provider's named tuples, with the fields that the guard reads."""

WORDS: Mapping[str, str] = {"ADOPTED": ADOPTED, "POD_REVOKED_KEY": REVOKED_LABEL}
"""Values that executor, watcher and guard have to agree on."""

ATTEMPT = ("job", "requeued_for_pod")
"""Fields of what ``pod_launch_attempts`` holds (10.20)."""


def missing(executor: Any, stock: type[Any]) -> str:
    """The first seam that a started executor lacks, as a sentence; "" where the guard may work."""
    return next((found for look in _LOOKS for found in look(executor, stock)), "")


def stock_methods(executor: Any, stock: type[Any]) -> None:
    """Give an executor without a guard the provider's own methods back, whatever parameters they have.

    ``start`` is left: it has been called, and a later call looks for the guard again.
    """
    cls = type(executor)
    for owner in cls.__mro__[: cls.__mro__.index(stock)]:
        if not owner.__module__.startswith("airflow_steadfast."):
            continue
        for name, own in vars(owner).items():
            if name.startswith("__") or name == "start" or getattr(cls, name, None) is not own:
                continue
            native = getattr(stock, name, None)
            if callable(native):
                setattr(executor, name, native.__get__(executor))


def _attributes(executor: Any, _: type[Any]) -> Iterator[str]:
    for name, parts in ATTRIBUTES.items():
        value = getattr(executor, name, None)
        if value is None:
            yield f"the started executor has no {name}"
        yield from (f"the executor's {name} has no {part}" for part in parts if not hasattr(value, part))


def _launcher(executor: Any, _: type[Any]) -> Iterator[str]:
    cls = type(executor.kube_scheduler)
    wanted = {**LAUNCHER, **capabilities.there(cls, LATER_LAUNCHER)}
    lost = capabilities.missing_seam(cls, wanted, strict=True)
    if lost:
        yield lost
    builder = "_build_pod_request" if "_build_pod_request" in wanted else "run_next"
    used = [("run_next", "run_pod_async"), (builder, naming.SEAM)]
    if "run_next_batch" in wanted:
        used.append(("run_next_batch", "_build_pod_request"))
    for method, name in used:
        if not capabilities.uses(cls, method, name):
            yield f"{cls.__name__}.{method} does not use {name}"


def _naming(executor: Any, _: type[Any]) -> Iterator[str]:
    module = naming.module_of(type(executor.kube_scheduler))
    if module is None:
        yield f"the module of {type(executor.kube_scheduler).__name__} has no {naming.SEAM}"
        return
    # as the method of a class, which is what signatures are compared of
    holder = type(module.__name__, (), {naming.SEAM: getattr(module, naming.SEAM)})
    lost = capabilities.missing_seam(holder, {naming.SEAM: ("dag_id", "task_id", "unique")})
    if lost:
        yield lost


def _records(_: Any, stock: type[Any]) -> Iterator[str]:
    types = sys.modules.get(f"{stock.__module__}_types")
    for name, fields in RECORDS.items():
        found = getattr(getattr(types, name, None), "_fields", ())
        yield from (f"{name} has no field {field}" for field in fields if field not in found)
    for name, value in WORDS.items():
        if getattr(types, name, None) != value:
            yield f"{name} is not {value!r}"


def _attempts(executor: Any, stock: type[Any]) -> Iterator[str]:
    if hasattr(executor, "pod_launch_attempts"):
        attempt = getattr(sys.modules.get(stock.__module__), "_PodLaunchAttempt", None)
        found = getattr(attempt, "__dataclass_fields__", ())
        yield from (f"_PodLaunchAttempt has no field {field}" for field in ATTEMPT if field not in found)


_LOOKS: tuple[Callable[[Any, type[Any]], Iterator[str]], ...] = (
    _attributes,
    _launcher,
    _naming,
    _records,
    _attempts,
)
