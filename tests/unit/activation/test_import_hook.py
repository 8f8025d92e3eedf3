# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import importlib
import inspect
import sys
import types

import pytest

from airflow_steadfast import capabilities, import_hook, settings, signals

NAME = "steadfast_hooked_module"


@pytest.fixture
def hooked(tmp_path, monkeypatch):
    """Puts a module on the path and a finder for it in front; returns what the callback was given."""
    (tmp_path / f"{NAME}.py").write_text("VALUE = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    calls = []
    finder = import_hook.PostImportFinder(NAME, lambda module: calls.append((module, module.VALUE)))
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    yield calls
    sys.modules.pop(NAME, None)


def test_the_callback_gets_the_executed_module_once(hooked):
    module = importlib.import_module(NAME)
    importlib.import_module(NAME)
    assert hooked == [(module, 1)]


def test_the_module_keeps_its_own_loader(hooked):
    module = importlib.import_module(NAME)
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    assert inspect.getsource(module) == "VALUE = 1\n"


def test_a_reload_is_seen_too(hooked):
    importlib.reload(importlib.import_module(NAME))
    assert len(hooked) == 2


def test_other_modules_are_left_alone(hooked):
    finder = sys.meta_path[0]
    assert finder.find_spec("json") is None
    assert hooked == []


@pytest.fixture
def operator(monkeypatch):
    """A stand-in for the operator's module, and what was installed into it."""
    installed = []
    install = types.ModuleType("airflow_steadfast.durable_pod.install")
    install.install = installed.append
    monkeypatch.setitem(sys.modules, install.__name__, install)
    monkeypatch.setattr(capabilities, "versions", lambda: capabilities.Versions("3.3.2", "10.25.0", "3.11"))
    monkeypatch.setattr(capabilities, "missing_seam", lambda *_: "")
    monkeypatch.setattr(signals, "_TOTALS", signals.Totals())
    module = types.ModuleType(import_hook.OPERATOR_MODULE)
    module.KubernetesPodOperator = type("KubernetesPodOperator", (), {})
    return module, installed, install


def choose(monkeypatch, **values):
    monkeypatch.setattr(settings, "_current", settings.Settings(**values))


def test_the_operator_is_patched_where_asked_for(operator, monkeypatch):
    module, installed, _ = operator
    choose(monkeypatch, patch_kpo=True)
    import_hook.patch_operator(module)
    assert installed == [module]


def test_the_operator_is_left_alone_by_default(operator, monkeypatch):
    module, installed, _ = operator
    choose(monkeypatch)
    import_hook.patch_operator(module)
    assert installed == []


def test_an_untested_provider_leaves_the_operator_with_one_line(operator, monkeypatch, caplog):
    module, installed, _ = operator
    choose(monkeypatch, patch_kpo=True)
    monkeypatch.setattr(capabilities, "versions", lambda: capabilities.Versions("3.3.2", "11.0.0", "3.11"))
    import_hook.patch_operator(module)
    assert installed == []
    assert len(caplog.records) == 1


def test_a_failure_leaves_the_operator_with_one_line(operator, monkeypatch, caplog):
    module, _, install = operator
    choose(monkeypatch, patch_kpo=True)
    install.install = lambda _: 1 / 0
    import_hook.patch_operator(module)
    (record,) = caplog.records
    assert "stays native" in record.getMessage()


def test_an_operator_imported_before_is_patched_at_once_and_only_once(operator, monkeypatch):
    module, installed, _ = operator
    choose(monkeypatch, patch_kpo=True)
    monkeypatch.setitem(sys.modules, import_hook.OPERATOR_MODULE, module)
    others = [f for f in sys.meta_path if not isinstance(f, import_hook.PostImportFinder)]
    monkeypatch.setattr(sys, "meta_path", others)
    import_hook.install()
    import_hook.install()
    assert installed == [module]
    assert import_hook.installed()
