# SPDX-License-Identifier: Apache-2.0
"""What one pair's run gave, how it is kept, and the page that shows the last of every pair."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "matrix.md"

_HEAD = """\
# Matrix: the suites on every supported pair

The unit suite, the on-Airflow suites (real PostgreSQL, the pair's own Airflow and provider) and the
launch guard's on a real kube-apiserver, in an environment for each pair, pinned in `requirements/`.
Every pair of the table resolves and installs as it is. A later run of `make matrix` repeats a suite only
where it did not pass with the files that it reads as they are; the commit is that of a pair's last run
suite, "+" marks files that differed from it.

<!-- written by `make matrix` -->

"""


@dataclass(frozen=True)
class Result:
    """One run on a pair. ``code`` is pytest's exit code, None where it was not run (``note`` says why)."""

    pair: str
    digest: str = ""
    code: int | None = None
    tests: int = 0
    failed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    commit: str = ""
    note: str = ""

    @property
    def passed(self) -> bool:
        return self.code == 0 and self.tests > 0

    @property
    def outcome(self) -> str:
        if self.code is None:
            return f"NOT RUN: {self.note}"
        return f"{'passed' if self.passed else 'FAILED'}, {self.tests} passed, {self.failed} failed"

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Result | None:
        """Return what ``save`` wrote; None where there is nothing or it cannot be read."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None


def merged(pair: str, suites: list[Result]) -> Result:
    """Return a pair's suites as one result, which passed where every suite did."""
    skipped: Counter[str] = Counter()
    for suite in suites:
        skipped.update(suite.skipped)
    codes = [suite.code if suite.passed else suite.code or 1 for suite in suites]
    return Result(
        pair=pair,
        code=next((code for code in codes if code), 0),
        tests=sum(suite.tests for suite in suites),
        failed=sum(suite.failed for suite in suites),
        skipped=dict(skipped),
        seconds=sum(suite.seconds for suite in suites),
        commit=suites[-1].commit,
    )


def table(results: Iterable[Result]) -> Iterator[str]:
    """Yield the table's lines, in Markdown."""
    yield "| Airflow | provider | Python | result | passed | failed | skipped | seconds | commit |"
    yield "|---|---|---|---|---:|---:|---:|---:|---|"
    for result in results:
        airflow, provider, python = result.pair.split("+")
        said = "passed" if result.passed else result.note if result.code is None else "**failed**"
        numbers = f"{result.tests} | {result.failed} | {sum(result.skipped.values())} | {result.seconds:.0f}"
        yield f"| {airflow} | {provider} | {python[2:]} | {said} | {numbers} | {result.commit} |"


def page(results: list[Result]) -> str:
    """Return the page's text: the table, and why tests were skipped on how many pairs."""
    lines = [*table(results), "", "## Skipped, by reason", ""]
    reasons: dict[str, Counter[str]] = {}
    for result in results:
        for reason, number in result.skipped.items():
            reasons.setdefault(reason, Counter())[result.pair] += number
    if not reasons:
        lines.append("Nothing was skipped.")
    else:
        lines += ["| reason | tests | pairs |", "|---|---|---:|"]
        for reason, pairs in sorted(reasons.items()):
            least, most = min(pairs.values()), max(pairs.values())
            span = str(least) if least == most else f"{least} to {most}"
            lines.append(f"| {reason.replace('|', '/')} | {span} | {len(pairs)} |")
    return _HEAD + "\n".join(lines) + "\n"
