# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001, T201 - a script that a Job runs: its output is the Job's log
"""Makes the release's secrets where they are absent, and never changes one that is there.

``python secrets_init.py PLAN`` reads the plan that the chart wrote (JSON):

* ``trial_database`` (optional): Secret and key of the trial PostgreSQL's password, and what the
  metadata connection is made of. Both Secrets are made if absent.
* ``keys``: Secrets with one random key each; ``form`` is ``fernet`` or ``token``. A ``guarded`` one is not
  made beside a database in which Airflow has already lived: a new fernet key could not read the connections
  and variables that are stored there, and a new token key would turn away the tasks that are running.
* ``database``: Secret and key of the metadata connection, read for that check.
* ``allow_new_keys``: true skips the check.

Idempotent: a second run, or two at once, make nothing new. Exits 1 with one line that says what to do when a
key is refused or the database does not answer.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFLICT, NOT_FOUND = 409, 404
RETRY_SECONDS = 3


class RefusedError(Exception):
    """A reason to stop that the operator can act on."""


class SecretStore:
    """The release's Secrets through the Kubernetes API.

    Args:
        namespace: where they live.
        release: written into Helm's ownership marks, so that the chart can take a Secret over later when the
            user gives its value.
    """

    def __init__(self, namespace: str, release: str) -> None:
        from kubernetes import client, config

        config.load_incluster_config()
        self._api = client.CoreV1Api()
        self._error = client.ApiException
        self._namespace = namespace
        self._release = release

    def read(self, name: str, key: str) -> str | None:
        """One value; None when the Secret or its key is absent."""
        try:
            found = self._api.read_namespaced_secret(name, self._namespace)
        except self._error as error:
            if error.status == NOT_FOUND:
                return None
            raise
        value = (found.data or {}).get(key)
        return None if value is None else base64.b64decode(value).decode()

    def create(
        self, name: str, values: Mapping[str, str], annotations: Mapping[str, str] | None = None
    ) -> bool:
        """Create one Secret; False when somebody else was faster, whose value then counts."""
        body = {
            "metadata": {
                "name": name,
                "labels": {
                    "tier": "airflow",
                    "release": self._release,
                    "app.kubernetes.io/managed-by": "Helm",
                },
                "annotations": {
                    "meta.helm.sh/release-name": self._release,
                    "meta.helm.sh/release-namespace": self._namespace,
                    "helm.sh/resource-policy": "keep",
                    **(annotations or {}),
                },
            },
            "stringData": dict(values),
        }
        try:
            self._api.create_namespaced_secret(self._namespace, body)
        except self._error as error:
            if error.status == CONFLICT:
                return False
            raise
        return True


def new_value(form: str) -> str:
    """A random value: ``fernet`` is 32 bytes in URL-safe base64, ``token`` 32 bytes in hex."""
    if form == "fernet":
        return base64.urlsafe_b64encode(os.urandom(32)).decode()
    return secrets.token_hex(32)


def holds_airflow(url: str) -> bool:
    """Whether Airflow has lived in this database: its migration marker is there. Raises without an answer."""
    from sqlalchemy import create_engine, inspect
    from sqlalchemy.engine import make_url
    from sqlalchemy.pool import NullPool

    parsed = make_url(url)
    arguments = {"connect_timeout": 5} if parsed.get_backend_name() == "postgresql" else {}
    engine = create_engine(parsed, poolclass=NullPool, connect_args=arguments)
    with engine.connect() as connection:
        return bool(inspect(connection).has_table("alembic_version"))


def wait_for_answer(url: str, seconds: float) -> bool:
    """``holds_airflow``, asked until the database answers; raises RefusedError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return holds_airflow(url)
        except Exception as error:  # noqa: PERF203 - the loop waits anyway
            if time.monotonic() >= deadline:
                reason = str(error).splitlines()[0]
                message = f"the metadata database did not answer within {seconds:.0f} s: {reason}"
                raise RefusedError(message) from error
            print(f"waiting for the metadata database: {type(error).__name__}", flush=True)
            time.sleep(RETRY_SECONDS)


def ensure_trial_database(store: SecretStore, trial: Mapping[str, Any], database: Mapping[str, str]) -> None:
    """Make the trial PostgreSQL's password and the metadata connection that carries it."""
    password = store.read(trial["secret"], trial["key"])
    if password is None:
        store.create(trial["secret"], {trial["key"]: secrets.token_hex(16)})
        password = store.read(trial["secret"], trial["key"])
        print(f"made Secret {trial['secret']}")
    if store.read(database["secret"], database["key"]) is None:
        login = f"{quote(trial['user'], safe='')}:{quote(password or '', safe='')}"
        url = f"postgresql://{login}@{trial['host']}:{trial['port']}/{trial['database']}"
        store.create(database["secret"], {database["key"]: url})
        print(f"made Secret {database['secret']}")


def ensure_keys(store: SecretStore, plan: Mapping[str, Any]) -> None:
    """Make the absent keys of the plan; raises RefusedError for a guarded one beside a database in use."""
    absent = [item for item in plan["keys"] if store.read(item["name"], item["key"]) is None]
    guarded = [item["name"] for item in absent if item["guarded"]]
    if guarded and not plan["allow_new_keys"]:
        database = plan["database"]
        url = store.read(database["secret"], database["key"])
        if url is None:
            message = (
                f"Secret {database['secret']} with key {database['key']!r} is absent: "
                "create it (data.metadataSecretName) and the Job goes on by itself"
            )
            raise RefusedError(message)
        if wait_for_answer(url, plan["database_wait_seconds"]):
            message = (
                f"Secret {', '.join(guarded)} is absent, but the database already holds Airflow's data. A "
                "new key could not read what is stored there. Restore the Secret, or name yours by "
                "fernetKeySecretName and jwtSecretName; to start over with new keys set "
                "steadfast.secrets.allowNewKeysBesideData=true"
            )
            raise RefusedError(message)
    for item in absent:
        if store.create(item["name"], {item["key"]: new_value(item["form"])}, item.get("annotations")):
            print(f"made Secret {item['name']}")


def main(argv: list[str]) -> int:
    """Carry out one plan; returns the exit code."""
    with open(argv[0], encoding="utf-8") as source:  # noqa: PTH123 - one read, no need for pathlib
        plan = json.load(source)
    store = SecretStore(plan["namespace"], plan["release"])
    try:
        if "trial_database" in plan:
            ensure_trial_database(store, plan["trial_database"], plan["database"])
        ensure_keys(store, plan)
    except RefusedError as refusal:
        print(f"refused: {refusal}", file=sys.stderr)
        return 1
    print("all Secrets are there")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
