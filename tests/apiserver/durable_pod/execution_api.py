# SPDX-License-Identifier: Apache-2.0
"""Airflow's Execution API as a server of its own process, tokens waived: ``python execution_api.py PORT``.

One for all tries: building the versioned application takes seconds.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextlib.contextmanager
def execution_api(port: int, log: Path) -> Iterator[str]:
    """Start the server with the environment's database and yield its URL; stopped afterwards."""
    url = f"http://127.0.0.1:{port}/"
    with log.open("wb") as output:
        process = subprocess.Popen([sys.executable, __file__, str(port)], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + 240
        while not _answers(url):
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
            time.sleep(0.3)
        yield url
    finally:
        process.kill()
        process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url + "health", timeout=60)  # noqa: S310 - http on loopback
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


if __name__ == "__main__":
    import uvicorn
    from airflow.api_fastapi.execution_api.app import InProcessExecutionAPI

    uvicorn.run(InProcessExecutionAPI().app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
