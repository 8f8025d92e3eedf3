# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import inspect
import warnings
from typing import Any

import pytest

from airflow_steadfast.durable_pod.parameters import Choice, build_init, choose


@pytest.mark.parametrize("has_store", [True, False])
@pytest.mark.parametrize("default", [True, False])
@pytest.mark.parametrize(
    ("durable", "reattach", "expected"),
    [
        (True, None, True),
        (False, None, False),
        (None, True, True),
        (None, False, False),
        (True, False, True),
        (False, True, False),
        (None, None, "default"),
    ],
)
def test_both_parameters_mean_one_thing_and_durable_wins(
    durable: bool | None, reattach: bool | None, expected: Any, default: bool, has_store: bool
) -> None:
    chosen = choose(durable, reattach, default=default, has_store=has_store)
    assert chosen.durable is (default if expected == "default" else expected)
    assert (chosen.warning is not None) is (has_store and reattach is not None)


def test_nobody_is_warned_below_airflow_3_3() -> None:
    assert choose(None, False, default=True, has_store=False) == Choice(durable=False)


class Old:
    """What a class of a provider before 10.20 looks like: no ``durable``."""

    durable: bool

    def __init__(self, *, image: str = "", reattach_on_restart: bool = True, **kwargs: Any) -> None:
        """Native."""
        self.image = image
        self.reattach_on_restart = reattach_on_restart
        self.kwargs = kwargs


def made(has_store: bool, default: bool = True, **given: Any) -> Old:
    init = build_init(
        Old.__init__, has_store=has_store, deployment_default=lambda: default, category=DeprecationWarning
    )
    return type("Patched", (Old,), {"__init__": init})(**given)


def test_durable_acts_as_reattach_on_restart_below_3_3_instead_of_being_ignored() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made_off = made(False, durable=False, image="i")
        made_on = made(False, default=False, reattach_on_restart=True)
    assert (made_off.durable, made_off.reattach_on_restart, made_off.image) == (False, False, "i")
    assert (made_on.durable, made_on.reattach_on_restart) == (True, True)


def test_the_older_name_is_deprecated_where_there_is_something_newer() -> None:
    with pytest.warns(DeprecationWarning, match="use `durable` instead") as caught:
        operator = made(True, reattach_on_restart=False)
    assert operator.durable is False
    assert caught[0].filename == __file__


def test_both_are_real_parameters_of_the_signature() -> None:
    init = build_init(
        Old.__init__, has_store=True, deployment_default=lambda: True, category=DeprecationWarning
    )
    parameters = inspect.signature(init).parameters
    assert list(parameters) == [
        "self",
        "image",
        "reattach_on_restart",
        "durable",
        "on_finished",
        "on_lost_xcom",
        "on_clear",
        "on_unknown_kill",
        "kwargs",
    ]
    assert parameters["durable"].default is None
    assert init.__doc__ == "Native."


def test_the_deployment_decides_where_the_dag_does_not() -> None:
    assert made(True, default=False).durable is False
    assert made(True, default=True).durable is True


def test_a_choice_is_the_operators_else_the_deployments(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_steadfast import settings
    from airflow_steadfast.durable_pod import policy

    monkeypatch.setattr(settings, "current", lambda: settings.Settings(on_clear="reattach"))
    operator = made(True, on_finished="rerun")
    assert (policy.chosen(operator, "on_finished"), policy.chosen(operator, "on_clear")) == (
        "rerun",
        "reattach",
    )
    assert policy.chosen(operator, "on_unknown_kill") == "keep"


def test_a_wrong_choice_names_its_parameter_and_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="on_clear is 'never': give one of fresh, reattach"):
        made(True, on_clear="never")


def test_every_choice_is_a_setting_with_the_same_words() -> None:
    from airflow_steadfast import settings
    from airflow_steadfast.durable_pod import policy

    by_name = {setting.name: setting for setting in settings.table()}
    for name, words in policy.CHOICES.items():
        assert by_name[name].metadata["type"] == " \\| ".join(words)


def test_an_operator_with_its_own_logic_is_made_as_the_provider_makes_it() -> None:
    init = build_init(
        Old.__init__, has_store=True, deployment_default=lambda: False, category=DeprecationWarning
    )
    job = type(
        "KubernetesJobOperator",
        (Old,),
        {"__init__": init, "__module__": "airflow.providers.cncf.kubernetes.operators.job"},
    )
    assert job().reattach_on_restart is True
    assert job(reattach_on_restart=False).reattach_on_restart is False
    assert not hasattr(job(), "durable")
