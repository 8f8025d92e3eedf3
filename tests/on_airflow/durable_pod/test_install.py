# SPDX-License-Identifier: Apache-2.0
"""The patch on the provider's real class: what changes, what stays, and what happens where it cannot work."""

from __future__ import annotations

import inspect
import json
import logging
import subprocess
import sys
import warnings
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.airflow


@pytest.fixture
def stock() -> type[Any]:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    return KubernetesPodOperator


@pytest.fixture
def fresh(stock: type[Any]) -> type[Any]:
    """A subclass as good as the stock class, so that the stock class of this process stays as it is."""
    return type("FreshOperator", (stock,), {})


def make_durable(operator: type[Any]) -> str:
    from airflow_steadfast.durable_pod import install

    return install.make_durable(operator)


def has_store() -> bool:
    from airflow_steadfast import capabilities

    return capabilities.has_task_state_store(capabilities.versions())


def mode() -> str:
    """The mode of a durable class on this Airflow."""
    return "durable" if has_store() else "exact_identity"


def test_the_class_object_its_signature_and_its_subclasses_stay(stock: type[Any], fresh: type[Any]) -> None:
    assert make_durable(fresh) == mode()
    assert list(inspect.signature(fresh.get_or_create_pod).parameters) == [
        "self",
        "pod_request_obj",
        "context",
    ]
    before = set(inspect.signature(stock.__init__).parameters)
    added = {"durable", "on_finished", "on_lost_xcom", "on_clear", "on_unknown_kill"}
    assert set(inspect.signature(fresh.__init__).parameters) == before | added
    later = type("Later", (fresh,), {})
    assert later.find_pod is fresh.find_pod
    assert later(task_id="t", durable=False).durable is False


def test_patching_twice_wraps_once(fresh: type[Any]) -> None:
    make_durable(fresh)
    methods = {name: vars(fresh)[name] for name in ("__init__", "get_or_create_pod", "find_pod", "on_kill")}
    make_durable(fresh)
    assert {name: vars(fresh)[name] for name in methods} == methods
    child = type("Child", (fresh,), {})
    assert make_durable(child) == mode()
    assert "find_pod" not in vars(child)


