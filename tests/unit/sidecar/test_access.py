# SPDX-License-Identifier: Apache-2.0
"""TLS, client certificates and bearer tokens: real certificates, sockets and processes."""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import socket
import ssl
import time
import urllib.error

import pytest

from steadfast_sidecar.access import Access
from steadfast_sidecar.cli import main
from steadfast_sidecar.last_good import FileError
from tests.support.certificates import Authority
from tests.support.sidecar_process import PATIENCE_SECONDS, sidecar_process

OURS, OTHERS = Authority(), Authority("another authority")
SERVER, NEXT, STRANGER = OURS.issue("server"), OURS.issue("next server"), OTHERS.issue("stranger")
CLIENT = OURS.issue("prometheus")


class Secret:
    """A folder as Kubernetes mounts a Secret: every file changes at once, by one symbolic link."""

    def __init__(self, folder):
        self.folder = folder
        self.versions = 0
        folder.mkdir()

    def write(self, **files):
        self.versions += 1
        version = self.folder / f"..version-{self.versions}"
        version.mkdir()
        for name, content in files.items():
            (version / name).write_bytes(content)
            with contextlib.suppress(FileExistsError):
                (self.folder / name).symlink_to(f"..data/{name}")
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").rename(self.folder / "..data")

    def path(self, name):
        return self.folder / name


@pytest.fixture
def secret(tmp_path):
    made = Secret(tmp_path / "secret")
    made.write(cert=SERVER.cert, key=SERVER.key, ca=OURS.cert, token=b"first-token\n")
    return made


def context(*, trusts=OURS, shows=None, folder=None):
    made = trusts.trusting()
    if shows is not None:
        (folder / "client.pem").write_bytes(shows.cert + shows.key)
        made.load_cert_chain(folder / "client.pem")
    return made


def flags(folder, secret, *names):
    flag = {
        "cert": "--tls-cert-file",
        "key": "--tls-key-file",
        "ca": "--tls-client-ca-file",
        "token": "--bearer-token-file",
    }
    files = [part for name in names for part in (flag[name], str(secret.path(name)))]
    return ["--handoff-dir", str(folder), "--poll-interval", "0.2", *files]


def await_log(sidecar, text):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while text not in sidecar.log:
        assert time.monotonic() < deadline, sidecar.log
        time.sleep(0.05)


def served_certificate(port):
    # not verified, only looked at
    return ssl.get_server_certificate(("127.0.0.1", port)).encode().strip()


def test_metrics_and_probes_over_tls(tmp_path, secret):
    with sidecar_process(*flags(tmp_path, secret, "cert", "key"), tls=context()) as sidecar:
        assert sidecar.get("/metrics")[0] == 200
        assert sidecar.get("/livez") == (200, "ok\n")
        assert "(TLS)" in sidecar.log
        sidecar.tls = context(trusts=OTHERS)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            sidecar.get("/metrics")
        sidecar.tls = None
        with pytest.raises((http.client.HTTPException, OSError)):
            sidecar.get("/metrics")


def test_old_versions_of_tls_are_refused(tmp_path, secret):
    old = context()
    old.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    with sidecar_process(*flags(tmp_path, secret, "cert", "key"), tls=context()) as sidecar:
        sidecar.tls = old
        with pytest.raises(urllib.error.URLError, match="PROTOCOL"):
            sidecar.get("/metrics")


def test_a_client_certificate_opens_the_metrics_and_probes_need_none(tmp_path, secret):
    trusted = context(shows=CLIENT, folder=tmp_path)
    foreign = context(shows=STRANGER, folder=tmp_path)
    with sidecar_process(*flags(tmp_path, secret, "cert", "key", "ca"), tls=context()) as sidecar:
        assert sidecar.get("/metrics") == (403, "a client certificate is needed\n")
        for probe in ("/livez", "/readyz", "/"):
            assert sidecar.get(probe)[0] == 200, "a kubelet has no certificate"
        assert "Steadfast sidecar</h1>" in sidecar.get("/")[1], "no version for strangers"
        sidecar.tls = trusted
        assert sidecar.get("/metrics")[0] == 200
        assert "Steadfast sidecar 0" in sidecar.get("/")[1]
        sidecar.tls = foreign
        with pytest.raises((urllib.error.URLError, OSError)):
            sidecar.get("/metrics")


def test_a_token_opens_the_metrics_and_probes_need_none(tmp_path, secret):
    with sidecar_process(*flags(tmp_path, secret, "token")) as sidecar:
        refused = (401, "a bearer token is needed\n")
        assert sidecar.get("/metrics") == refused
        for wrong in ("Bearer", "Bearer wrong", "Basic first-token", "first-token", "Bearer f\u00fcrst"):
            assert sidecar.get("/metrics", Authorization=wrong) == refused, wrong
        assert sidecar.get("/metrics", Authorization="Bearer first-token")[0] == 200
        assert sidecar.get("/metrics", Authorization="bearer  first-token ")[0] == 200
        assert sidecar.get("/livez")[0] == 200
        assert sidecar.get("/readyz")[0] == 200
        assert "first-token" not in sidecar.log


def test_a_refused_request_says_how_to_be_let_in(tmp_path, secret):
    with sidecar_process(*flags(tmp_path, secret, "token")) as sidecar:
        connection = http.client.HTTPConnection("127.0.0.1", sidecar.port, timeout=10)
        connection.request("GET", "/metrics")
        assert connection.getresponse().getheader("WWW-Authenticate") == 'Bearer realm="steadfast-sidecar"'


