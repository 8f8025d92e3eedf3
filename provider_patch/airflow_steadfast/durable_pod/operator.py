# SPDX-License-Identifier: Apache-2.0
"""The explicit operator, for Dags that ask for durability by name instead of by the deployment's switch."""

from __future__ import annotations

import logging

from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator

from airflow_steadfast import capabilities, settings
from airflow_steadfast.durable_pod import install

log = logging.getLogger("airflow_steadfast.durable_pod")


class DurableKubernetesPodOperator(KubernetesPodOperator):
    """A ``KubernetesPodOperator`` whose retry finds the pod of its lost worker again, by identity.

    Takes the same parameters, ``durable`` (default: ``[steadfast] durable``) among them on every
    provider version. On Airflow 3.3 and newer the pod's name and uid are kept in the task state store
    and a retry reads exactly that pod; the label search is only asked where no identity is stored.
    Below 3.3 it is the provider's own label search. ``durable=False`` makes a fresh pod in every try.
    """


def _make_durable() -> None:
    support = capabilities.durable_pod(
        DurableKubernetesPodOperator,
        capabilities.versions(),
        allow_untested=settings.current().allow_untested,
    )
    if not support.active:
        log.warning("DurableKubernetesPodOperator works as the stock operator: %s", support.reason)
        return
    try:
        install.make_durable(DurableKubernetesPodOperator)
    except Exception:
        log.exception("DurableKubernetesPodOperator works as the stock operator")


_make_durable()
