"""What the store's tests share: small settings, ready messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_clock import FakeClock

from triomq.protocol import properties, stored_properties
from triomq.protocol.address import HostPort
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore

BORN = HostPort("10.0.0.9", 40000).packed
STORED = HostPort("10.0.0.1", 10911).packed


def small_settings(root: Path | str, **changes: Any) -> StoreSettings:
    values: dict[str, Any] = {
        "store_path_root_dir": str(root),
        "mapped_file_size_commit_log_bytes": 4096,
        "mapped_file_size_consume_queue_bytes": 200,
        "max_hash_slot_num": 50,
        "max_index_num": 60,
        "max_message_size_bytes": 3000,
    }
    values.update(changes)
    return StoreSettings(**values)


async def inline(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run the function without a thread."""
    return function(*arguments)


async def open_store(
    root: Path | str, *, files: Files | None = None, clock: FakeClock | None = None, **changes: Any
) -> DefaultMessageStore:
    store = DefaultMessageStore(
        small_settings(root, **changes), now_ms=clock or FakeClock(step_ms=1), files=files, offload=inline
    )
    await store.load()
    return store


async def sync_log(store: DefaultMessageStore) -> None:
    """Sync the log and note that in the checkpoint: damage in front of this is damage, not what a power failure left.
    Queues and index are not synced, so the next start still reads this part of the log."""
    await store.flushing.begin(in_kernel=False)


def abandon(store: DefaultMessageStore) -> None:
    """Leave the store as a killed process does: nothing is flushed, descriptors and the lock are released."""
    store.contents.open_files.close_all()
    store.unlock()
    store._is_open = False


def message(
    topic: str = "T",
    queue_id: int = 0,
    body: bytes = b"hello",
    *,
    keys: str | None = None,
    uniq_key: str | None = None,
    tags: str | None = None,
    **changes: Any,
) -> MessageToStore:
    table = {"KEYS": keys, "UNIQ_KEY": uniq_key, "TAGS": tags}
    """`properties` is their stored text, instead of those made of keys and tags."""
    text = properties.encode({name: value for name, value in table.items() if value})
    values: dict[str, Any] = {
        "born_timestamp": 1_700_000_000_000,
        "born_host": BORN,
        "store_host": STORED,
    }
    values.update(changes)
    return MessageToStore(topic, queue_id, body, stored_properties.read(values.pop("properties", text)), **values)


_numbers = itertools.count(1)


def unique_key() -> str:
    return f"U{next(_numbers):08d}"
