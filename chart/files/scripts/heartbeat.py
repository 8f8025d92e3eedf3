# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: INP001, T201 - a script that a probe runs: its output is the probe's message
"""Liveness probe: does this pod's Airflow job still send heartbeats?

``python heartbeat.py JOB_TYPE`` exits 0 when a running job of that type on this host was heard within
two minutes, else 1 with one line that says what was found. It is one SELECT without importing Airflow;
where the connection is not in the environment or the host name is computed by a custom callable, it
hands over to ``airflow jobs check``, which knows every way of configuration.
"""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime, timedelta, timezone

MAX_AGE = timedelta(seconds=120)
QUERY = (
    "SELECT latest_heartbeat FROM job"
    " WHERE job_type = :job_type AND hostname = :hostname AND state = 'running'"
    " ORDER BY latest_heartbeat DESC LIMIT 1"
)


def last_heartbeat(url: str, job_type: str, hostname: str) -> datetime | None:
    """Time of the newest heartbeat, in UTC; None when there is no such job. Raises what the driver raises."""
    from sqlalchemy import create_engine, text
    from sqlalchemy.engine import make_url
    from sqlalchemy.pool import NullPool

    parsed = make_url(url)
    arguments = {"connect_timeout": 10} if parsed.get_backend_name() == "postgresql" else {}
    engine = create_engine(parsed, poolclass=NullPool, connect_args=arguments)
    with engine.connect() as connection:
        found: datetime | None = connection.execute(
            text(QUERY), {"job_type": job_type, "hostname": hostname}
        ).scalar()
    if found is None:
        return None
    return found if found.tzinfo else found.replace(tzinfo=timezone.utc)


def local_hostname() -> str:
    """This host as Airflow's default callable names it in the job table: its canonical name, if any."""
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_DGRAM, flags=socket.AI_CANONNAME)
    except OSError:
        return name
    return next((entry[3] for entry in found if entry[3]), name)


def main(argv: list[str]) -> int:
    """Check one job type; returns the exit code."""
    (job_type,) = argv
    url = os.environ.get("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN")
    if not url or os.environ.get("AIRFLOW__CORE__HOSTNAME_CALLABLE"):
        command = ["airflow", "jobs", "check", "--job-type", job_type, "--local"]
        os.execvp(command[0], command)  # noqa: S606 - the probe becomes the command
    hostname = local_hostname()
    heard = last_heartbeat(url, job_type, hostname)
    if heard is None:
        print(f"no running {job_type} on {hostname}")
        return 1
    age = datetime.now(timezone.utc) - heard
    if age > MAX_AGE:
        print(f"{job_type}: last heartbeat {age.total_seconds():.0f} s ago")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
