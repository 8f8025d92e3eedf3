# SPDX-License-Identifier: Apache-2.0
"""The ``airflow.policy`` entry point: installs the patch in every process that imports Airflow.

An entry file: it parses on Python 3.8. pluggy imports it unguarded inside ``import airflow``, so it
catches everything, and does nothing where this Python is older than the patch supports.
"""

try:
    import sys

    if sys.version_info >= (3, 10):  # noqa: UP036 - other interpreters see this PYTHONPATH
        from airflow_steadfast import import_hook

        import_hook.install()
except Exception as error:
    import logging

    _log = logging.getLogger("airflow_steadfast")
    _log.error("Steadfast is not active in this process: %r", error)