def test_a_certificate_and_a_token_together_are_both_needed(tmp_path, secret):
    trusted = context(shows=CLIENT, folder=tmp_path)
    with sidecar_process(*flags(tmp_path, secret, "cert", "key", "ca", "token"), tls=trusted) as sidecar:
        assert "(TLS, client certificate, bearer token)" in sidecar.log
        assert sidecar.get("/metrics")[0] == 401
        assert sidecar.get("/metrics", Authorization="Bearer first-token")[0] == 200
        sidecar.tls = context()
        assert sidecar.get("/metrics", Authorization="Bearer first-token")[0] == 403


def test_changed_files_are_taken_over_and_broken_ones_are_not(tmp_path, secret):
    files = flags(tmp_path, secret, "cert", "key", "token")
    with sidecar_process(*files, tls=context()) as sidecar:
        assert served_certificate(sidecar.port) == SERVER.cert.strip()

        secret.write(cert=NEXT.cert, key=SERVER.key, token=b"two words\n")
        await_log(sidecar, "TLS stays as last read")
        await_log(sidecar, "bearer token stays as last read")
        assert "is not the key of the certificate" in sidecar.log
        assert served_certificate(sidecar.port) == SERVER.cert.strip()
        assert sidecar.get("/metrics", Authorization="Bearer first-token")[0] == 200

        secret.write(cert=NEXT.cert, key=NEXT.key, token=b"first-token\nsecond-token\n")
        await_log(sidecar, "TLS changed and is in use")
        await_log(sidecar, "bearer token changed and is in use")
        assert served_certificate(sidecar.port) == NEXT.cert.strip()
        for token in ("first-token", "second-token"):
            assert sidecar.get("/metrics", Authorization=f"Bearer {token}")[0] == 200

        secret.write(cert=NEXT.cert, key=NEXT.key, token=b"second-token")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while sidecar.get("/metrics", Authorization="Bearer first-token")[0] != 401:
            assert time.monotonic() < deadline
        assert sidecar.get("/metrics", Authorization="Bearer second-token")[0] == 200
        assert sidecar.log.count("stays as last read") == 2, "said once, not at each look"


def test_a_changed_authority_shuts_its_old_clients_out(tmp_path, secret):
    ours = context(shows=CLIENT, folder=tmp_path)
    theirs = context(shows=STRANGER, folder=tmp_path)
    with sidecar_process(*flags(tmp_path, secret, "cert", "key", "ca"), tls=ours) as sidecar:
        assert sidecar.get("/metrics")[0] == 200
        secret.write(cert=SERVER.cert, key=SERVER.key, ca=OTHERS.cert)
        await_log(sidecar, "TLS changed and is in use")
        with pytest.raises((urllib.error.URLError, OSError)):
            sidecar.get("/metrics")
        sidecar.tls = theirs
        assert sidecar.get("/metrics")[0] == 200


def test_files_that_vanish_and_come_back_change_nothing(secret, caplog):
    caplog.set_level(logging.INFO)
    access = Access(token=secret.path("token"))
    away = secret.folder.with_name("away")
    secret.folder.rename(away)
    access.refresh()
    access.refresh()
    assert access.refusal("Bearer first-token", certified=False) is None
    away.rename(secret.folder)
    access.refresh()
    access.refresh()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2
    assert "--bearer-token-file" in told[0]
    assert "No such file" in told[0]
    assert told[1] == "bearer token is again as it was"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"cert": b"nonsense"}, "--tls-cert-file: {cert} holds no certificate in PEM form"),
        ({"key": b""}, "--tls-key-file: {key} holds no private key in PEM form"),
        ({"key": NEXT.key}, "--tls-key-file: {key} is not the key of the certificate in {cert}"),
        ({"key": SERVER.encrypted}, "--tls-key-file: {key} is encrypted: give a key without a passphrase"),
        (
            {"cert": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"},
            "--tls-cert-file and --tls-key-file: {cert} and {key} cannot be used",
        ),
        ({"ca": b"nonsense"}, "--tls-client-ca-file: {ca} holds no usable certificate in PEM form"),
        ({"token": b" \n"}, "--bearer-token-file: {token} is empty: write one token a line"),
        ({"token": b"two words"}, "--bearer-token-file: {token} has a line that is no token"),
    ],
)
def test_a_file_that_cannot_be_used_at_the_start_is_named_with_its_flag(secret, files, told, capsys):
    good = {"cert": SERVER.cert, "key": SERVER.key, "ca": OURS.cert, "token": b"t"}
    secret.write(**{**good, **files})
    paths = {name: secret.path(name) for name in good}
    expected = told.format(**paths)
    with pytest.raises(FileError) as caught:
        Access(paths["cert"], paths["key"], paths["ca"], paths["token"])
    assert str(caught.value).startswith(expected)
    arguments = flags(secret.folder, secret, "cert", "key", "ca", "token")
    for command in ([], ["--check"]):
        assert main([*command, *arguments, "--listen", "127.0.0.1:0"]) == 2
        assert expected in capsys.readouterr().err


def test_a_file_that_is_not_there_is_named(tmp_path, secret):
    with pytest.raises(FileError, match=r"^--tls-key-file: .*absent cannot be read: No such file"):
        Access(secret.path("cert"), tmp_path / "absent")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_named(secret):
    secret.path("token").chmod(0)
    with pytest.raises(FileError, match="Permission denied"):
        Access(token=secret.path("token"))


def test_connections_without_a_handshake_hold_up_nobody(tmp_path, secret):
    with (
        sidecar_process(*flags(tmp_path, secret, "cert", "key"), tls=context()) as sidecar,
        contextlib.ExitStack() as silent,
    ):
        for _ in range(8):
            silent.enter_context(socket.create_connection(("127.0.0.1", sidecar.port), timeout=10))
        assert sidecar.get("/metrics")[0] == 200
