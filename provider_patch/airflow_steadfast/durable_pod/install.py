# SPDX-License-Identifier: Apache-2.0
"""Makes an operator class durable, in place.

The class object stays the one that Dags, subclasses and mapped operators hold; its methods are
wrapped and its ``__init__`` gains the two parameters. All or nothing: where a method or parameter
that is relied on is missing, the class is left as it was.

This module imports the whole package at once: a task that runs for hours must not load a module of a
version that was installed meanwhile.
"""

from __future__ import annotations

import importlib
import inspect
import logging
from typing import Any

from airflow_steadfast import capabilities, settings
from airflow_steadfast.durable_pod import parameters

log = logging.getLogger("airflow_steadfast.durable_pod")

MARK = "_steadfast_durable_mode"
"""Class attribute, once patched: "durable", or "reattach_on_restart" where there is no task state store."""

_METHODS = "airflow_steadfast.durable_pod.methods"


class SeamMismatchError(RuntimeError):
    """The class lacks something that the patch relies on; the message names it."""


def install(module: Any) -> None:
    """Make the stock ``KubernetesPodOperator`` of its imported module durable. Idempotent.

    Raises SeamMismatchError, with nothing changed, where the class does not fit.
    """
    make_durable(module.KubernetesPodOperator)


def make_durable(operator: type[Any]) -> str:
    """Patch an operator class once and return its mode (see MARK); a patched class's subclass has it already.

    Raises SeamMismatchError, with nothing changed, where the class does not fit.
    """
    mode: str | None = getattr(operator, MARK, None)
    if mode is not None:
        return mode
    has_store = capabilities.has_task_state_store(capabilities.versions())
    changes: dict[str, Any] = {"__init__": _initializer(operator, has_store=has_store)}
    mode = "reattach_on_restart"
    if has_store:
        # Only here: the module needs helpers that providers for older Airflows do not have.
        methods = importlib.import_module(_METHODS)
        lost = capabilities.missing_seam(operator, methods.SEAMS) or _missing(operator, methods.READ_SEAMS)
        if lost:
            raise SeamMismatchError(lost)
        changes.update(methods.build(operator))
        mode = "durable"
    for name, change in changes.items():
        setattr(operator, name, change)
    setattr(operator, MARK, mode)
    log.debug("%s works in mode %s", operator.__name__, mode)
    return mode


def _missing(operator: type[Any], names: tuple[str, ...]) -> str:
    lost = [name for name in names if not hasattr(operator, name)]
    return f"{operator.__name__} has no {lost[0]}" if lost else ""


def _initializer(operator: type[Any], *, has_store: bool) -> Any:
    """Return the new ``__init__``, decorated by Airflow's own metaclass like the one it stands for."""
    from airflow.exceptions import AirflowProviderDeprecationWarning

    decorate = getattr(type(operator), "_apply_defaults", None)
    # Only the metaclass's own layer comes off: another library's wrapper below it stays in place.
    native = getattr(vars(operator).get("__init__"), "__wrapped__", None)
    if decorate is None:
        raise SeamMismatchError(f"{type(operator).__name__} has no _apply_defaults")
    if native is None:
        native = _plain_initializer(operator)
    if parameters.REATTACH not in inspect.signature(native).parameters:
        raise SeamMismatchError(f"{operator.__name__} has no parameter {parameters.REATTACH}")
    return decorate(
        parameters.build_init(
            native,
            has_store=has_store,
            deployment_default=lambda: settings.current().durable,
            category=AirflowProviderDeprecationWarning,
        )
    )


def _plain_initializer(operator: type[Any]) -> Any:
    """Return an ``__init__`` for a subclass that has none of its own: its parent's, signature included."""
    parent = operator.__init__

    def __init__(self: Any, **keywords: Any) -> None:  # noqa: N807 - the method that it becomes
        parent(self, **keywords)

    __init__.__signature__ = inspect.signature(parent)  # type: ignore[attr-defined]  # what inspect reads
    return __init__
