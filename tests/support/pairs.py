# SPDX-License-Identifier: Apache-2.0
"""The pairs of Airflow and Kubernetes provider that are supported, and how a command line names one.

Standard library only: this is read before anything is installed.
A pair is named ``AIRFLOW[+PROVIDER[+pyPYTHON]]``: ``3.0.6+10.8.2``. What is left out is the newest tested
provider and the first Python of that Airflow; ``3.3.2`` alone is the main pair.
"""

from __future__ import annotations

from dataclasses import dataclass

NEWEST_PROVIDER = "10.25.0"


@dataclass(frozen=True)
class Pair:
    """One Airflow, one provider and the Python that they run on, each as its version's text."""

    airflow: str
    python: str
    provider: str = NEWEST_PROVIDER

    @property
    def name(self) -> str:
        """The text for a person."""
        return f"Airflow {self.airflow}, provider {self.provider}, Python {self.python}"

    @property
    def key(self) -> str:
        """The whole text that ``PAIR=`` takes; also a folder's name."""
        return f"{self.airflow}+{self.provider}+py{self.python}"


MAIN_PAIR = Pair("3.3.2", "3.11")

_TABLE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    # Airflow, Pythons, providers: the oldest, one with and one without the native features, the newest
    ("3.3.2", ("3.11", "3.13"), ("10.20.0", "10.23.0", NEWEST_PROVIDER)),
    ("3.2.2", ("3.12",), ("10.19.0", NEWEST_PROVIDER)),
    ("3.1.8", ("3.11",), ("10.8.2", NEWEST_PROVIDER)),
    ("3.0.6", ("3.11",), ("10.8.2", NEWEST_PROVIDER)),
    ("2.11.2", ("3.11",), ("10.8.2", "10.17.1", NEWEST_PROVIDER)),
)

PAIRS: tuple[Pair, ...] = tuple(
    Pair(airflow, python, provider)
    for airflow, pythons, providers in _TABLE
    for python in pythons
    for provider in reversed(providers)
)
"""Every supported pair, newest Airflow first; the first is ``MAIN_PAIR``."""

COMPARED: tuple[Pair, ...] = (Pair("3.3.2", "3.11", "10.22.0"),)
"""Not of the table: the last provider without a check of its own, which benchmarks compare with."""

OLDER: tuple[Pair, ...] = tuple(pair for pair in PAIRS if pair.airflow != MAIN_PAIR.airflow)
"""The pairs that ``make test`` takes one of beside the main pair."""


class UnknownPairError(ValueError):
    """No such pair; the message lists those that there are."""


def find(text: str) -> Pair:
    """Return the pair that ``text`` names. Raises UnknownPairError where there is none."""
    airflow, _, rest = text.strip().partition("+")
    provider, _, python = rest.partition("+")
    for pair in (*PAIRS, *COMPARED):
        if (
            pair.airflow == airflow
            and pair.provider == (provider or NEWEST_PROVIDER)
            and python in ("", f"py{pair.python}")
        ):
            return pair
    known = "\n  ".join(pair.key for pair in PAIRS)
    raise UnknownPairError(
        f"there is no pair {text!r}. A pair is AIRFLOW, AIRFLOW+PROVIDER or AIRFLOW+PROVIDER+pyPYTHON; "
        f"choose one of\n  {known}"
    )


def of_turn(number: int, candidates: tuple[Pair, ...] = OLDER) -> Pair | None:
    """Return the candidate whose turn it is at commit ``number``; None where there are no candidates."""
    return candidates[number % len(candidates)] if candidates else None
