# SPDX-License-Identifier: Apache-2.0
"""A silent peer is cut when its time is over, and nothing else is."""

from __future__ import annotations

import os
import socket
import threading

import pytest

from airflow_steadfast.launch_guard import cut_off
from airflow_steadfast.launch_guard.cut_off import CutOff


@pytest.fixture
def peers():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(10)
        yield ours, theirs


def wait_for(peer):
    """What a driver does for an answer: an end of the stream is a lost connection."""
    if not peer.recv(1):
        raise ConnectionError("lost")


def ask(peer, seconds):
    with CutOff(seconds) as bound:
        bound.watch(peer)
        wait_for(peer)


def test_a_silent_peer_is_cut(peers):
    with pytest.raises(TimeoutError, match=r"silent for 0\.1 s"):
        ask(peers[0], 0.1)


def test_a_connection_that_comes_late_is_cut_at_once(peers):
    with CutOff(60) as bound:
        bound.fire()
        bound.watch(peers[0])
        with pytest.raises(ConnectionError):
            wait_for(peers[0])


def test_an_answer_in_time_is_left_alone_and_so_is_the_connection_afterwards(peers):
    with CutOff(0.1) as bound:
        bound.watch(peers[0])
        peers[1].send(b"1")
        wait_for(peers[0])
    bound.fire()
    peers[1].send(b"2")
    assert peers[0].recv(1) == b"2"


def test_an_error_of_its_own_is_passed_on(peers):
    peers[1].close()
    with pytest.raises(ConnectionError):
        ask(peers[0], 60)


def test_what_has_no_socket_is_left_alone():
    with CutOff(60) as bound:
        bound.watch(object())


def test_one_thread_serves_all_and_ends_when_it_is_idle(monkeypatch):
    monkeypatch.setattr(cut_off, "TICK", 0.01)
    monkeypatch.setattr(cut_off, "_IDLE", 0.05)
    sentry = cut_off._Sentry()
    monkeypatch.setattr(cut_off, "_sentry", sentry)
    before = threading.active_count()
    for _ in range(20):
        with CutOff(60), CutOff(60):
            assert threading.active_count() == before + 1
    thread = sentry._thread
    thread.join(10)
    assert not thread.is_alive()
    with CutOff(60):
        assert threading.active_count() == before + 1


def test_a_forked_child_has_a_thread_of_its_own(peers):
    with CutOff(60):
        child = os.fork()
        if not child:
            try:
                ask(peers[0], 0.1)
            except TimeoutError:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_process_that_can_start_no_thread_is_told_each_time(monkeypatch):
    sentry = cut_off._Sentry()
    monkeypatch.setattr(cut_off, "_sentry", sentry)

    def refuse(_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(2):
        with pytest.raises(RuntimeError), CutOff(1):
            pass
