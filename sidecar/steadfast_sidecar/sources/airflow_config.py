# SPDX-License-Identifier: Apache-2.0
"""Airflow settings under which the outbox misses events or has no connection, read without importing Airflow.

Airflow's order holds: ``AIRFLOW__SECTION__KEY``, then ``airflow.cfg`` (``AIRFLOW_CONFIG``, else in
``AIRFLOW_HOME``, else in ``~/airflow``), then its default.

``[workers] state_store_backend`` is no such setting: it moves values elsewhere, and an event is its key
(Airflow 3.3.2, ``TaskStateStoreAccessor.set``).
"""

from __future__ import annotations

import configparser
import os
from pathlib import Path
from typing import TYPE_CHECKING

from steadfast_sidecar.sources.base import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

_DEFAULT_BACKEND = "airflow.state.metastore.MetastoreBackend"
_TRUE = frozenset({"t", "true", "1"})


def outbox_bypass(environ: Mapping[str, str] | None = None) -> Reason | None:
    """Return why the counts of workers' events are incomplete, None where they are not. Never raises."""
    environ = os.environ if environ is None else environ
    backend = _option("state_store", "backend", environ)
    if backend and backend != _DEFAULT_BACKEND:
        return Reason(
            "custom_backend",
            f"[state_store] backend = {backend} keeps the store elsewhere: events of workers are not counted",
        )
    if _option("state_store", "clear_on_success", environ).lower() in _TRUE:
        return Reason(
            "clear_on_success",
            "[state_store] clear_on_success = True removes events when their task succeeds: "
            "the counts of workers' events are lower bounds; set it to False",
        )
    return None


def no_url(environ: Mapping[str, str] | None = None) -> str:
    """Return what to do about a missing URL; names the form in which only Airflow can take it."""
    environ = os.environ if environ is None else environ
    give = "set STEADFAST_DATABASE_URL or STEADFAST_DATABASE_URL_FILE"
    for key, form in {
        "sql_alchemy_conn_cmd": "a command",
        "sql_alchemy_conn_secret": "a secrets backend",
    }.items():
        if _option("database", key, environ):
            return f"[database] {key} gives Airflow its URL by {form}, which the sidecar does not use: {give}"
    return f"no database URL: {give}, or AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"


def _option(section: str, key: str, environ: Mapping[str, str]) -> str:
    value = environ.get(f"AIRFLOW__{section.upper()}__{key.upper()}")
    return value.strip() if value is not None else _from_file(section, key, environ)


def _from_file(section: str, key: str, environ: Mapping[str, str]) -> str:
    home = Path(environ.get("AIRFLOW_HOME") or "~/airflow")
    path = Path(environ.get("AIRFLOW_CONFIG") or home / "airflow.cfg")
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(path.expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error, RuntimeError):
        return ""
    return parser.get(section, key, fallback="").split("#")[0].strip()
