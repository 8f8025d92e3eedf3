# SPDX-License-Identifier: Apache-2.0
"""Runs the durable pod's class patch once, right after the operator's module has been imported.

A post-import hook costs a process that never imports the operator nothing, and patches the class
before any Dag or subclass can see it. Nothing here raises into an import.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

log = logging.getLogger("airflow_steadfast")

OPERATOR_MODULE = "airflow.providers.cncf.kubernetes.operators.pod"
OPERATOR_CLASS = "KubernetesPodOperator"
TRIGGER_MODULE = "airflow.providers.cncf.kubernetes.triggers.pod"
TRIGGER_CLASS = "KubernetesPodTrigger"


class PostImportFinder:
    """A ``sys.meta_path`` finder that lets the others find one module and calls back after its import."""

    def __init__(self, name: str, callback: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._callback = callback
        self._searching = False

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - the protocol's
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> ModuleSpec | None:
        """Return the module's own spec with a loader that calls back; None for every other module."""
        if fullname != self._name or self._searching:
            return None
        self._searching = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._searching = False
        if spec is not None and spec.loader is not None:
            spec.loader = _CallingLoader(spec.loader, self._callback)  # type: ignore[assignment]  # a loader by duck type
        return spec


class _CallingLoader:
    """The module's own loader, followed by the callback; everything else is the loader's."""

    def __init__(self, loader: Any, callback: Callable[[ModuleType], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        # The module keeps its own loader: importlib.resources, inspect and reload go through it.
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def install() -> None:
    """Install the hook, or patch at once where the operator is imported already. Idempotent."""
    if installed():
        return
    for name, class_name, patch in (
        (TRIGGER_MODULE, TRIGGER_CLASS, patch_trigger),
        (OPERATOR_MODULE, OPERATOR_CLASS, patch_operator),
    ):
        sys.meta_path.insert(0, PostImportFinder(name, patch))
        module = sys.modules.get(name)
        if module is not None and hasattr(module, class_name):
            patch(module)


def installed() -> bool:
    """Whether the hook is in place in this process."""
    return any(isinstance(finder, PostImportFinder) for finder in sys.meta_path)


def patch_operator(module: ModuleType) -> None:
    """Give the stock operator class the durable behaviour where configuration and versions allow it.

    Never raises: whatever goes wrong leaves the stock class, with one log line, and its gauge at 0.
    """
    try:
        from airflow_steadfast import capabilities, settings

        chosen = settings.current()
        if not chosen.patch_kpo:
            return
        found = capabilities.versions()
        support = capabilities.durable_pod(
            getattr(module, OPERATOR_CLASS), found, allow_untested=chosen.allow_untested
        )
        if not support.active:
            log.warning("The durable pod is not active, %s stays native: %s", OPERATOR_CLASS, support.reason)
            return
        importlib.import_module("airflow_steadfast.durable_pod.install").install(module)
    except Exception as error:
        message = "The durable pod is not active, %s stays native: %r"
        log.error(message, OPERATOR_CLASS, error)  # noqa: TRY400 - one line
        _note_inactive()


def patch_trigger(module: ModuleType) -> None:
    """Let the pod trigger watch and delete the pod of the uid that it was given. Never raises.

    Needs no switch: a trigger gets a uid from a durable task only, and any other is as it was.
    """
    try:
        importlib.import_module("airflow_steadfast.durable_pod.trigger").install(module)
    except Exception as error:
        log.warning("%s watches its pod by name only: %r", TRIGGER_CLASS, error)


def _note_inactive() -> None:
    """Every mode of the durable pod reads 0 in this process's totals from here on."""
    try:
        from airflow_steadfast import signals

        for mode in signals.catalogue.MODES:
            signals.totals().set_gauge("steadfast_patch_active", 0, component="durable_pod", mode=mode)
    except Exception:
        log.debug("the inactive durable pod could not be noted", exc_info=True)
