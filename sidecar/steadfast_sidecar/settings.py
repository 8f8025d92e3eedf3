# SPDX-License-Identifier: Apache-2.0
"""Settings of the sidecar: a flag wins over its ``STEADFAST_*`` variable, which wins over the default.

The table below is the only list: the command line, the environment, ``--print-config`` and the
error messages are made from it.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

AIRFLOW_URL_VARIABLE = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
MAX_PORT = 65535


class SettingsError(ValueError):
    """A setting is wrong; the message names the key, the value and what is allowed."""


@dataclass(frozen=True)
class Address:
    """Where to listen; an empty host is every address of the machine, IPv6 and IPv4."""

    host: str
    port: int

    def __str__(self) -> str:
        host = self.host or "::"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True)
class Key:
    """One setting: its flag, variable, default as text, parser, and whether its value is secret."""

    name: str
    default: str
    parse: Callable[[str], Any]
    help: str
    secret: bool = False

    @property
    def flag(self) -> str:
        """The command-line form."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment form."""
        return "STEADFAST_" + self.name.upper()


@dataclass(frozen=True)
class Settings:
    """What the sidecar runs with; ``database_url`` is empty where nothing names a database.

    The files of certificates and tokens are paths as text, empty for none; they are read by ``access``.
    """

    handoff_dir: Path
    handoff_max_age: float
    listen: Address
    database_url: str
    database_url_file: str
    poll_interval: float
    consumer: str
    shutdown_linger: float
    log_format: str
    tls_cert_file: str
    tls_key_file: str
    tls_client_ca_file: str
    bearer_token_file: str


def _seconds(low: float, high: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(f"not between {low:g} and {high:g} seconds")
        return value

    return parse


def _address(text: str) -> Address:
    parts = urlsplit(f"//{text}")
    port = parts.port
    if port is None or not 0 <= port <= MAX_PORT or parts.path or parts.username or parts.query:
        raise ValueError("not of the form host:port, [IPv6]:port or :port")
    host = parts.hostname or ""
    return Address("" if host == "::" else host, port)


def _absolute(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute():
        raise ValueError("not an absolute path")
    return path


def _one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError(f"not one of {', '.join(allowed)}")
        return text

    return parse


def _name(text: str) -> str:
    limit = 253  # the longest name of a Kubernetes object, and the column's width
    if not text or len(text) > limit:
        raise ValueError(f"not a name of 1 to {limit} characters")
    return text


KEYS: tuple[Key, ...] = (
    Key(
        "handoff_dir",
        "/var/lib/steadfast/handoff",
        _absolute,
        "folder shared with the scheduler, which writes scheduler.json there",
    ),
    Key(
        "handoff_max_age",
        "60",
        _seconds(30, 86400),
        "age in seconds at which the hand-off file counts as left by a dead writer, which writes every 15 s",
    ),
    Key(
        "listen",
        "[::]:9109",
        _address,
        "address of the HTTP server; [::] falls back to IPv4 where IPv6 is off",
    ),
    Key(
        "database_url",
        "",
        str,
        f"SQLAlchemy URL of Airflow's metadata database; else {AIRFLOW_URL_VARIABLE} is used",
        secret=True,
    ),
    Key("database_url_file", "", str, "file that holds the URL instead, a mounted Secret say"),
    Key("poll_interval", "5", _seconds(0.2, 300), "seconds between two reads of a source"),
    Key(
        "consumer",
        "",
        str,
        "whose tallies are served: the pod's name or uid, other for each sidecar; default the host's name",
    ),
    Key(
        "shutdown_linger",
        "30",
        _seconds(0, 600),
        "most seconds to wait after SIGTERM for the scrape that takes the last counts",
    ),
    Key("log_format", "text", _one_of("text", "json"), "form of the log lines on stderr: text or json"),
    Key(
        "tls_cert_file",
        "",
        str,
        "PEM file of the server's certificate with its chain: serve HTTPS; re-read when it changes",
    ),
    Key("tls_key_file", "", str, "PEM file of that certificate's private key, without a passphrase"),
    Key(
        "tls_client_ca_file",
        "",
        str,
        "PEM file of authorities: /metrics only for clients with a certificate of one of them",
    ),
    Key(
        "bearer_token_file",
        "",
        str,
        "file of tokens, one a line: /metrics only for clients that send one of them as bearer token",
    ),
)


def load(flags: Mapping[str, str | None], environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings; raises SettingsError for the first wrong one."""
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    for key in KEYS:
        origin, text = _find(key, flags, environ)
        try:
            values[key.name] = key.parse(text)
        except ValueError as error:
            shown = "the given value" if key.secret else repr(text)
            raise SettingsError(f"{origin}: {shown} is wrong: {error}") from error
    values["consumer"] = _checked_consumer(values["consumer"] or socket.gethostname())
    values["database_url"] = _database_url(values, environ)
    _check_tls(values)
    return Settings(**values)


def describe(settings: Settings) -> str:
    """Return one ``key = value`` line per setting; a secret shows only whether it is set."""
    secret = {key.name for key in KEYS if key.secret}
    lines = []
    for item in fields(settings):
        value = getattr(settings, item.name)
        if item.name in secret:
            value = "(set, hidden)" if value else "(not set)"
        lines.append(f"{item.name} = {value}")
    return "\n".join(lines)


def _find(key: Key, flags: Mapping[str, str | None], environ: Mapping[str, str]) -> tuple[str, str]:
    flag = flags.get(key.name)
    if flag is not None:
        return key.flag, flag
    if environ.get(key.variable):
        return key.variable, environ[key.variable]
    return key.flag, key.default


def _checked_consumer(text: str) -> str:
    try:
        return _name(text)
    except ValueError as error:
        raise SettingsError(f"--consumer: {text!r} is wrong: {error}") from error


def _check_tls(values: Mapping[str, Any]) -> None:
    for given, needed in (
        ("tls_cert_file", "tls_key_file"),
        ("tls_key_file", "tls_cert_file"),
        ("tls_client_ca_file", "tls_cert_file"),
    ):
        if values[given] and not values[needed]:
            key = next(key for key in KEYS if key.name == needed)
            raise SettingsError(f"{key.flag}: not set, but --{given.replace('_', '-')} needs it: set it too")


def _database_url(values: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    if values["database_url"]:
        return str(values["database_url"])
    path = values["database_url_file"]
    if path:
        try:
            return Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"--database-url-file: {path!r} cannot be read: {error}") from error
    return environ.get(AIRFLOW_URL_VARIABLE, "").strip()
