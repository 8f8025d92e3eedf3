# SPDX-License-Identifier: Apache-2.0
"""The command line: ``steadfast-sidecar [serve|init-db|metrics] [flags]``.

Exit status: 0 done, 1 a check or the creation of the tables failed, 2 a wrong setting. A check passes
where a source is not there because the scheduler has not started or Airflow is below 3.3; it says so.
"""

from __future__ import annotations

import argparse
import sys
import threading
from typing import TYPE_CHECKING

import airflow_steadfast
from steadfast_sidecar import logs, metrics_page, settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steadfast_sidecar.sources import Source

WRONG_SETTING = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    options = vars(_parser().parse_args(arguments))
    if options["command"] == "metrics":
        sys.stdout.write(metrics_page.page())
        return 0
    try:
        config = settings.load(options)
    except settings.SettingsError as error:
        return _fail(str(error), WRONG_SETTING)
    if options["print_config"]:
        sys.stdout.write(settings.describe(config) + "\n")
        return 0
    logs.configure(config.log_format)
    if options["check"]:
        return _check(config)
    return _init_db(config) if options["command"] == "init-db" else _serve(config)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="steadfast-sidecar",
        description="Turns the scheduler's hand-off file and the workers' outbox into Prometheus metrics.",
        epilog="A flag wins over its variable, which wins over the default.",
    )
    parser.add_argument(
        "command",
        nargs="?",
        choices=["serve", "init-db", "metrics"],
        default="serve",
        help="serve the metrics, create the sidecar's tables, or describe the metrics as Markdown",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="try the settings, the files and each source, count nothing, say how it went, and exit",
    )
    parser.add_argument(
        "--print-config", action="store_true", help="print the settings, secrets hidden, and exit"
    )
    parser.add_argument(
        "--version", action="version", version=f"steadfast-sidecar {airflow_steadfast.__version__}"
    )
    for key in settings.KEYS:
        default = f"; default {key.default}" if key.default else ""
        parser.add_argument(
            key.flag, dest=key.name, metavar="VALUE", help=f"{key.help} [{key.variable}{default}]"
        )
    return parser


def _serve(config: settings.Settings) -> int:
    from steadfast_sidecar.last_good import FileError
    from steadfast_sidecar.service import Service

    try:
        service = Service(config)
    except FileError as error:
        return _fail(str(error), WRONG_SETTING)
    except OSError as error:
        return _fail(f"--listen: {config.listen} cannot be bound: {error.strerror or error}", WRONG_SETTING)
    service.run()
    return 0


def _check(config: settings.Settings) -> int:
    from steadfast_sidecar.access import access_of
    from steadfast_sidecar.last_good import FileError
    from steadfast_sidecar.service import sources_of

    try:
        sys.stdout.write(f"access: ok ({access_of(config)})\n")
    except FileError as error:
        return _fail(str(error), WRONG_SETTING)
    # each of them, also after one that failed
    return max([_check_source(source) for source in sources_of(config)])


def _check_source(source: Source) -> int:
    from steadfast_sidecar.poller import STALLED_AFTER_SECONDS
    from steadfast_sidecar.sources import SourceError

    cut_off = threading.Timer(STALLED_AFTER_SECONDS, source.interrupt)
    cut_off.daemon = True
    cut_off.start()
    try:
        reason = source.try_out().degraded
    except SourceError as error:
        reason = error.reason
    finally:
        cut_off.cancel()
    sys.stdout.write(f"{source.name}: {'ok' if reason is None else f'{reason.code}: {reason.text}'}\n")
    return int(reason is not None and not reason.is_expected)


def _init_db(config: settings.Settings) -> int:
    from steadfast_sidecar.sources import SourceError, engine_of, ensure_tables, no_url, shown

    if not config.database_url:
        return _fail(f"init-db: {no_url()}", WRONG_SETTING)
    try:
        engine = engine_of(config.database_url)
        ensure_tables(engine)
    except SourceError as error:
        return _fail(f"init-db on {shown(config.database_url)}: {error}", 1)
    engine.dispose()
    sys.stdout.write(f"tables of Steadfast are in place on {shown(config.database_url)}\n")
    return 0


def _fail(message: str, status: int) -> int:
    sys.stderr.write(f"steadfast-sidecar: {message}\n")
    return status
