# SPDX-License-Identifier: Apache-2.0
"""``make demo``: from a fresh clone to real numbers from a real Kubernetes.

Exit code 0 when every story came out as told, 1 when one did not, 2 when the stage could not be set.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from tests.cluster.demo import install, report
from tests.cluster.demo.steps import Progress
from tests.cluster.stories import (
    NAMESPACE,
    Kubectl,
    KubectlError,
    StoryFailedError,
    fallback,
    open_stage,
    reattach,
    restarts,
    stale,
    tidy,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.stories import Outcome, Stage

_ALERT = "SteadfastStaleDropBurn"
_ALERT_SECONDS = 150

STORIES = """\
Three stories will be told on it, each checked as it is told:
  1  24 tasks wait while a quota admits no worker pod; the run is cleared; the quota is raised.
  2  a KubernetesPodOperator's worker is killed with SIGKILL; the retry must find the running pod.
  3  the same, and the stored identity is removed while the worker is down.
Between them the sidecar and the scheduler are killed: no count may be lost or doubled."""

UPSTREAM = """\
    Unpatched Airflow 3.3.2 with provider 10.25.0, in the same story told four times, launched no pod for the
    old identities either. What differs: it asks the database once for each dropped workload; a dropped one
    uses up the pod creation of a scheduler loop (of 40, the first fresh pod came 34 to 36 s after the clear);
    one database error in that query stops the scheduler; and none of it is counted anywhere."""


def main() -> int:
    """Set the stage and tell the stories."""
    options = _options()
    progress = Progress()
    try:
        _set_the_stage(progress, options.workers_at_once, start=not options.no_cluster)
        if options.install_only:
            return 0
        with open_stage() as stage:
            told = _tell(progress, stage, options.workers_at_once)
            _close(progress, stage, told)
    except StoryFailedError as failed:
        print(f"\nA story did not come out as told.\n  {failed}", file=sys.stderr)
        return 1
    except (install.InstallError, KubectlError) as failed:
        print(f"\nThe demo could not go on.\n  {failed}", file=sys.stderr)
        return 2
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--no-cluster", action="store_true", help="the cluster is there, do not start it")
    parser.add_argument("--install-only", action="store_true", help="install the release and tell no story")
    parser.add_argument("--workers-at-once", type=int, default=4, help="the quota that story 1 raises (4)")
    return parser.parse_args()


def _set_the_stage(progress: Progress, workers_at_once: int, *, start: bool) -> None:
    if start:
        with progress.step("cluster"):
            install.start_cluster()
    kubectl = Kubectl.of_the_cluster(NAMESPACE)
    with progress.step("helm upgrade --install airflow ./chart"):
        install.prepare_namespaces(kubectl, workers_at_once)
        install.install_release(kubectl)
        install.install_tools(kubectl)
    with progress.step("Airflow, Prometheus and the ledger ready"):
        install.wait_until_ready(kubectl, progress.say)


def _tell(progress: Progress, stage: Stage, workers_at_once: int) -> list[Outcome]:
    with progress.step("Dags parsed, sidecar scraped"):
        tidy(stage, workers_at_once)
        install.check_sidecar_is_scraped(stage.metrics.sidecar_up)
    print(f"\n{STORIES}\n", flush=True)
    plot: list[tuple[str, Callable[[], Outcome], str]] = [
        ("story 1: work cleared while it waited", lambda: stale.tell(stage, workers_at_once), UPSTREAM),
        ("between stories: sidecar and scheduler killed", lambda: restarts.tell(stage), ""),
        ("story 2: the worker killed, the pod found again", lambda: reattach.tell(stage), ""),
        ("between stories: sidecar and scheduler killed again", lambda: restarts.tell(stage), ""),
        ("story 3: the identity lost as well", lambda: fallback.tell(stage), ""),
    ]
    told = []
    for name, play, remark in plot:
        with progress.step(name):
            outcome = play()
            print(report.outcome(outcome), flush=True)
            if remark:
                print(remark, flush=True)
            told.append(outcome)
    return told


def _close(progress: Progress, stage: Stage, told: list[Outcome]) -> None:
    with progress.step("the alert"):
        state = _alert_state(stage)
        progress.say(f"  {_ALERT} is {state}")
    print(f"\nAs Prometheus answers ({len(told)} parts told as written):\n")
    print(report.metrics(stage.metrics.totals()))
    print(f"\n{report.alerts(stage.metrics.alert_rules())}\n")
    print(report.where_to_look())
    rows = [(name, f"{took:.0f} s") for name, took in progress.steps]
    print(f"\n{report.table(rows, ('step', 'time'))}")
    print(f"All stories came out as told, in {progress.elapsed:.0f} s.")


def _alert_state(stage: Stage) -> str:
    """Wait for the burn alert, which story 1 must set off; raises StoryFailedError where it stays silent."""
    deadline = time.monotonic() + _ALERT_SECONDS
    while True:
        states = {rule["state"] for rule in stage.metrics.alert_rules() if rule["name"].startswith(_ALERT)}
        if not states:
            raise StoryFailedError(f"Prometheus has no rule {_ALERT}")
        if "firing" in states:
            return "firing"
        if time.monotonic() > deadline:
            if "pending" in states:
                return "pending"
            raise StoryFailedError(f"{_ALERT}: expected pending or firing after story 1, seen {states}")
        time.sleep(3)


if __name__ == "__main__":
    sys.exit(main())
