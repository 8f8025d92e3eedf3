# SPDX-License-Identifier: Apache-2.0
"""Steadfast's patch for Apache Airflow on Kubernetes.

An entry file: it parses on Python 3.8 and imports nothing, because it is loaded by every
interpreter that has the mount on its PYTHONPATH, users' virtual environments included.
"""

__version__ = "0.1.0"
