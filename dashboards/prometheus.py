# SPDX-License-Identifier: Apache-2.0
"""Questions to a Prometheus, and a throw-away one filled with history, for the preview and the tests."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

READY_SECONDS = 30
RATE_WINDOW_SCRAPES = 4
"""A rate needs two samples in its window; four scrapes survive a missed one (Grafana's own rule)."""


class PrometheusError(RuntimeError):
    """Prometheus is missing, does not start or refuses a query; the message says which and what to do."""


@dataclass(frozen=True)
class Window:
    """The time range that a dashboard shows: Unix seconds; ``scrape`` is the interval of the samples."""

    start: float
    end: float
    step: int
    scrape: int

    @classmethod
    def until(cls, end: float, seconds: int, scrape: int, points: int = 360) -> Window:
        """Return the window of this length, in at most ``points`` steps of at least one scrape."""
        return cls(end - seconds, end, max(scrape, math.ceil(seconds / points)), scrape)

    def fill(self, expr: str) -> str:
        """Replace Grafana's variables in an expression; what a person can choose becomes "everything"."""
        rate_window = max(self.step + self.scrape, RATE_WINDOW_SCRAPES * self.scrape)
        values = {
            "__rate_interval": f"{rate_window}s",
            "__range": f"{round(self.end - self.start)}s",
            "__interval": f"{self.step}s",
            "job": ".+",
            "instance": ".+",
        }
        filled = re.sub(r"\$\{?(\w+)\}?", lambda match: values.get(match[1], match[0]), expr)
        if "$" in filled:
            raise PrometheusError(f"Unknown variable in {expr!r}; known: {sorted(values)}")
        return filled


@dataclass(frozen=True)
class Series:
    """One answered series: its labels and (Unix seconds, value) pairs. Values may be NaN."""

    labels: dict[str, str]
    points: list[tuple[float, float]]

    def named(self, legend: str) -> str:
        """Return the legend with each ``{{label}}`` filled in."""
        return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda match: self.labels.get(match[1], ""), legend)


@dataclass(frozen=True)
class Client:
    """Asks one Prometheus. Raises ``PrometheusError`` for whatever goes wrong."""

    url: str

    def range(self, expr: str, window: Window) -> list[Series]:
        """Evaluate at each step of the window."""
        answer = self._get(
            "query_range",
            {"query": window.fill(expr), "start": window.start, "end": window.end, "step": window.step},
        )
        return [
            Series(found["metric"], [(float(t), float(value)) for t, value in found["values"]])
            for found in answer["data"]["result"]
        ]

    def instant(self, expr: str, window: Window) -> list[Series]:
        """Evaluate once, at the end of the window."""
        answer = self._get("query", {"query": window.fill(expr), "time": window.end})
        return [
            Series(found["metric"], [(float(found["value"][0]), float(found["value"][1]))])
            for found in answer["data"]["result"]
        ]

    def scrape_interval(self) -> int:
        """Return the interval of its configuration's ``global`` part in whole seconds, at least 1."""
        configuration = self._get("status/config", {})["data"]["yaml"]
        found = re.search(r"scrape_interval: (?:(\d+)m)?(?:(\d+)s)?", configuration)
        minutes, seconds = (int(part or 0) for part in found.groups()) if found else (1, 0)
        return max(1, 60 * minutes + seconds)

    def _get(self, path: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if not self.url.startswith(("http://", "https://")):
            raise PrometheusError(f"--prometheus {self.url}: not an http:// or https:// address")
        address = f"{self.url.rstrip('/')}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=30) as reply:  # noqa: S310  # checked above
                answer: dict[str, Any] = json.load(reply)
        except urllib.error.HTTPError as error:
            raise PrometheusError(f"{parameters.get('query')}: {error.read().decode()[:500]}") from error
        except (OSError, ValueError) as error:
            raise PrometheusError(f"No answer from Prometheus at {self.url}: {error}") from error
        return answer


@contextlib.contextmanager
def backfilled(openmetrics: str) -> Iterator[Client]:
    """Run Prometheus on a free loopback port over the given history (OpenMetrics text with timestamps).

    It is stopped and its folder removed at the end.

    Raises:
        PrometheusError: ``prometheus`` or ``promtool`` is not on PATH, or one of them fails.
    """
    for tool in ("promtool", "prometheus"):
        if not shutil.which(tool):
            raise PrometheusError(
                f"{tool} is not on PATH: apt-get install prometheus (Debian), or `make env`"
            )
    with tempfile.TemporaryDirectory(prefix="steadfast-prometheus-") as folder:
        home = Path(folder)
        (home / "history.txt").write_text(openmetrics, encoding="utf-8")
        (home / "prometheus.yml").write_text("global: {}\n", encoding="utf-8")
        blocks = subprocess.run(
            ["promtool", "tsdb", "create-blocks-from", "openmetrics", home / "history.txt", home / "data"],
            capture_output=True,
            text=True,
            check=False,
        )
        if blocks.returncode:
            raise PrometheusError(f"promtool could not read the history: {blocks.stderr[-500:]}")
        with _serving(home) as client:
            yield client


@contextlib.contextmanager
def _serving(home: Path) -> Iterator[Client]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    with (home / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={home / 'prometheus.yml'}",
                f"--storage.tsdb.path={home / 'data'}",
                "--storage.tsdb.retention.time=100y",
                f"--web.listen-address={address}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_ready(process, address, home / "log")
        yield Client(f"http://{address}")
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/-/ready", timeout=2):
            return
        time.sleep(0.1)
    raise PrometheusError(f"prometheus did not become ready: {log.read_text(encoding='utf-8')[-500:]}")
