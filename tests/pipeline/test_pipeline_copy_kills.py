"""A copy as a process that is killed at any moment: nothing is lost, and with --exactly-once nothing is there twice."""

from __future__ import annotations

import random
import signal
import subprocess
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from copied import Admin, MessageQueue, arguments, bodies, create, send, started
from free_ports import free_port

from triomq.testing import LocalCluster

IN_FLIGHT = 256
QUEUES = 2
TEXTS = [f"m{number}" for number in range(1500)]
DEADLINE_SECONDS = 60


def stored(cluster: LocalCluster, topic: str) -> int:
    with Admin(name_server=cluster.name_server) as admin:
        if topic not in admin.topics():
            return 0
        return sum(bounds.max_offset for bounds in admin.topic_stats(topic).offset_table.values())


def wait_until_stored(cluster: LocalCluster, topic: str, count: int, job: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while stored(cluster, topic) < count:
        assert job.poll() is None, job.communicate()
        assert time.monotonic() < deadline, f"only {stored(cluster, topic)} messages arrived"


@pytest.mark.parametrize("exactly_once", [False, True], ids=["at_least_once", "exactly_once"])
def test_a_copy_that_is_killed_loses_nothing(
    east: LocalCluster, west: LocalCluster, tmp_path: Path, exactly_once: bool
) -> None:
    topic = f"Killed{exactly_once:d}"
    create(east, topic, QUEUES)
    send(east, topic, TEXTS, QUEUES)
    words = arguments(east, west, tmp_path, "--topics", topic, *["--exactly-once"] * exactly_once)
    rng = random.Random(1)
    kills = 3
    for number in range(kills):
        job = started([*words, "--rate", "2000"])
        wait_until_stored(west, topic, len(TEXTS) * (number + 1) // (kills + 1) - rng.randrange(100), job)
        job.kill()
        job.communicate()
    job = started([*words, "--once"])
    _, err = job.communicate(timeout=DEADLINE_SECONDS)
    assert (job.returncode, err) == (0, "")
    ours, theirs = bodies(east, topic), bodies(west, topic)
    for number, sent in ours.items():
        if exactly_once:
            assert theirs[number] == sent
            continue
        counts = Counter(theirs[number])
        assert set(counts) == set(sent)
        assert len(theirs[number]) - len(sent) <= kills * IN_FLIGHT
        assert list(dict.fromkeys(theirs[number])) == sent, "first copies are in order"


def test_a_copy_runs_until_it_is_asked_to_end(east: LocalCluster, west: LocalCluster, tmp_path: Path) -> None:
    port = free_port()
    create(east, "Live1", 1)
    with Admin(name_server=east.name_server) as admin:
        admin.create_group("live")
    quick = ["--refresh-seconds", "0.1", "--offsets-seconds", "0.1", "--metrics-port", str(port)]
    job = started(arguments(east, west, tmp_path, "--topics", "Live*", "--groups", "live", *quick))
    try:
        send(east, "Live1", ["a", "b"], 1)
        wait_until_stored(west, "Live1", 2, job)
        create(east, "Live2", 1)  # new topics are found
        send(east, "Live2", ["c"], 1)
        wait_until_stored(west, "Live2", 1, job)
        with Admin(name_server=east.name_server) as admin:
            admin.set_offset("live", MessageQueue("Live1", next(iter(east.brokers)), 0), 1)
        there = MessageQueue("Live1", next(iter(west.brokers)), 0)
        deadline = time.monotonic() + DEADLINE_SECONDS
        with Admin(name_server=west.name_server) as admin:
            while admin.offset("live", there) != 1:
                assert time.monotonic() < deadline
        page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
        assert 'triomq_copy_copied_messages_total{topic="Live1"} 2\n' in page
        assert 'triomq_copy_lag_messages{topic="Live2"} 0\n' in page
        job.send_signal(signal.SIGTERM)
        out, err = job.communicate(timeout=DEADLINE_SECONDS)
    finally:
        job.kill()
    assert (job.returncode, err) == (0, "")
    assert out == "3 messages of 2 topics copied, offsets of 1 groups\n"


def test_a_second_copy_with_the_same_state_is_refused(east: LocalCluster, west: LocalCluster, tmp_path: Path) -> None:
    create(east, "Twice", 1)
    send(east, "Twice", ["a"], 1)
    words = arguments(east, west, tmp_path, "--topics", "Twice")
    first = started(words)
    try:
        wait_until_stored(west, "Twice", 1, first)
        second = started(words)
        _, err = second.communicate(timeout=DEADLINE_SECONDS)
        assert second.returncode == 2
        assert err == f"mqpipeline copy: --state: another copy is running with {tmp_path}\n"
    finally:
        first.kill()
        first.communicate()
