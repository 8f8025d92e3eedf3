# SPDX-License-Identifier: Apache-2.0
"""``python -m dashboards generate | check | preview``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dashboards import generate

PICTURE = Path("docs/images/dashboard.png")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; 0 if all is well, 1 with a line on standard error if not."""
    chosen = _parser().parse_args(arguments)
    if chosen.command == "generate":
        for path in generate.write():
            print(f"wrote {path.name}")
        return 0
    if chosen.command == "check":
        return _check()
    return _preview(chosen)


def _check() -> int:
    stale = generate.stale()
    for path in stale:
        print(f"dashboards/generated/{path.name} is not what the code says", file=sys.stderr)
    if stale:
        print("run `python -m dashboards generate` and commit the result", file=sys.stderr)
    return 1 if stale else 0


def _preview(chosen: argparse.Namespace) -> int:
    from dashboards import preview
    from dashboards.prometheus import PrometheusError

    try:
        preview.draw_dashboard(
            chosen.output,
            url=chosen.prometheus,
            minutes=chosen.minutes,
            end=chosen.end,
        )
    except PrometheusError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"drew {chosen.output}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dashboards", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("generate", help="write dashboards/generated/")
    commands.add_parser("check", help="fail if dashboards/generated/ is not what the code says")
    preview = commands.add_parser(
        "preview", help="draw the dashboard as a picture from a Prometheus's answers"
    )
    preview.add_argument("--prometheus", metavar="URL", help="default: a throw-away one with made-up history")
    preview.add_argument("--minutes", type=int, help="length of the range (default: all there is, to 6 h)")
    preview.add_argument("--end", type=float, help="its end, Unix seconds (default: now)")
    preview.add_argument("--output", type=Path, default=PICTURE, help=f"default {PICTURE}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
