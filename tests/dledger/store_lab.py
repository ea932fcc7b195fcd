"""A member's store over a ledger of small files, and what the rules of its group do with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_clock import FakeClock
from store_support import inline, message, small_settings

from triomq.dledger.ledger.data_directories import data_settings, plain_settings
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.ledger_log import LedgerLog
from triomq.dledger.wire import codes
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.log_directories import log_directories
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.log.commit_log import CommitLog
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutResult

INDEX_FILE_BYTES = 32 * 64


class MemberStore:
    """A member's store, and what the rules of its group do with it."""

    def __init__(self, root: Path, clock: Callable[[], int], files: Files | None = None, **changes: Any) -> None:
        self.root = root
        self.ledger: Ledger
        self.term = 1
        self.leads = False

        settings = small_settings(root, **changes)
        directory = f"{root}/dledger-n0"
        plain = plain_settings(settings, directory, Files())

        def make_log(pool: OpenFiles, paths: Layout, file_size_bytes: int) -> LedgerLog:
            self.ledger = Ledger(
                pool.files,
                directory,
                file_size_bytes,
                index_file_bytes=INDEX_FILE_BYTES,
                pool=pool,
                directories=log_directories(paths),
            )
            self.log = LedgerLog(self.ledger, CommitLog(pool, Layout(plain), file_size_bytes))
            self.log.propose = self._propose
            return self.log

        data = data_settings(settings, directory, Files())
        self.store = DefaultMessageStore(data, now_ms=clock, files=files, offload=inline, make_log=make_log)

    def _propose(self, ticket: object, write: Callable[[int], None]) -> int:
        if not self.leads:
            return codes.NOT_LEADER
        write(self.term)
        return codes.SUCCESS

    async def load(self) -> MemberStore:
        await self.store.load()
        return self

    async def lead(self) -> None:
        await self.store.quorum.catch_up()
        self.store.quorum.lead()
        self.store.quorum.accept()
        self.leads = True

    def put(self, *args: Any, **changes: Any) -> PutResult:
        result = self.store.append(message(*args, **changes))
        self.store.commit()
        return result

    def commit_all(self, until: int | None = None) -> None:
        self.store.quorum.committed(self.ledger.end_of(self.ledger.end_index if until is None else until))

    def copy_from(self, leader: MemberStore, until: int | None = None) -> None:
        """Take the leader's entries behind the own end, as a push would bring them."""
        last = leader.ledger.end_index if until is None else until
        entries = [leader.ledger.entry(index) for index in range(self.ledger.end_index + 1, last + 1)]
        if entries:
            self.ledger.write(entries)

    async def dispatch(self) -> None:
        await self.store.quorum.catch_up()

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        found: list[bytes] = []
        while records := self.store.reading.get_messages(topic, queue_id, len(found), 100).records:
            found += map(body_of, records)
        return found

    def first_offset(self) -> int:
        return self.store.reading.min_offset("T", 0)

    def bodies_from(self, queue_offset: int) -> list[bytes]:
        found: list[bytes] = []
        while records := self.store.reading.get_messages("T", 0, queue_offset + len(found), 100).records:
            found += map(body_of, records)
        return found

    def save_committed(self) -> None:
        self.ledger.save_checkpoint(self.ledger.end_index)


def body_of(data: bytes) -> bytes:
    length = int.from_bytes(data[84:88], "big")
    return data[88 : 88 + length]


async def open_member(root: Path, clock: FakeClock | None = None, **changes: Any) -> MemberStore:
    return await MemberStore(root, clock or FakeClock(step_ms=1), **changes).load()