def test_a_class_that_does_not_fit_is_left_as_it_was(
    fresh: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast.durable_pod import install, methods

    monkeypatch.setattr(methods, "SEAMS", {**methods.SEAMS, "find_pod": ("self", "a_new_parameter")})
    with pytest.raises(install.SeamMismatchError, match=r"find_pod has no parameter a_new_parameter"):
        make_durable(fresh)
    assert "get_or_create_pod" not in vars(fresh)
    assert not hasattr(fresh, install.MARK)


def test_parameters_reach_the_operator_by_every_way_a_dag_has(fresh: type[Any]) -> None:
    dag = pytest.importorskip("airflow.sdk" if has_store() else "airflow").DAG

    make_durable(fresh)
    with dag("ways", schedule=None, default_args={"durable": False}):
        assert fresh(task_id="by_default_args").durable is False
        assert fresh(task_id="by_parameter", durable=True).durable is True
        mapped = fresh.partial(task_id="mapped", durable=True).expand(cmds=[["a"], ["b"]])
        assert mapped.partial_kwargs["durable"] is True


def test_a_subclass_with_its_own_initializer_works(fresh: type[Any]) -> None:
    make_durable(fresh)

    class Own(fresh):  # type: ignore[misc,valid-type]  # made by the fixture
        def __init__(self, *, extra: str, **keywords: Any) -> None:
            super().__init__(**keywords)
            self.extra = extra

    own = Own(task_id="t", extra="e", durable=False)
    assert (own.extra, own.durable, own.reattach_on_restart) == ("e", False, False)


def test_the_deprecation_is_said_once_and_points_at_the_dag(fresh: type[Any]) -> None:
    from airflow.exceptions import AirflowProviderDeprecationWarning

    make_durable(fresh)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        operator = fresh(task_id="t", reattach_on_restart=False)
    assert operator.durable is False
    about = [w for w in caught if "reattach_on_restart" in str(w.message)]
    # Below 3.3 there is nothing to use instead.
    assert [w.filename for w in about] == ([__file__] if has_store() else [])
    assert all(w.category is AirflowProviderDeprecationWarning for w in about)


def test_below_3_3_durable_is_reattach_on_restart_and_the_label_search_stays_the_providers(
    stock: type[Any], fresh: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast import capabilities
    from airflow_steadfast.durable_pod import install

    monkeypatch.setattr(capabilities, "has_task_state_store", lambda _: False)
    assert install.make_durable(fresh, exact=False) == "reattach_on_restart"
    assert fresh.get_or_create_pod is stock.get_or_create_pod
    assert fresh.find_pod is stock.find_pod
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fresh(task_id="a", durable=False).reattach_on_restart is False
        assert fresh(task_id="b", reattach_on_restart=False).durable is False
        assert fresh(task_id="c", reattach_on_restart=False, durable=True).reattach_on_restart is True
        assert fresh(task_id="d").reattach_on_restart is True


def test_the_deployments_default_holds_where_the_dag_says_nothing(
    fresh: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast import settings

    make_durable(fresh)
    monkeypatch.setattr(settings, "current", lambda: settings.Settings(durable=False))
    assert fresh(task_id="a").durable is False
    assert fresh(task_id="b", durable=True).durable is True


def test_a_fault_of_our_own_is_one_log_line_and_the_providers_behaviour(
    fresh: type[Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_steadfast.durable_pod import faults, reattach

    native: list[Any] = []
    fresh.get_or_create_pod = lambda self, pod_request_obj, context: native.append(pod_request_obj)  # type: ignore[attr-defined]
    make_durable(fresh)
    monkeypatch.setattr(faults, "_SEEN", set())
    monkeypatch.setattr(reattach, "obtain_pod", lambda *_: 1 / 0)
    written: list[str] = []
    store = SimpleNamespace(get=lambda _: None, set=lambda key, _value, **_keywords: written.append(key))
    ti = SimpleNamespace(dag_id="d", task_id="t", map_index=-1, try_number=1, max_tries=0)
    context = {"ti": ti, "run_id": "r", "task_state_store": store}
    with caplog.at_level(logging.ERROR):
        for number in range(2):
            operator = fresh(task_id=f"t{number}")
            operator.get_or_create_pod(pod_request_obj="request", context=context)
    assert native == ["request", "request"]
    assert sum("the provider's own behaviour is used" in record.message for record in caplog.records) == 1
    assert set(written) == {"steadfast.event.v1.1.record_error"}


def test_errors_about_the_task_or_the_cluster_are_the_tasks(
    fresh: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast.durable_pod import reattach
    from airflow_steadfast.durable_pod.record import SupersededError

    make_durable(fresh)

    def superseded(*_: Any) -> None:
        raise SupersededError("gone")

    monkeypatch.setattr(reattach, "obtain_pod", superseded)
    ti = SimpleNamespace(dag_id="d", task_id="t", map_index=-1, try_number=1, max_tries=0)
    with pytest.raises(SupersededError):
        fresh(task_id="t").get_or_create_pod(
            "request", {"ti": ti, "run_id": "r", "task_state_store": object()}
        )


def pod_of(phase: str) -> Any:
    from kubernetes import client

    return client.V1Pod(
        metadata=client.V1ObjectMeta(name="pod", namespace="ns", uid="uid"),
        status=client.V1PodStatus(phase=phase),
    )


@pytest.mark.parametrize(("deferrable", "marked"), [(True, True), (False, False)])
def test_a_failure_seen_after_a_deferral_is_marked_by_the_process_that_saw_it(
    fresh: type[Any], deferrable: bool, marked: bool
) -> None:
    from airflow.exceptions import AirflowException

    def fail(self: Any, pod: Any, remote_pod: Any, xcom_result: Any = None, context: Any = None) -> None:
        raise AirflowException("the pod failed")

    fresh.cleanup = fail  # type: ignore[attr-defined]  # a class made for this test, of no declared type
    make_durable(fresh)
    written: dict[str, Any] = {}
    store = SimpleNamespace(get=written.get, set=lambda key, value, **_: written.update({key: value}))
    ti = SimpleNamespace(dag_id="d", task_id="t", map_index=-1, try_number=1, max_tries=2)
    context = {"ti": ti, "run_id": "r", "task_state_store": store}
    operator = fresh(task_id="t", deferrable=deferrable)
    operator.__dict__["client"] = SimpleNamespace()
    pod = pod_of("Failed")
    with pytest.raises(AirflowException, match="the pod failed"):
        operator.cleanup(pod=pod, remote_pod=pod, context=context)
    states = [value["state"] for key, value in written.items() if key == "pod_identifier"]
    assert states == (["finished"] if marked else [])


ACTIVATED = """
import json
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator as Stock
from airflow_steadfast.durable_pod import DurableKubernetesPodOperator as Explicit
from airflow.providers.cncf.kubernetes.decorators.kubernetes import _KubernetesDecoratedOperator as Decorated
print(json.dumps({
    "stock": getattr(Stock, "_steadfast_durable_mode", None),
    "explicit": getattr(Explicit, "_steadfast_durable_mode", None),
    "decorated": getattr(Decorated, "_steadfast_durable_mode", None),
    "wrapped_once": Explicit.find_pod is Stock.find_pod,
}))
"""


@pytest.mark.parametrize("switch", [True, False])
def test_the_switch_makes_the_stock_class_durable_before_a_dag_sees_it(tmp_path: Path, switch: bool) -> None:
    import os

    environment = {**os.environ, "AIRFLOW_HOME": str(tmp_path), "AIRFLOW__STEADFAST__PATCH_KPO": str(switch)}
    done = subprocess.run(
        [sys.executable, "-c", ACTIVATED], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    stock = ("durable" if has_store() else "reattach_on_restart") if switch else None
    shared = switch and has_store()
    assert found == {"stock": stock, "explicit": mode(), "decorated": stock, "wrapped_once": shared}
