"""Store directories for the measurements, filled through the store itself: closed, or as a kill leaves them."""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import trio

from triomq.protocol import stored_properties
from triomq.protocol.address import HostPort
from triomq.protocol.java import string_hash
from triomq.store.config import StoreSettings
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore

HOST = HostPort("127.0.0.1", 10911).packed
TAGS_CODE = string_hash("t")
MESSAGES_A_COMMIT = 64


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def message(topic: str, queue_id: int, body: bytes, number: int) -> MessageToStore:
    """Return a message as a Java client sends it: one id, one key, one tag."""
    uniq_key = f"7F0000013039{number >> 16:012X}{number & 0xFFFF:08X}"
    text = stored_properties.of({"UNIQ_KEY": uniq_key, "KEYS": f"k{number}", "CLUSTER": "DefaultCluster", "TAGS": "t"})
    return MessageToStore(
        topic,
        queue_id,
        body,
        text,
        born_timestamp=now_ms(),
        born_host=HOST,
        store_host=HOST,
    )


def fill(store: DefaultMessageStore, total_bytes: int, *, body_bytes: int = 1024, queues: int = 8) -> int:
    """Put messages until the log has `total_bytes`. Return their number."""
    body = os.urandom(body_bytes)
    number = 0
    while store.reading.max_physical_offset < total_bytes:
        for _ in range(MESSAGES_A_COMMIT):
            store.append(message("Bench", number % queues, body, number))
            number += 1
        store.commit()
    return number


def drop_pages(root: Path) -> None:
    """Drop these files from the page cache, so that the next reader waits for the disk."""
    for path in root.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


async def make(root: Path, gib: float, *, body_bytes: int, is_closed: bool) -> int:
    """Make a new directory. It is not closed: it looks as after a kill, fully written, without a checkpoint."""
    store = DefaultMessageStore(StoreSettings(store_path_root_dir=str(root)), now_ms=now_ms)
    await store.load()
    count = fill(store, int(gib * (1 << 30)), body_bytes=body_bytes)
    await store.close()
    if not is_closed:
        (root / "abort").touch()
        (root / "checkpoint").unlink()
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--body-bytes", type=int, default=1024)
    parser.add_argument("--killed", action="store_true")
    given = parser.parse_args()
    began = time.monotonic()
    count = trio.run(lambda: make(given.directory, given.gib, body_bytes=given.body_bytes, is_closed=not given.killed))
    print(f"{count} messages in {time.monotonic() - began:.1f} s")


if __name__ == "__main__":
    main()
