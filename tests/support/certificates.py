# SPDX-License-Identifier: Apache-2.0
"""Throw-away certificates of a throw-away authority, as PEM."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key; ``encrypted`` is the same key under a passphrase."""

    cert: bytes
    key: bytes
    encrypted: bytes


class Authority:
    """Signs certificates for 127.0.0.1 and localhost, good for servers and clients."""

    def __init__(self, name: str = "authority of a test") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self._name, self._name, self._key.public_key())
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        identifier = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        signed = (
            builder.add_extension(constraints, critical=True)
            .add_extension(usage, critical=True)
            .add_extension(identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.cert = signed.public_bytes(serialization.Encoding.PEM)
        # Python 3.13 and later verify strictly: both identifiers must be there.
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)

    def trusting(self) -> ssl.SSLContext:
        """Return a client's context that trusts this authority alone."""
        return ssl.create_default_context(cadata=self.cert.decode())

    def issue(self, name: str) -> Pair:
        """Return a new pair."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        cert = (
            _builder(_named(name), self._name, key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(self._identifier, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return Pair(
            cert.public_bytes(serialization.Encoding.PEM),
            _pem(key, serialization.NoEncryption()),
            _pem(key, serialization.BestAvailableEncryption(b"passphrase")),
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
    )


def _pem(key: ec.EllipticCurvePrivateKey, protection: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection)
