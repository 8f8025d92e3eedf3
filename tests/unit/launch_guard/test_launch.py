# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
import time
from datetime import datetime, timedelta, timezone

import pytest

from airflow_steadfast.launch_guard.entry import Entry
from airflow_steadfast.launch_guard.launch import Launch, LaunchBook, LaunchId, PodRef

QUEUED = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=timezone.utc)
POD = PodRef("airflow", "worker-a")


def entry(name="a", **more):
    return Entry([name], Launch(name, 1, key=None), **more)


def test_the_text_is_one_line_and_the_same_for_the_same_moment():
    launch = LaunchId("a", 2, QUEUED)
    assert launch.text() == "a try=2 queued=2026-01-02T03:04:05.000678Z requeue=0"
    elsewhere = QUEUED.astimezone(timezone(timedelta(hours=5)))
    assert LaunchId("a", 2, elsewhere).text() == launch.text()
    assert LaunchId("dag/task/run\nwith a line/-1", 1, None, 3, "n").text() == (
        "dag/task/run with a line/-1 try=1 queued=- requeue=3 nonce=n"
    )


def test_the_text_does_not_depend_on_the_machines_time_zone(monkeypatch):
    text = LaunchId("a", 2, QUEUED).text()
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        elsewhere = LaunchId("a", 2, QUEUED).text()
    time.tzset()
    assert elsewhere == text


def test_a_moment_without_a_zone_is_taken_as_it_is():
    assert LaunchId("a", 2, QUEUED.replace(tzinfo=None)).text() == LaunchId("a", 2, QUEUED).text()


def test_the_digest_fits_the_end_of_a_pod_name_and_tells_launches_apart():
    launches = [
        LaunchId("a", 1, QUEUED),
        LaunchId("b", 1, QUEUED),
        LaunchId("a", 2, QUEUED),
        LaunchId("a", 1, QUEUED + timedelta(microseconds=1)),
        LaunchId("a", 1, None),
        LaunchId("a", 1, QUEUED, requeue=1),
        LaunchId("a", 1, QUEUED, nonce="x"),
    ]
    digests = [launch.digest() for launch in launches]
    assert len(set(digests)) == len(launches)
    assert all(re.fullmatch("[a-z2-7]{10}", digest) for digest in digests)
    assert digests[0] == "2sxfc6t4hm"


def test_an_order_without_a_row_key_is_looked_up_by_its_id():
    assert Launch("a", 1, key=None).row_key == "a"
    assert Launch("d/t/r/-1", 1, key=None, row_key=("d", "t", "r", -1)).row_key == ("d", "t", "r", -1)
    assert Launch("a", 1, key=None, token_expires_at=5).identity == Launch("a", 1, key="x").identity


def test_a_key_stands_for_its_newest_launch_and_falls_back_to_the_one_before():
    book = LaunchBook()
    first, second = entry(), entry()
    assert book.current("key") is None
    book.begin("key", first)
    book.begin("key", second)
    book.forget("key", first)
    assert book.current("key") is second
    book.begin("key", first)
    assert book.current("key") is first
    book.forget("key", first)
    book.forget("key", first)
    assert book.current("key") is second
    book.forget("key", second)
    assert book.current("key") is None
    book.forget("key", second)
    book.forget("never heard of", second)


def test_a_pod_is_that_of_any_launch_of_any_key():
    book = LaunchBook()
    assert not book.has_pod(POD)
    book.begin("key", entry())
    assert not book.has_pod(POD)
    of_pod = entry(pod=POD)
    book.begin("another", of_pod)
    book.begin("another", entry())
    assert book.has_pod(POD)
    assert not book.has_pod(PodRef("airflow", "worker-b"))
    book.forget("another", of_pod)
    assert not book.has_pod(POD)


def test_a_launch_that_begins_again_is_current_and_kept_once():
    book = LaunchBook()
    first, second = entry(), entry()
    for one in (first, second, first):
        book.begin("key", one)
    assert book.current("key") is first
    book.forget("key", first)
    assert book.current("key") is second


def test_a_launch_is_found_by_its_job_object_not_by_an_equal_one():
    book = LaunchBook()
    first, second = entry(), entry()
    book.begin("key", first)
    book.begin("key", second)
    assert first.job == second.job
    assert book.of_job("key", first.job) is first
    assert book.of_job("key", second.job) is second
    assert book.of_job("key", ["a"]) is None
    assert book.of_job("other", first.job) is None


def test_a_launch_is_found_by_its_pod_and_by_its_former_pods():
    book = LaunchBook()
    first, second = entry(pod=POD), entry(pod=PodRef("airflow", "worker-b"))
    book.begin("key", first)
    book.begin("key", second)
    assert book.of_pod("key", POD) is first
    assert book.of_pod("key", PodRef("other", "worker-a")) is None
    assert book.of_pod("other", POD) is None
    second.former_pods.add(POD)
    assert book.of_pod("key", POD) is second


@pytest.mark.parametrize(("live_count", "forgotten"), [(1, True), (500, False), (499, True)])
def test_dead_keys_are_forgotten_once_there_are_many(live_count, forgotten):
    book = LaunchBook()
    for number in range(2_000):
        book.begin(number, entry(str(number)))
    book.prune(lambda: {5}, live_count=live_count)
    assert book.current(5) is not None
    assert (book.current(6) is None) is forgotten


def test_all_launches_of_a_key_are_listed_and_the_list_is_the_callers_own():
    book = LaunchBook()
    first, second = entry(), entry()
    book.begin("key", first)
    book.begin("key", second)
    book.begin("other", entry())
    found = book.all("key")
    assert list(found) == [first, second]
    assert not book.all("never heard of")
    for one in found:
        book.forget("key", one)
    assert book.current("key") is None
