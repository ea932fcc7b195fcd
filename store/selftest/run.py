"""The self-test of a directory as a user runs it: properties of the disk, speed, and processes killed while they write.

It uses a scratch directory inside of the given one and removes it at the end, also after Ctrl-C. `--seconds` bounds the
time, `--mib` the space. Nothing else in the directory is read or written.
"""

from __future__ import annotations

import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from triomq.store.config import FlushDiskType
from triomq.store.disk.files import Files
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore
from triomq.store.selftest import writing
from triomq.store.selftest.disk_checks import check_disk
from triomq.store.selftest.report import Kills, Report, Speed

Tell = Callable[[str], object]
"""Receives one line of progress."""

MIN_MIB: Final = 64
_MIB: Final = 1024 * 1024
# A record is a little larger than its body; queues and index need about 60 bytes more.
_MESSAGE_BYTES: Final = writing.BODY_BYTES + 256
# A writer first recovers what the previous one left; within the permitted space that takes less than a second.
_START_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a whole self-test: half of the time is for kills, a quarter each for syncs and speed."""

    seconds: float
    mib: int

    @property
    def messages(self) -> int:
        """Return the largest number of messages in one store. Only one store exists at a time."""
        return max(writing.MESSAGES_PER_COMMIT, self.mib * _MIB // 2 // _MESSAGE_BYTES)


def run(directory: Path, limits: Limits, tell: Tell, files: Files | None = None) -> Report:
    """Test `directory`, which must exist. Raises StoreError if it does not or has too little space, OSError if it is
    not writable.
    """
    if not directory.is_dir():
        raise StoreError(f"{directory} is not a directory; create it first, on the disk that the store will use")
    if limits.mib < MIN_MIB:
        raise StoreError(f"--mib {limits.mib} is too little: a self-test needs {MIN_MIB} MiB")
    free_mib = shutil.disk_usage(directory).free // _MIB
    if free_mib < limits.mib:
        raise StoreError(f"{directory} has {free_mib} MiB free, and the self-test may use {limits.mib}; give --mib")
    with tempfile.TemporaryDirectory(prefix="triomq-selftest-", dir=directory) as name:
        scratch = Path(name)
        tell("the disk")
        findings = list(check_disk(files or Files(), scratch, limits.seconds / 4, time.perf_counter))
        modes = list(FlushDiskType)
        speeds = []
        for flush in modes:
            tell(f"speed with {flush.name}")
            each = limits.seconds / 4 / len(modes)
            speeds.append(trio.run(_measure, scratch / "speed", flush, each, limits.messages))
            shutil.rmtree(scratch / "speed")
        kills = [_kill(scratch / "kills", flush, limits, limits.seconds / 2 / len(modes), tell) for flush in modes]
    return Report(findings, speeds, kills)


async def _measure(root: Path, flush: FlushDiskType, seconds: float, most: int) -> Speed:
    store = DefaultMessageStore(writing.scratch_settings(root, flush), now_ms=writing.now_ms)
    await store.load()
    written = 0
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        began = time.perf_counter()
        while not written or (time.perf_counter() - began < seconds and written < most):
            written += len(await writing.write_commit(store, written))
        took = time.perf_counter() - began
        nursery.cancel_scope.cancel()
    await store.close()
    return Speed(flush.name, written, took)


def _kill(root: Path, flush: FlushDiskType, limits: Limits, seconds: float, tell: Tell) -> Kills:
    """Kill one writer after the other on one store until time or space is used up, then check the messages."""
    choose = random.Random(0)  # reproducible moments; the machine adds its own randomness
    acknowledged: set[int] = set()
    kills = first = 0
    end = time.monotonic() + seconds
    while not kills or (time.monotonic() < end and first < limits.messages):
        tell(f"killing writers with {flush.name}: {kills} so far, {len(acknowledged)} messages acknowledged")
        firsts = _run_and_kill(root, flush, first, choose.uniform(0.0, 0.3), limits.messages - first)
        for number in firsts:
            acknowledged.update(range(number, number + writing.MESSAGES_PER_COMMIT))
        # Unacknowledged messages may be in the store, too: their numbers are not used again.
        first = max([first, *firsts]) + 2 * writing.MESSAGES_PER_COMMIT
        kills += 1
    try:
        lost = len(acknowledged - trio.run(_found, root, flush))
        damage = ""
    except ValueError as error:
        lost = 0
        damage = str(error)
    shutil.rmtree(root)
    return Kills(flush.name, kills, len(acknowledged), lost, damage)


def _run_and_kill(root: Path, flush: FlushDiskType, first: int, seconds: float, most: int) -> list[int]:
    """Start a writer and kill it `seconds` after its first commit. Return the first numbers of the commits that it
    acknowledged. Raises StoreError if the writer ends before.
    """
    command = [sys.executable, "-m", "triomq.store.selftest.writing", str(root), flush.name, str(first)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer,
        selectors.DefaultSelector() as selector,
    ):
        assert writer.stdout is not None
        assert writer.stderr is not None
        selector.register(writer.stdout, selectors.EVENT_READ)
        heard = b""
        deadline: float | None = None
        try:
            while heard.count(b"\n") * writing.MESSAGES_PER_COMMIT < most:
                wait = _START_SECONDS if deadline is None else max(0.0, deadline - time.monotonic())
                data = writer.stdout.read1(1 << 16) if selector.select(wait) else b""  # type: ignore[attr-defined]
                if not data:
                    break
                heard += data
                deadline = deadline or time.monotonic() + seconds
        finally:
            writer.send_signal(signal.SIGKILL)
        heard += writer.stdout.read()
        complaint = writer.stderr.read().decode(errors="replace").strip().splitlines()
    if writer.returncode != -signal.SIGKILL:
        raise StoreError(f"the writing process ended unexpectedly: {complaint[-1] if complaint else writer.returncode}")
    return [int(line) for line in heard[: heard.rfind(b"\n") + 1].split()]


async def _found(root: Path, flush: FlushDiskType) -> set[int]:
    store = DefaultMessageStore(writing.scratch_settings(root, flush), now_ms=writing.now_ms)
    await store.load()
    try:
        return writing.stored_numbers(store)
    finally:
        await store.close()
