# SPDX-License-Identifier: Apache-2.0
"""What is made of the operator: the decorators and subclasses that inherit, and two that are left alone."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.airflow

PROVIDER = "airflow.providers.cncf.kubernetes"
INHERITING = {
    f"{PROVIDER}.decorators.kubernetes": "_KubernetesDecoratedOperator",
    f"{PROVIDER}.decorators.kubernetes_cmd": "_KubernetesCmdDecoratedOperator",
    "airflow.providers.google.cloud.operators.kubernetes_engine": "GKEStartPodOperator",
    "airflow.providers.amazon.aws.operators.eks": "EksPodOperator",
}
"""Module and class; a provider package that is not installed is passed by."""

TI = SimpleNamespace(dag_id="d", task_id="t", map_index=-1, try_number=1, max_tries=0)
CONTEXT: dict[str, Any] = {
    "ti": TI,
    "run_id": "r",
    "task_state_store": SimpleNamespace(get=lambda _: None, set=lambda *_, **__: None),
}


@pytest.fixture
def stock(monkeypatch: pytest.MonkeyPatch) -> type[Any]:
    """The stock class itself, durable as on Airflow 3.3 for the time of a test."""
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

    from airflow_steadfast import capabilities
    from airflow_steadfast.durable_pod import install, methods
    from airflow_steadfast.durable_pod import session as sessions

    monkeypatch.setattr(capabilities, "has_task_state_store", lambda _: True)
    touched = ["__init__", *methods.build(KubernetesPodOperator)]
    before = {
        name: vars(KubernetesPodOperator)[name] for name in touched if name in vars(KubernetesPodOperator)
    }
    install.make_durable(KubernetesPodOperator)
    yield KubernetesPodOperator
    for name in touched:
        if name in before:
            setattr(KubernetesPodOperator, name, before[name])
        else:
            delattr(KubernetesPodOperator, name)
    for name in (install.MARK, sessions.EXACT_MARK):
        delattr(KubernetesPodOperator, name)


def is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("module", INHERITING)
def test_subclasses_inherit_every_method_that_was_made_durable(stock: type[Any], module: str) -> None:
    from airflow_steadfast.durable_pod import methods

    if not is_installed(module):
        assert not module.endswith("decorators.kubernetes"), "every provider has this one"
        return
    cls = getattr(importlib.import_module(module), INHERITING[module])
    assert issubclass(cls, stock)
    own = {name for name in methods.SEAMS if getattr(cls, name) is not getattr(stock, name)}
    # What a subclass has of its own must go on to ours.
    assert all("super()" in inspect.getsource(getattr(cls, name)) for name in own), own


def test_a_subclass_of_the_older_google_providers_shape_works(stock: type[Any]) -> None:
    """Its own hook, and an ``invoke_defer_method`` that makes its own trigger and takes no context."""
    from airflow_steadfast.durable_pod import session as sessions

    class Cloud(stock):  # type: ignore[misc,valid-type]  # made by the fixture
        def __init__(self, *, cluster_name: str, **keywords: Any) -> None:
            super().__init__(**keywords)
            self.cluster_name = cluster_name

        @functools.cached_property
        def hook(self) -> Any:
            return SimpleNamespace(core_v1_client=None)

        def invoke_defer_method(self, last_log_time: Any = None) -> Any:
            return dict(self.trigger_kwargs or {})

    operator = Cloud(task_id="t", cluster_name="c", deferrable=True, durable=True)
    session = sessions.begin(operator, CONTEXT)
    assert session is not None
    metadata = SimpleNamespace(name="n", namespace="ns", uid="u", annotations=None, labels=None)
    pod = SimpleNamespace(metadata=metadata)
    session.follow(pod, session.identity_of(pod))
    assert operator.invoke_defer_method() == {"_pod_uid": "u"}


def test_a_mapped_task_takes_every_parameter(stock: type[Any]) -> None:
    mapped = stock.partial(task_id="t", durable=False, on_clear="reattach").expand(cmds=[["a"], ["b"]])
    assert mapped.partial_kwargs["on_clear"] == "reattach"


def left_alone() -> list[Any]:
    """One operator of each class that manages something else than a pod."""
    from airflow.providers.cncf.kubernetes.operators.job import KubernetesJobOperator
    from airflow.providers.cncf.kubernetes.operators.spark_kubernetes import SparkKubernetesOperator

    return [
        KubernetesJobOperator(task_id="j"),
        SparkKubernetesOperator(task_id="s", application_file="a.yaml", namespace="n"),
    ]


def test_job_and_spark_operators_are_left_as_they_are(
    stock: type[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_steadfast import settings
    from airflow_steadfast.durable_pod import session as sessions

    monkeypatch.setattr(settings, "current", lambda: settings.Settings(durable=False))
    for operator in left_alone():
        assert operator.reattach_on_restart is True, "the deployment's `durable` is not theirs"
        assert sessions.begin(operator, CONTEXT) is None
        assert sessions.current(operator) is None
    assert stock(task_id="t").reattach_on_restart is False


def test_a_kill_of_a_job_is_the_providers(stock: type[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_steadfast.durable_pod import termination

    monkeypatch.setattr(termination, "on_kill", pytest.fail)
    monkeypatch.setattr(termination, "conclude", pytest.fail)
    job = left_alone()[0]
    job.__dict__["client"] = SimpleNamespace()
    job.pods = None
    job.cleanup(pod=None, remote_pod=None)
    stock.on_kill(job)
    assert job._killed
