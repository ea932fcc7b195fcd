"""Kill a writing process repeatedly: bin/dev/soak-kills [KILLS] [--seed N].

Each round forks a child that opens the store, writes, and reports what was acknowledged. It is killed after a random
time, also during recovery. From time to time the parent opens the store and compares its content with the reports:

* every acknowledged message is there, with its bytes;
* nothing is there twice, and queue offsets have no gap;
* every message is found by its key, once.

Bodies follow from the message's number, so that an altered body is detected.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import selectors
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import structlog
import trio
from store_support import message, open_store

from triomq.protocol import record
from triomq.store.config import FlushDiskType
from triomq.store.message_store import DefaultMessageStore

QUEUES = 4
# (log file size, largest body): small records, records of about a page, records that almost fill a file.
SHAPES = ((1 << 16, 60), (1 << 18, 4000), (1 << 17, 30_000))
_BYTES = random.Random(5).randbytes(1 << 16)


def body_of(number: int, largest: int) -> bytes:
    size = number * 7919 % (largest + 1)
    return _BYTES[number % 1000 : number % 1000 + size]


def settings(shape: tuple[int, int], flush: FlushDiskType) -> dict[str, Any]:
    return {
        "mapped_file_size_commit_log_bytes": shape[0],
        "mapped_file_size_consume_queue_bytes": 4000,
        "max_hash_slot_num": 500,
        "max_index_num": 3000,
        "max_message_size_bytes": shape[0] // 2,
        "flush_disk_type": flush,
        "flush_interval_consume_queue_ms": 20,
        "flush_consume_queue_thorough_interval_ms": 90,
        "flush_interval_commit_log_ms": 10,
    }


class Writer:
    """The child: it writes until it is killed. It prints a line "number number ..." when these messages are
    acknowledged.
    """

    def __init__(self, store: DefaultMessageStore, first_number: int, largest: int, out_fd: int) -> None:
        self.store = store
        self.number = first_number
        self.largest = largest
        self.out_fd = out_fd

    def say(self, numbers: list[int], error: Exception | None) -> None:
        if error is None:
            os.write(self.out_fd, (" ".join(map(str, numbers)) + "\n").encode())

    async def run(self) -> None:
        is_sync = self.store.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH
        mark = self.store.flushed if is_sync else self.store.committed
        while True:
            numbers = []
            for _ in range(self.number % 7 + 1):
                key = str(self.number)
                body = body_of(self.number, self.largest)
                put = self.store.append(message("T", self.number % QUEUES, body, uniq_key=key, keys=f"k{key}"))
                assert put.is_ok, put.reason
                numbers.append(self.number)
                self.number += 1
            mark.call_beyond(put.last_offset, lambda error, numbers=numbers: self.say(numbers, error))
            self.store.commit()
            if is_sync:
                await mark.wait_beyond(put.last_offset)
            else:
                await trio.lowlevel.checkpoint()


async def write(root: Path, changes: dict[str, Any], first_number: int, largest: int, out_fd: int) -> None:
    store = await open_store(root, clock=Clock(), **changes)
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        await Writer(store, first_number, largest, out_fd).run()


class Clock:
    def __call__(self) -> int:
        return time.time_ns() // 1_000_000


def run_and_kill(
    root: Path, changes: dict[str, Any], first_number: int, largest: int, seconds: float, lines: int
) -> set[int]:
    """Run a child and kill it after `lines` lines or `seconds` seconds. Return what it acknowledged."""
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(read_fd)
            trio.run(write, root, changes, first_number, largest, write_fd)
        except BaseException as error:
            os.write(2, f"the writer failed: {error!r}\n".encode())
        finally:
            os._exit(7)
    os.close(write_fd)
    heard = b""
    deadline = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(read_fd, selectors.EVENT_READ)
        while heard.count(b"\n") < lines and selector.select(max(0.0, deadline - time.monotonic())):
            data = os.read(read_fd, 1 << 16)
            if not data:
                break
            heard += data
    os.kill(child, signal.SIGKILL)
    while data := os.read(read_fd, 1 << 16):
        heard += data
    os.close(read_fd)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"the writer ended by itself: {status}"
    whole = heard[: heard.rfind(b"\n") + 1]
    return {int(word) for word in whole.split()}


def check(store: DefaultMessageStore, acknowledged: set[int], largest: int) -> set[int]:
    """Return the numbers of all messages in the store. Raises AssertionError."""
    found: set[int] = set()
    for queue_id in range(QUEUES):
        offset = 0
        while offset < store.reading.max_offset("T", queue_id):
            result = store.reading.get_messages("T", queue_id, offset, 32)
            for data in result.records:
                stored = record.decode_record(data)
                assert stored.queue_offset == offset, f"queue {queue_id}: {stored.queue_offset} follows {offset - 1}"
                number = int(stored.uniq_key or "-1")
                assert number not in found, f"message {number} is there twice"
                assert number % QUEUES == queue_id and stored.body == body_of(number, largest), f"{number} was altered"
                for key in (str(number), f"k{number}"):
                    by_key = store.reading.query_by_key("T", key, 64, 0, 1 << 60).physical_offsets
                    assert by_key == [stored.physical_offset], f"key {key}: {by_key}"
                found.add(number)
                offset += 1
            assert result.next_begin_offset == offset
    lost = acknowledged - found
    assert not lost, f"{len(lost)} acknowledged messages lost, the first {min(lost)}"
    return found


async def open_and_check(root: Path, changes: dict[str, Any], acknowledged: set[int], largest: int) -> set[int]:
    store = await open_store(root, clock=Clock(), **changes)
    found = check(store, acknowledged, largest)
    await store.close()
    return found


def soak(root: Path, kills: int, shape: tuple[int, int], flush: FlushDiskType, seed: int, per_store: int = 50) -> int:
    """Kill `kills` writers. Check a store after `per_store` kills, then begin a new one. Return the number of
    acknowledged messages.
    """
    choose = random.Random(seed)
    changes = settings(shape, flush)
    total = 0
    while kills > 0:
        acknowledged: set[int] = set()
        next_number = 0
        for number in range(min(per_store, kills)):
            told = run_and_kill(root, changes, next_number, shape[1], choose.uniform(0.005, 0.4), choose.randint(1, 60))
            acknowledged |= told
            # Unacknowledged messages may be in the store, too: their numbers are not used again.
            next_number = max([next_number, *told]) + 1000
            if number % 10 == 9:
                acknowledged = trio.run(open_and_check, root, changes, acknowledged, shape[1])
        total += len(trio.run(open_and_check, root, changes, acknowledged, shape[1]))
        kills -= per_store
        shutil.rmtree(root)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kills", nargs="?", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.randrange(1 << 30)
    print(f"seed {seed}", flush=True)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    variants = [(shape, flush) for shape in SHAPES for flush in FlushDiskType]
    done = 0
    for at, (shape, flush) in enumerate(variants):
        share = given.kills * (at + 1) // len(variants) - given.kills * at // len(variants)
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="kills-") as name:
            messages = soak(Path(name) / "store", share, shape, flush, seed + at)
        done += share
        print(
            f"{flush.name:11} bodies up to {shape[1]:6}: {share} kills, {messages} messages whole, "
            f"{time.monotonic() - began:.0f} s",
            flush=True,
        )
    print(f"{done} kills: nothing lost, altered, doubled or missing in the index")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main()
