"""A group of three members without a broker, as processes on ports of their own, and rounds of kills under appends."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from random import Random

import trio
from free_ports import free_port

from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.dledger.wire import codes
from triomq.remoting.client import open_client
from triomq.store.disk.files import Files

GROUP = "kills"
FILE_BYTES = 64 * 1024
WORKERS = 8
AGREE_SECONDS = 60


class Members:
    """The processes. Their directories outlive them. `inside`: the command that runs another where a member runs.
    `is_fast`: they use dLegerFastElection."""

    def __init__(
        self,
        directory: Path,
        flush: str,
        addresses: dict[str, str] | None = None,
        inside: dict[str, list[str]] | None = None,
        *,
        is_fast: bool = False,
    ) -> None:
        self.directory = directory
        self.addresses = addresses or {f"n{at}": f"127.0.0.1:{free_port()}" for at in range(3)}
        self._inside = inside or {}
        self._flush = flush
        self.is_fast = is_fast
        self._processes: dict[str, subprocess.Popen[str]] = {}

    @property
    def peers(self) -> str:
        return ";".join(f"{member}-{address}" for member, address in self.addresses.items())

    def start(self, member: str) -> None:
        """Start a process, and wait until it serves."""
        command = [
            *self._inside.get(member, []),
            sys.executable,
            "-m",
            "triomq.dledger",
            "member",
            "--group",
            GROUP,
            "--self",
            member,
        ]
        command += ["--allow", "*"] if self._inside else []  # the clients have a host of their own
        command += ["--peers", self.peers, "--store", str(self.directory), "--flush", self._flush]
        command += ["--file-bytes", str(FILE_BYTES), *(["--fast-election"] if self.is_fast else [])]
        with (self.directory / f"{member}.log").open("a") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        if "serves" not in process.stdout.readline():
            process.kill()
            process.communicate()
            raise AssertionError(f"{member} did not start: {self.log_of(member)}")
        self._processes[member] = process

    def kill(self, member: str) -> None:
        process = self._processes.pop(member)
        process.kill()
        process.communicate()

    def stop(self) -> dict[str, int]:
        """Stop all in an orderly way. Return their exit codes."""
        for process in self._processes.values():
            process.send_signal(signal.SIGTERM)
        found = {}
        for member, process in self._processes.items():
            process.communicate(timeout=30)
            found[member] = process.returncode
        self._processes.clear()
        return found

    def end(self) -> None:
        for member in list(self._processes):
            self.kill(member)

    def log_of(self, member: str) -> str:
        return (self.directory / f"{member}.log").read_text()

    def has_entry(self, member: str, index: int) -> bool:
        """Return whether a running member has written an entry, as its index file says."""
        with (self.directory / f"dledger-{member}" / "index" / f"{0:020}").open("rb") as file:
            file.seek(index * 32)
            unit = file.read(32)
        return unit[:4] == (1).to_bytes(4, "big") and unit[16:24] == index.to_bytes(8, "big")

    @contextmanager
    def ledger(self, member: str) -> Iterator[Ledger]:
        """Open the ledger of a member that does not run."""
        ledger = Ledger(Files(), f"{self.directory}/dledger-{member}", FILE_BYTES, is_whole=lambda entry: True)
        ledger.open()
        try:
            yield ledger
        finally:
            ledger.close()


class Load:
    """Clients that append until they are stopped, each again `pause_seconds` after its response. `acknowledged`: index
    -> body of what the group has promised."""

    def __init__(self, members: Members, group: GroupClient, name: str, pause_seconds: float) -> None:
        self._pause_seconds = pause_seconds
        self._members = members
        self._group = group
        self._name = name
        self._number = 0
        self._news = trio.Event()
        self.acknowledged: dict[int, bytes] = {}
        self.refused = 0
        self.longest_gap = 0.0
        self._last_at = trio.current_time()

    async def work(self) -> None:
        while True:
            self._number += 1
            body = f"{self._name} {self._number} ".encode() + b"." * (self._number % 400)
            try:
                index = await self._group.append(body)
            except GroupFailed:
                self.refused += 1
                await trio.sleep(0.02)
                continue
            assert index not in self.acknowledged, f"index {index} was given twice"
            self.acknowledged[index] = body
            self.longest_gap = max(self.longest_gap, trio.current_time() - self._last_at)
            self._last_at = trio.current_time()
            self._news.set()
            await trio.sleep(self._pause_seconds)

    async def wait(self, count: int, seconds: float = AGREE_SECONDS) -> None:
        """Wait until that many more appends are acknowledged."""
        goal = len(self.acknowledged) + count
        with trio.move_on_after(seconds):
            while len(self.acknowledged) < goal:
                self._news = trio.Event()
                await self._news.wait()
            return
        logs = "\n".join(f"{member}: {self._members.log_of(member)}" for member in self._members.addresses)
        raise AssertionError(f"no {count} appends were acknowledged within {seconds:g} s\n{logs}")


@asynccontextmanager
async def appending(members: Members, name: str, pause_seconds: float = 0.0) -> AsyncIterator[tuple[GroupClient, Load]]:
    """Start all members, and let clients append until the block ends and one more append is acknowledged."""
    for member in members.addresses:
        members.start(member)
    async with open_client() as client, trio.open_nursery() as nursery:
        group = GroupClient(client, GROUP, members.addresses)
        load = Load(members, group, name, pause_seconds)
        for _ in range(WORKERS):
            nursery.start_soon(load.work)
        await load.wait(1)
        yield group, load
        await load.wait(1)
        nursery.cancel_scope.cancel()


async def kill_rounds(members: Members, rounds: int, seed: int) -> Load:
    """Kill members while clients append: mostly the leader, sometimes two at once. Return what was acknowledged, with
    all members running and every log as long as the leader's."""
    choose = Random(seed)
    async with appending(members, f"seed {seed}") as (group, load):
        for _ in range(rounds):
            await load.wait(choose.randint(1, 60))
            victims = await _choose_victims(group, members, choose)
            for member in victims:
                members.kill(member)
            if len(victims) == 1 and choose.random() < 0.5:
                await load.wait(choose.randint(1, 60))
            for member in victims:
                await trio.to_thread.run_sync(members.start, member)
    await agree(members, load)
    return load


