# SPDX-License-Identifier: Apache-2.0
"""Who may read the metrics: TLS, client certificates and bearer tokens, all from files.

Probes stay open to those who reach the port: a kubelet has neither a certificate nor a token.
"""

from __future__ import annotations

import hmac
import re
import ssl
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

from steadfast_sidecar.last_good import FileError, LastGood

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steadfast_sidecar.settings import Settings

CERT_FLAG = "--tls-cert-file"
KEY_FLAG = "--tls-key-file"
CLIENT_CA_FLAG = "--tls-client-ca-file"
TOKEN_FLAG = "--bearer-token-file"  # noqa: S105 - the flag, not a token

_TOKEN = re.compile(rb"[A-Za-z0-9._~+/-]+=*")


@dataclass(frozen=True)
class Refusal:
    """Why a request is turned away, and the header that says how to be let in."""

    status: HTTPStatus
    text: str
    headers: tuple[tuple[str, str], ...] = ()


class Access:
    """The rules of one server; raises FileError where a file cannot be used at the start.

    ``refresh`` takes over changed files for new connections; one thread calls it. The other methods may
    be called from any.
    """

    def __init__(
        self,
        cert: Path | None = None,
        key: Path | None = None,
        client_ca: Path | None = None,
        token: Path | None = None,
    ) -> None:
        self.asks_for_certificate = client_ca is not None
        self._tls: LastGood[ssl.SSLContext] | None = None
        self._tokens: LastGood[tuple[bytes, ...]] | None = None
        if cert is not None and key is not None:
            files = {CERT_FLAG: cert, KEY_FLAG: key}
            if client_ca is not None:
                files[CLIENT_CA_FLAG] = client_ca
            self._tls = LastGood("TLS", files, lambda contents: _context(files, contents))
        if token is not None:
            self._tokens = LastGood("bearer token", {TOKEN_FLAG: token}, lambda read: _tokens(token, read))

    @property
    def tls(self) -> ssl.SSLContext | None:
        """The context for a new connection; None: plain HTTP."""
        return None if self._tls is None else self._tls.value

    @property
    def asks_for_token(self) -> bool:
        """Whether a request needs a bearer token."""
        return self._tokens is not None

    def refresh(self) -> None:
        """Read the files again; what cannot be used is said once and changes nothing."""
        for files in (self._tls, self._tokens):
            if files is not None:
                files.refresh()

    def refusal(self, authorization: str, *, certified: bool) -> Refusal | None:
        """Return why a request may not see the metrics; None where it may.

        ``authorization`` is the request's header, ``certified`` whether its connection came with a
        certificate of the clients' authority.
        """
        if self.asks_for_certificate and not certified:
            return Refusal(HTTPStatus.FORBIDDEN, "a client certificate is needed")
        if self._tokens is None or _is_among(self._tokens.value, authorization):
            return None
        challenge = (("WWW-Authenticate", 'Bearer realm="steadfast-sidecar"'),)
        return Refusal(HTTPStatus.UNAUTHORIZED, "a bearer token is needed", challenge)

    def __str__(self) -> str:
        parts = [
            "TLS" if self._tls else "plain HTTP",
            *(["client certificate"] if self.asks_for_certificate else []),
            *(["bearer token"] if self.asks_for_token else []),
        ]
        return ", ".join(parts)


def access_of(settings: Settings) -> Access:
    """Return the rules that the settings name; raises FileError."""
    named = (
        settings.tls_cert_file,
        settings.tls_key_file,
        settings.tls_client_ca_file,
        settings.bearer_token_file,
    )
    return Access(*(Path(text) if text else None for text in named))


def _is_among(tokens: tuple[bytes, ...], authorization: str) -> bool:
    scheme, _, given = authorization.partition(" ")
    sent = given.strip().encode("utf-8", "surrogateescape")
    # every one is compared in constant time, so that the time tells nothing about any
    hits = [hmac.compare_digest(token, sent) for token in tokens]
    return scheme.lower() == "bearer" and any(hits)


def _tokens(path: Path, contents: Mapping[str, bytes]) -> tuple[bytes, ...]:
    tokens = tuple(line.strip() for line in contents[TOKEN_FLAG].splitlines() if line.strip())
    if not tokens:
        raise FileError(f"{TOKEN_FLAG}: {path} is empty: write one token a line")
    if not all(_TOKEN.fullmatch(token) for token in tokens):
        raise FileError(
            f"{TOKEN_FLAG}: {path} has a line that is no token: letters, digits and ._~+/- without spaces"
        )
    return tokens


def _context(files: Mapping[str, Path], contents: Mapping[str, bytes]) -> ssl.SSLContext:
    cert, key = files[CERT_FLAG], files[KEY_FLAG]
    if b"-----BEGIN CERTIFICATE-----" not in contents[CERT_FLAG]:
        raise FileError(f"{CERT_FLAG}: {cert} holds no certificate in PEM form")
    if b"PRIVATE KEY-----" not in contents[KEY_FLAG]:
        raise FileError(f"{KEY_FLAG}: {key} holds no private key in PEM form")

    def passphrase() -> str:
        # without this OpenSSL asks on the terminal
        raise FileError(f"{KEY_FLAG}: {key} is encrypted: give a key without a passphrase")

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key, passphrase)
    except OSError as error:
        if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
            raise FileError(f"{KEY_FLAG}: {key} is not the key of the certificate in {cert}") from error
        raise FileError(f"{CERT_FLAG} and {KEY_FLAG}: {cert} and {key} cannot be used: {error}") from error
    if CLIENT_CA_FLAG in files:
        try:
            context.load_verify_locations(cafile=files[CLIENT_CA_FLAG])
        except OSError as error:
            raise FileError(
                f"{CLIENT_CA_FLAG}: {files[CLIENT_CA_FLAG]} holds no usable certificate in PEM form: {error}"
            ) from error
        # Optional here, since a kubelet's probes have none; the metrics are refused without one.
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
