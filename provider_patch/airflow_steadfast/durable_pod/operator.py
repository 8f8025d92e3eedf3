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
    Below 3.3 the pod has a name that every try can work out, and its annotations are the record.
    ``durable=False`` makes a fresh pod in every try.

    :param on_finished: ``harvest`` (default) or ``rerun``: a pod that succeeded while nobody watched.
    :param on_lost_xcom: ``rerun`` (default) or ``fail``: work that is done and whose XCom is lost.
    :param on_clear: ``fresh`` (default) or ``reattach``: a clear while the pod runs without a worker.
    :param on_unknown_kill: ``keep`` (default) or ``delete``: told to stop, and nobody says why.

    Each of the four may be None, which is the deployment's ``[steadfast]`` setting of the same name.
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
