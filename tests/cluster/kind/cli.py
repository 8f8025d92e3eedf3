# SPDX-License-Identifier: Apache-2.0
"""``python3 -m tests.cluster``: the commands behind `make cluster` and `make cluster-down`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from tests.cluster.kind import existing, lifecycle, paths, tools
from tests.cluster.kind.commands import ClusterError, CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence


def parser() -> argparse.ArgumentParser:
    """Return the commands."""
    top = argparse.ArgumentParser(prog="python3 -m tests.cluster", description="The cluster.")
    commands = top.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start it, or do nothing when it runs")
    choices = sorted(tools.ON_DEMAND)
    up.add_argument(
        "--with", dest="tools", action="append", default=[], choices=choices, help="a tool to make too"
    )
    commands.add_parser("down", help="stop it and everything that was started for it")
    commands.add_parser("status", help="say what there is; exit code 1 when the cluster does not run")
    commands.add_parser("kubeconfig", help="print the path of its kubeconfig")
    commands.add_parser("path", help="print the folder of its tools, to be put first on PATH")
    tool = commands.add_parser("tool", help="have a tool and print its path")
    tool.add_argument("name", choices=sorted(tools.ON_DEMAND))
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code: 0 done, 1 not done, with the reason on standard error."""
    asked = parser().parse_args(arguments)
    # progress is flushed: it is read while it grows, also through a pipe
    say = partial(print, flush=True)
    try:
        return _run(asked, say)
    except (ClusterError, CommandError) as error:
        print(f"\ncluster: {error}", file=sys.stderr)
    except KeyboardInterrupt:
        print("\ncluster: interrupted; the next start goes on from here", file=sys.stderr)
    return 1


def _run(asked: argparse.Namespace, say: partial[None]) -> int:
    place = paths.find()
    match asked.command:
        case "up":
            kubeconfig = lifecycle.up(say, more_tools=tuple(asked.tools))
            say(f"\nkubeconfig: {kubeconfig}\ntools:      {place.bin}")
        case "down":
            lifecycle.down(say)
        case "status":
            runs, text = lifecycle.status()
            say(text)
            return 0 if runs else 1
        case "kubeconfig":
            say(existing.kubeconfig() if existing.asked_for() else str(place.kubeconfig))
        case "path":
            say(str(place.bin))
        case "tool":
            # the path alone on standard output, for $(...)
            say(str(lifecycle.tool(asked.name, partial(print, file=sys.stderr, flush=True))))
    return 0
