# SPDX-License-Identifier: Apache-2.0
"""``GuardedKubernetesExecutor``, the façade of this package, named in ``[core] executor``.

An entry file: it parses on Python 3.8. Where the guard cannot be imported, the name is bound to an
empty subclass of the stock executor, so that the scheduler starts and works natively.
"""

try:
    from airflow_steadfast.launch_guard.guarded import GuardedKubernetesExecutor
except Exception as error:
    import logging

    from airflow.providers.cncf.kubernetes.executors.kubernetes_executor import KubernetesExecutor

    _log = logging.getLogger("airflow_steadfast")
    _log.error("The launch guard is not active, native executor: %r", error)

    class GuardedKubernetesExecutor(KubernetesExecutor):  # type: ignore[no-redef]  # the fall-back
        """The stock executor under the configured name."""


__all__ = ["GuardedKubernetesExecutor"]
