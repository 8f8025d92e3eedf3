# SPDX-License-Identifier: Apache-2.0
"""Dashboard and alert rules as Python; what Grafana and Prometheus load lies in ``generated/``.

``python -m dashboards generate`` writes the files, ``check`` fails when they are not what the code says,
``preview`` draws the dashboard from a Prometheus. Every metric and label comes from
``airflow_steadfast.signals.catalogue``: a name that is not there stops the generator.
"""
