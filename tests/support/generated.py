# SPDX-License-Identifier: Apache-2.0
"""Everything that a command makes: ``write`` makes it, ``check`` exits 1 where it drifted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_steadfast import settings
from airflow_steadfast.signals import catalogue
from dashboards import generate as dashboards
from steadfast_sidecar import metrics_page
from steadfast_sidecar import settings as sidecar_settings
from tests.chart import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]

_SETTINGS_HEAD = """\
# Settings

The `[steadfast]` section of Airflow's configuration, also as environment variables
(`AIRFLOW__STEADFAST__GUARD_MAX_HOLD=30`). The chart sets them from `steadfast.launchGuard`,
`steadfast.durablePod` and `steadfast.settings`.

A value that cannot be used is answered by one log line that names the key, its default is used, and
`steadfast_settings_errors_total` goes up; so it is for a key that nobody reads.

<!-- written by `make generate` from provider_patch/airflow_steadfast/settings.py -->

"""
_SIDECAR_HEAD = """
## The sidecar

A process of its own with settings of its own: a flag wins over its environment variable, which wins over
the default. The chart sets what depends on it; others go into `steadfast.sidecar.env`. A value that cannot
be used ends the process with status 2 and a line that names the key. `python -m steadfast_sidecar --check`
tries them and the sources without serving; `--print-config` shows what is in force, secrets hidden.

<!-- written by `make generate` from sidecar/steadfast_sidecar/settings.py -->

| flag | variable | default | meaning |
|---|---|---|---|
"""
_BEGIN, _END = "<!-- metrics:begin -->\n", "<!-- metrics:end -->\n"


def texts() -> Iterator[tuple[Path, str]]:
    """Yield each generated text with its place; the dashboards have a command of their own."""
    yield ROOT / "docs" / "metrics.md", metrics_page.page()
    yield ROOT / "docs" / "settings.md", _SETTINGS_HEAD + settings.markdown(settings.table()) + _sidecar()
    yield schema.TARGET, schema.compiled()
    readme = ROOT / "README.md"
    yield readme, _with_metrics(readme.read_text(encoding="utf-8"))


def _sidecar() -> str:
    rows = "".join(
        f"| `{key.flag}` | `{key.variable}` | {f'`{key.default}`' if key.default else ''} | {key.help} |\n"
        for key in sidecar_settings.KEYS
    )
    return _SIDECAR_HEAD + rows


def _with_metrics(readme: str) -> str:
    before, rest = readme.split(_BEGIN)
    _, after = rest.split(_END)
    rows = "".join(
        f"| `{metric.name}` | {metric.kind} | {', '.join(f'`{label}`' for label in metric.labels)} "
        f"| {metric.help} |\n"
        for metric in catalogue.METRICS
    )
    return f"{before}{_BEGIN}| metric | type | labels | meaning |\n|---|---|---|---|\n{rows}{_END}{after}"


def stale() -> list[Path]:
    """Return the generated files that are not what their source says."""
    drifted = [path for path, text in texts() if not path.exists() or path.read_text("utf-8") != text]
    return [*drifted, *dashboards.stale()]


def main(command: str) -> int:
    if command == "check":
        for path in stale():
            print(
                f"{path.relative_to(ROOT)} is not what its source says: run `make generate`", file=sys.stderr
            )
        return 1 if stale() else 0
    for path, text in texts():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    for path in dashboards.write():
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) == 2 else "check"))