async def _choose_victims(group: GroupClient, members: Members, choose: Random) -> list[str]:
    names = list(members.addresses)
    if choose.random() < 0.2:
        return choose.sample(names, 2)
    if choose.random() < 0.3:
        return [choose.choice(names)]
    return [await group.find_leader(AGREE_SECONDS)]


async def agree(members: Members, load: Load) -> None:
    """Append once more, and wait until every member has that entry."""
    async with open_client() as client:
        group = GroupClient(client, GROUP, members.addresses)
        with trio.fail_after(AGREE_SECONDS):
            while True:
                try:
                    await group.find_leader(AGREE_SECONDS)
                    last = await group.append(b"the last one")
                    break
                except GroupFailed as error:
                    assert error.code != codes.UNEXPECTED_ARGUMENT
            load.acknowledged[last] = b"the last one"
            for member in members.addresses:
                while not members.has_entry(member, last):  # noqa: ASYNC110, another process writes
                    await trio.sleep(0.05)


def check(members: Members, acknowledged: dict[int, bytes]) -> int:
    """Check that stopped members have equal logs, to the byte, with all that was acknowledged. Return the number of
    entries."""
    logs = {}
    for member in members.addresses:
        with members.ledger(member) as ledger:
            for index, body in acknowledged.items():
                assert ledger.begin_index <= index <= ledger.end_index, f"{member} lost entry {index}: {body!r}"
                assert ledger.entry(index).body == body, f"{member} has another entry {index}"
            logs[member] = _bytes_of(members.directory / f"dledger-{member}", ledger)
            count = ledger.end_index - ledger.begin_index + 1
    first, *others = logs.values()
    assert all(other == first for other in others), "the logs differ"
    return count


def _bytes_of(directory: Path, ledger: Ledger) -> bytes:
    files = sorted((directory / "data").iterdir())
    return b"".join(file.read_bytes() for file in files)[: ledger.end_pos]
