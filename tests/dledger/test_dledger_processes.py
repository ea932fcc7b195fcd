"""Members as processes: kills lose nothing that was acknowledged, and every log is the same at the end."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import trio
from dledger_processes import GROUP, Members, check, kill_rounds

PROJECT = Path(__file__).parents[2]
SEED = 11


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_nothing_acknowledged_is_lost_when_members_are_killed(tmp_path: Path, flush: str) -> None:
    members = Members(tmp_path, flush)
    try:
        load = trio.run(partial(kill_rounds, members, 10, SEED))
        assert set(members.stop().values()) == {0}
    finally:
        members.end()
    assert check(members, load.acknowledged) >= len(load.acknowledged)


@pytest.mark.slow
@pytest.mark.timeout(660)
def test_nothing_acknowledged_is_lost_when_members_are_cut_off() -> None:
    """The leader and a follower, in both directions and in one, in network namespaces."""
    ended = subprocess.run(
        [str(PROJECT / "bin" / "dev" / "soak-dledger"), "3", "--partitions", "--fast"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if ended.returncode == 2 and "cannot make partitions here" in ended.stderr:
        pytest.skip(ended.stderr.strip())
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "equal at all members" in ended.stdout


def test_a_group_takes_appends_and_gives_entries_back_at_the_command_line(tmp_path: Path) -> None:
    members = Members(tmp_path, "ASYNC_FLUSH")
    client = [sys.executable, "-m", "triomq.dledger"]
    at = ["--group", GROUP, "--peers", members.peers]
    try:
        for member in members.addresses:
            members.start(member)
        appended = subprocess.run([*client, "append", *at, "one", "two"], capture_output=True, text=True, check=True)
        read = subprocess.run([*client, "get", *at, "0", "1"], capture_output=True, text=True, check=True)
        assert set(members.stop().values()) == {0}
    finally:
        members.end()
    assert appended.stdout.split() == ["0", "1"]
    assert [line.split()[::2] for line in read.stdout.splitlines()] == [["0", "one"], ["1", "two"]]


@pytest.mark.parametrize(
    ("peers", "said"),
    [
        ("n1-127.0.0.1:1", "dLegerSelfId is 'n0', but dLegerPeers has only n1: choose one or add it"),
        ("n0-127.0.0.1", "write a host and a port"),
    ],
)
def test_a_member_that_is_not_in_the_list_does_not_start(tmp_path: Path, peers: str, said: str) -> None:
    command = [sys.executable, "-m", "triomq.dledger", "member", "--group", GROUP, "--self", "n0", "--peers", peers]
    ended = subprocess.run([*command, "--store", str(tmp_path)], capture_output=True, text=True, check=False)
    assert ended.returncode == 253
    assert said in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_of_two_processes_on_one_directory_the_second_says_so(tmp_path: Path) -> None:
    members = Members(tmp_path, "ASYNC_FLUSH")
    try:
        members.start("n0")
        with pytest.raises(AssertionError, match="is in use by another process"):
            members.start("n0")
    finally:
        members.end()
