# SPDX-License-Identifier: Apache-2.0
"""Changes the guard's decisions one by one and looks whether a unit test notices: ``make mutation``.

A copy of the sources and of their unit tests is made in ``.build/mutation``, mutmut works there. What no
test notices is compared with ``survivors.toml``, which gives a reason for each; ``docs/mutation.md`` is
written from both. Ends with 1 where a survivor has no reason.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import tomllib

REPOSITORY = Path(__file__).resolve().parents[2]
PLACE = REPOSITORY / ".build" / "mutation"
ENVIRONMENT = REPOSITORY / ".build" / "venv-mutation"
PINS = REPOSITORY / "requirements" / "mutation.txt"
REASONS = Path(__file__).with_name("survivors.toml")
REPORT = REPOSITORY / "docs" / "mutation.md"

PACKAGE = "airflow_steadfast/launch_guard"
MUTATED = (
    *("launch", "verdict", "recheck_verdict", "queue", "settle", "line", "entry", "backoff"),
    *("recheck", "stale"),
)
"""The decisions: what a launch is, whether it may be made, in which order; and the check after creation."""

TESTS = (
    *("backoff", "drop", "entry", "launch", "line"),
    *("queue", "queue_again", "queue_questions", "queue_tokens"),
    *("recheck", "recheck_alongside", "recheck_void", "renewal", "stale", "token", "verdict"),
)
"""The unit tests of these: they need no Airflow and no Kubernetes client, and take no random steps."""

NOTICED = {"killed", "timeout", "caught by type check"}

HEAD = """# Mutation check

Made by `make mutation`. Each *mutant* is the launch guard with one small change (a comparison turned round,
an argument left out, a constant changed); the unit tests of the guard are run against it. One that they
do not notice survives, and has a written reason here, or the command fails. Changes of log texts and of
docstrings are left out.

"""


@dataclass(frozen=True)
class Mutant:
    """One change: ``change`` is its removed and added lines, the same whatever its number is."""

    name: str
    status: str
    change: str = ""

    @property
    def module(self) -> str:
        """The module's name within the package."""
        return self.name.split(".")[2]


def prepare() -> None:
    """Copy sources and tests to where they may be changed."""
    shutil.rmtree(PLACE, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        REPOSITORY / "provider_patch" / "airflow_steadfast",
        PLACE / "src" / "airflow_steadfast",
        ignore=ignored,
    )
    shutil.copytree(
        REPOSITORY / "tests" / "unit" / "launch_guard",
        PLACE / "tests" / "unit" / "launch_guard",
        ignore=ignored,
    )
    support = PLACE / "tests" / "support"
    support.mkdir()
    for name in ("__init__.py", "guard_queue.py"):
        shutil.copy(REPOSITORY / "tests" / "support" / name, support / name)
    selected = [f"tests/unit/launch_guard/test_{name}.py" for name in TESTS]
    modules = ", ".join(f'"src/{PACKAGE}/{module}.py"' for module in MUTATED)
    (PLACE / "pyproject.toml").write_text(
        f"""[tool.mutmut]
source_paths = ["src"]
only_mutate = [{modules}]
also_copy = ["tests"]
pytest_add_cli_args_test_selection = {selected!r}
pytest_add_cli_args = ["-p", "no:cacheprovider", "-p", "no:randomly"]
do_not_mutate_patterns = ["\\\\blog\\\\.(debug|info|warning|error|exception|log)\\\\("]
use_git_change_detection = false

[tool.pytest.ini_options]
addopts = ["--import-mode=importlib"]
pythonpath = ["."]
""",
        encoding="utf-8",
    )


def environment() -> None:
    """Make mutmut's own environment, or leave it as it is when its pins have not changed."""
    wanted, stamp = PINS.read_text(encoding="utf-8"), ENVIRONMENT / "pins.txt"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", ENVIRONMENT], check=True)
    pip = [ENVIRONMENT / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "--require-hashes", "-r", PINS], check=True)
    stamp.write_text(wanted, encoding="utf-8")


