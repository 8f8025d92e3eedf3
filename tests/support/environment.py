# SPDX-License-Identifier: Apache-2.0
"""The Python environments and Debian packages that the commands of the Makefile run in.

Standard library only and Python 3.11: this runs before anything is installed.

    python3 -m tests.support.environment ensure 3.3.2         make .build/venv-airflow-3.3.2, print its folder
    python3 -m tests.support.environment ensure 3.0.6+10.8.2  the same for a pair of Airflow and provider
    python3 -m tests.support.environment packages             install what the tests need from Debian
    python3 -m tests.support.environment pairs                list the supported pairs, which can run here
    python3 -m tests.support.environment compile [PAIR ...]   pin again what the pairs' environments hold
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.support.pairs import COMPARED, MAIN_PAIR, PAIRS, Pair, UnknownPairError, find

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / ".build"

PACKAGES = {
    "postgresql-15": "/usr/lib/postgresql/15/bin/postgres",
    "prometheus": "/usr/bin/promtool",
    "pgbouncer": "/usr/sbin/pgbouncer",
}


class MissingError(RuntimeError):
    """Something must be installed first; the message says what and how."""


def interpreter(version: str) -> Path | None:
    """The Python of that version from PATH or pyenv, or None; a shim that does not start is not one."""
    candidates = [Path(found)] if (found := shutil.which(f"python{version}")) else []
    candidates.append(Path(sys.executable))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True)
    for candidate in candidates:
        try:
            answer = subprocess.run(
                [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
                capture_output=True,
                text=True,
                check=False,
                timeout=30,
            )
        except OSError:
            continue
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


def uv() -> Path:
    """The pinned uv in .build/uv, installed from its hashes when it is not there yet."""
    target = BUILD / "uv"
    wanted = ROOT / "requirements" / "uv.txt"
    if _fresh(target, wanted):
        return target / "bin" / "uv"
    shutil.rmtree(target, ignore_errors=True)
    made = subprocess.run([sys.executable, "-m", "venv", target], check=False)
    if made.returncode != 0:
        shutil.rmtree(target, ignore_errors=True)
        _install_debian({"python3-venv": "/usr/lib/python3.11/ensurepip/__init__.py"})
        subprocess.run([sys.executable, "-m", "venv", target], check=True)
    subprocess.run([target / "bin" / "pip", "install", "-q", "--require-hashes", "-r", wanted], check=True)
    _stamp(target, wanted)
    return target / "bin" / "uv"


def pins(pair: Pair) -> Path:
    """The file of pinned, hashed requirements; the pairs of one Airflow and provider share it."""
    requirements = ROOT / "requirements"
    if (pair.airflow, pair.provider) == (MAIN_PAIR.airflow, MAIN_PAIR.provider):
        return requirements / f"airflow-{pair.airflow}.txt"
    return requirements / "pairs" / f"{pair.airflow}+{pair.provider}.txt"


def folder(pair: Pair) -> Path:
    """Where the pair's environment is, made or not."""
    return BUILD / f"venv-airflow-{pair.airflow if pair == MAIN_PAIR else pair.key}"


def ensure(pair: Pair) -> Path:
    """Make the pair's environment, or leave it as it is when its requirements have not changed.

    Returns its folder. Raises MissingError where the interpreter is not to be found. Idempotent.
    """
    wanted, target = pins(pair), folder(pair)
    if _fresh(target, wanted):
        return target
    python = interpreter(pair.python)
    if python is None:
        raise MissingError(
            f"{pair.name}: no Python {pair.python} on PATH or in pyenv; install it to run this pair"
        )
    started = time.monotonic()
    shutil.rmtree(target, ignore_errors=True)
    tool = uv()
    subprocess.run([tool, "venv", "-q", "--python", python, target], check=True)
    into = ["--python", str(target / "bin" / "python")]
    subprocess.run([tool, "pip", "install", "-q", *into, "--require-hashes", "-r", wanted], check=True)
    subprocess.run([tool, "pip", "install", "-q", *into, "--no-deps", "-e", ROOT], check=True)
    _stamp(target, wanted)
    _say(f"{pair.name}: environment made in {time.monotonic() - started:.0f} s")
    return target


def compile_pins(pair: Pair) -> Path:
    """Resolve the pair anew and write its pins, for every platform; returns the file.

    The main pair's file has tools beside Airflow and is compiled from its own ``.in`` file.
    """
    target = pins(pair)
    own = target.with_suffix(".in")
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "pair.in"
        wanted.write_text(
            f"apache-airflow[cncf-kubernetes,postgres]=={pair.airflow}\n"
            f"apache-airflow-providers-cncf-kubernetes=={pair.provider}\n"
        )
        sources = [own] if own.exists() else [wanted, target.with_name("tools.in")]
        oldest = min(other.python for other in (*PAIRS, *COMPARED) if pins(other) == target)
        options = ["--universal", "--generate-hashes", "--no-emit-index-url", "--no-annotate", "--no-header"]
        subprocess.run(
            [uv(), "pip", "compile", "-q", *options, "--python-version", oldest, *sources, "-o", target],
            check=True,
        )
    return target


def packages() -> None:
    """Install the Debian packages that tests need and that are not there; idempotent.

    Only as root on Debian, printing each package first; elsewhere raises MissingError with what to install.
    """
    _install_debian(PACKAGES)


def _install_debian(wanted: dict[str, str]) -> None:
    missing = [name for name, proof in wanted.items() if not Path(proof).exists()]
    if not missing:
        return
    if os.geteuid() != 0 or not Path("/etc/debian_version").exists():
        raise MissingError(f"please install {' '.join(missing)} (names as in Debian 12)")
    for name in missing:
        _say(f"installing Debian package {name}")
    _apt("update", "-qq")
    # Neither server is to be started by its package: every test starts its own.
    policy = Path("/usr/sbin/policy-rc.d")
    ours = not policy.exists()
    if ours:
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
    try:
        _apt("install", "-y", "-qq", "--no-install-recommends", *missing)
    finally:
        if ours:
            policy.unlink()


def _apt(*arguments: str) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", *arguments], check=True, env=quiet, stdout=subprocess.DEVNULL)


def _key(wanted: Path) -> str:
    # the folder's own path belongs to the key: the editable install points at this checkout
    return hashlib.sha256(wanted.read_bytes() + str(ROOT).encode()).hexdigest()


def _fresh(target: Path, wanted: Path) -> bool:
    stamp = target / ".stamp"
    return stamp.exists() and stamp.read_text() == _key(wanted)


def _stamp(target: Path, wanted: Path) -> None:
    (target / ".stamp").write_text(_key(wanted))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(arguments: list[str]) -> int:
    match arguments:
        case ["ensure", text]:
            print(ensure(find(text)))
        case ["compile", *texts]:
            chosen = [find(text) for text in texts] or [*PAIRS, *COMPARED]
            for target in dict.fromkeys(pins(pair) for pair in chosen):
                pair = next(pair for pair in chosen if pins(pair) == target)
                print(f"{pair.name}: {compile_pins(pair).relative_to(ROOT)}")
        case ["packages"]:
            packages()
        case ["pairs"]:
            for pair in PAIRS:
                print(f"{pair.key:22} {interpreter(pair.python) or f'no Python {pair.python} here: not run'}")
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (MissingError, UnknownPairError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
