# SPDX-License-Identifier: Apache-2.0
"""One PostgreSQL, one kube-apiserver and one migrated Airflow for all scenarios of the durable pod."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.apiserver.durable_pod import scheduler
from tests.apiserver.durable_pod.bench import Bench
from tests.apiserver.durable_pod.execution_api import execution_api
from tests.apiserver.durable_pod.worker import DAG_FILE
from tests.support import airflow_database
from tests.support.apiserver import api_server
from tests.support.postgres import free_port, postgres_server

if TYPE_CHECKING:
    from collections.abc import Iterator

# Airflow's client reads these two when it is first imported, which another test of the same process may do
# before the fixture below starts; so they are set when the tests are collected.
os.environ["AIRFLOW__WORKERS__EXECUTION_API_RETRIES"] = "1"
os.environ["AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT"] = "60"


@pytest.fixture
def bench(shared_bench: Bench) -> Iterator[Bench]:
    """The session's bench; the workers of a test end with it."""
    yield shared_bench
    shared_bench.stop_workers()


@pytest.fixture(scope="session")
def shared_bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder = tmp_path_factory.mktemp("durable")
    dags = folder / "dags"
    dags.mkdir()
    shutil.copy(Path(__file__).with_name(DAG_FILE), dags)
    with postgres_server() as postgres, api_server() as cluster, pytest.MonkeyPatch.context() as patch:
        environment = {
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_POOL_ENABLED": "False",
            "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "240",
            "AIRFLOW__CORE__FERNET_KEY": "",
            "BENCH_KUBECONFIG": str(cluster.kubeconfig),
            "BENCH_POWERLESS_KUBECONFIG": str(cluster.powerless_kubeconfig),
            "PYTHONUNBUFFERED": "1",
        }
        for name, value in environment.items():
            patch.setenv(name, value)
        airflow_database.migrate(postgres, folder)
        url = airflow_database.copy(postgres, "durable")
        log = folder / "execution-api.log"
        with airflow_database.airflow_on(url), execution_api(free_port(), log) as api:
            scheduler.prepare_database()
            yield Bench(postgres, "durable", cluster, folder, api)