def mutmut(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mutmut in the copy."""
    return subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-m", "mutmut", *arguments],
        cwd=PLACE,
        capture_output=True,
        text=True,
        check=False,
    )


def results() -> list[Mutant]:
    """Return all mutants with what became of them."""
    found = []
    for line in mutmut("results", "--all", "true").stdout.splitlines():
        name, separator, status = line.strip().partition(": ")
        if separator and "__mutmut_" in name:
            found.append(Mutant(name, status.strip()))
    changes = changes_of([mutant.name for mutant in found if mutant.status not in NOTICED])
    return [Mutant(mutant.name, mutant.status, changes.get(mutant.name, "")) for mutant in found]


def changes_of(names: list[str]) -> dict[str, str]:
    """Return the removed and added lines of mutants; one process, since mutmut takes seconds to start."""
    code = (
        "import json, sys; from mutmut.__main__ import find_mutant, get_diff_for_mutant as diff;"
        "print(json.dumps({name: diff(name, path=find_mutant(name).path) for name in json.load(sys.stdin)}))"
    )
    done = subprocess.run(
        [ENVIRONMENT / "bin" / "python", "-c", code],
        cwd=PLACE,
        input=json.dumps(names),
        capture_output=True,
        text=True,
        check=True,
    )
    return {name: _changed_lines(shown) for name, shown in json.loads(done.stdout).items()}


def _changed_lines(diff: str) -> str:
    lines = [line for line in diff.splitlines() if re.match(r"^[-+](?![-+])", line)]
    return "\n".join(" ".join([line[0], *line[1:].split()]) for line in lines)


def reasons() -> dict[tuple[str, str], str]:
    """Read the written reasons, by module and change."""
    with REASONS.open("rb") as file:
        table = tomllib.load(file)
    return {
        (row["module"], row["change"].strip()): " ".join(row["reason"].split())
        for row in table.get("survivor", [])
    }


def report(mutants: list[Mutant], known: dict[tuple[str, str], str], seconds: float) -> str:
    """Return the page: figures by module, then each survivor with its reason."""
    lines = ["| module | mutants | noticed | survived |", "|---|---|---|---|"]
    for module in MUTATED:
        counted = Counter(mutant.status in NOTICED for mutant in mutants if mutant.module == module)
        lines.append(f"| `{module}` | {counted.total()} | {counted[True]} | {counted[False]} |")
    survivors = [mutant for mutant in mutants if mutant.status not in NOTICED]
    lines.append(
        f"| all | {len(mutants)} | {len(mutants) - len(survivors)} | {len(survivors)} |\n\n"
        f"Last run: {time.strftime('%Y-%m-%d', time.gmtime())}, {seconds / 60:.0f} minutes.\n\n## Survivors\n"
    )
    for mutant in survivors:
        why = known.get((mutant.module, mutant.change), "NO REASON WRITTEN")
        lines.append(f"`{mutant.module}`: {why}\n\n```diff\n{mutant.change}\n```\n")
    if not survivors:
        lines.append("None.")
    return HEAD + "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Run the check; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--report-only", action="store_true", help="use the last run's results")
    chosen = parser.parse_args()
    started = time.monotonic()
    environment()
    if not chosen.report_only:
        prepare()
        done = mutmut("run")
        if done.returncode:
            print(done.stdout[-4_000:], done.stderr[-4_000:], sep="\n")
            return 2
    mutants, known = results(), reasons()
    if not mutants:
        print("mutmut made no mutant: look into .build/mutation")
        return 2
    REPORT.write_text(report(mutants, known, time.monotonic() - started), encoding="utf-8")
    open_ones = [
        mutant
        for mutant in mutants
        if mutant.status not in NOTICED and (mutant.module, mutant.change) not in known
    ]
    for mutant in open_ones:
        print(f"{mutant.status}: {mutant.name}\n{mutant.change}\n")
    print(f"{len(mutants)} mutants, {len(open_ones)} survive without a written reason")
    return 1 if open_ones else 0


if __name__ == "__main__":
    sys.exit(main())
