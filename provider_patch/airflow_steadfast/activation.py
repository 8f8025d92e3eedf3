# SPDX-License-Identifier: Apache-2.0
"""The ``airflow.policy`` entry point: installs the patch in every process that imports Airflow."""
