# SPDX-License-Identifier: Apache-2.0
"""Pods of earlier tries that are not followed: put away before a fresh one is made."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_steadfast.durable_pod import deletion, ended
from airflow_steadfast.kube import pods

try:
    from airflow.sdk.exceptions import AirflowFailException
except ImportError:  # Airflow 2, and the first versions of 3
    from airflow.exceptions import AirflowFailException

if TYPE_CHECKING:
    from airflow_steadfast.durable_pod.lookup import Answer
    from airflow_steadfast.durable_pod.session import Session

log = logging.getLogger("airflow_steadfast.durable_pod")


class LostResultError(AirflowFailException):
    """The work is done, its XCom cannot be had, and doing it again was ruled out. No retry follows."""


def put_all_away(session: Session, answer: Answer) -> None:
    """Deal with the old pods of an answer that led to none to follow.

    Raises LostResultError for a pod whose result is lost where ``on_lost_xcom`` is ``fail``; the pod
    stays as it is then. A pod that cannot be put away is a log line.
    """
    if answer.lost is not None:
        if session.chosen("on_lost_xcom") == "fail":
            raise LostResultError(lost_result(pods.describe(answer.lost)))
        log.warning(
            "pod %s has done its work, but its XCom was lost with the container that served it: the work is "
            "done again (on_lost_xcom=rerun)",
            pods.describe(answer.lost),
        )
        _put_away(session, answer.lost)
    for pod in answer.leftovers:
        _put_away(session, pod)


def lost_result(which: str) -> str:
    """Return the message for a result that cannot be had any more."""
    return (
        f"pod {which} has done its work, but its XCom cannot be had any more, and on_lost_xcom=fail forbids "
        "to do it again. Clear the task to run it anew, or use do_xcom_push=False"
    )


def _put_away(session: Session, pod: Any) -> None:
    """Stamp and delete an ended pod as its try would have, delete a live one. Never raises."""
    if ended.outcome(session.operator, pod) == "live":
        log.info("the task was cleared since pod %s was made: it is deleted", pods.describe(pod))
        deletion.delete_quietly(session.operator, pod)
        return
    log.info("pod %s of an earlier try has ended, a fresh one is made", pods.describe(pod))
    session.operator.patch_already_checked(pod, reraise=False)
    session.operator.process_pod_deletion(pod, reraise=False)
