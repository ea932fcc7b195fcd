"""`python -m triomq.dledger`: who leads, handing over, and conversions, as an operator calls them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from dledger_processes import GROUP, Members
from fake_clock import FakeClock
from store_support import message, small_settings

from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep import offline

PROGRAM = [sys.executable, "-m", "triomq.dledger"]


def called(*words: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([*PROGRAM, *words], capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stderr
    return done


def agreed(at: list[str]) -> list[list[str]]:
    """Return the rows of `members` once all members name one leader: one that has just started may name none yet."""
    while True:
        header, *rows = [line.split() for line in called("members", *at).stdout.splitlines()]
        assert header[:6] == ["MEMBER", "ADDRESS", "BROKER", "REACHABLE", "ROLE", "LEADER"]
        if len({row[5] for row in rows}) == 1 and rows[0][5] != "-":
            return rows


def test_members_are_shown_and_the_leadership_is_handed_over(tmp_path: Path) -> None:
    members = Members(tmp_path, "ASYNC_FLUSH")
    at = ["--group", GROUP, "--peers", members.peers]
    try:
        for member in members.addresses:
            members.start(member)
        called("append", *at, "one")
        rows = agreed(at)
        assert [row[:4] for row in rows] == [[name, where, "-", "yes"] for name, where in members.addresses.items()]
        leader = rows[0][5]
        assert [row[4] for row in rows] == ["leader" if name == leader else "follower" for name in members.addresses]
        other = next(name for name in members.addresses if name != leader)
        assert called("transfer", *at, "--to", other).stdout == f"{other} leads {GROUP}\n"
        assert called("transfer", *at, "--to", other).stdout == f"{other} leads {GROUP}\n", "it leads already"
        assert agreed(at)[0][5] == other
        assert "is not in --peers: there are n0, n1, n2" in called("transfer", *at, "--to", "n7", status=255).stderr
        members.kill(leader)
        shown = [line.split() for line in called("members", *at).stdout.splitlines()[1:]]
        assert [row[3] for row in shown] == ["no" if name == leader else "yes" for name in members.addresses]
        refused = called("transfer", *at, "--to", leader, status=255)
        assert f"dledger: {leader} does not lead: " in refused.stderr
        assert refused.stderr.count("\n") == 1
    finally:
        members.end()
    assert "no member of kills responds" in called("members", *at, status=255).stderr


async def test_a_store_is_converted_there_and_back_at_the_command_line(tmp_path: Path) -> None:
    plain, ledger, back = (tmp_path / name for name in ("plain", "ledger", "back"))
    store = DefaultMessageStore(small_settings(plain), now_ms=FakeClock(step_ms=1))
    await store.load()
    for number in range(50):
        store.append(message(body=b"%d" % number, keys=f"k{number}"))
    store.commit()
    await store.close()
    conf = tmp_path / "broker.conf"
    conf.write_text("mappedFileSizeCommitLog=4096\nmappedFileSizeConsumeQueue=200\nmaxHashSlotNum=50\nmaxIndexNum=60\n")
    words = ["--self", "n0", "-c", str(conf)]
    done = called("convert-to-ledger", str(plain), str(ledger), *words)
    assert done.stdout.startswith(f"50 records converted, 1 queues made, in {ledger}\n")
    assert "Copy " in done.stdout
    called("convert-to-plain", str(ledger), str(back), *words)
    found = offline.verify(small_settings(back))
    assert (found.records, found.queue_entries, found.problems) == (50, 50, [])
    again = called("convert-to-plain", str(ledger), str(back), *words, status=253)
    assert again.stderr == f"dledger: {back} is not empty; choose a new directory, or remove what is in it\n"
