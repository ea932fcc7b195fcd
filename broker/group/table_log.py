"""The tables of a group go through its log: topics, groups, offsets, delay offsets, queue locks, quota overrides,
request modes.

    leader      what changes becomes a record of the log (store/log/table_record.py): of topics, groups and quotas at
                once, so that every message that is appended later lies behind it; of offsets soon, many at a time.
                A response that acknowledges a change waits until a quorum has it (`LogOfTable.settled`).
    follower    takes the records in the order of the log, when they are committed

So a member that becomes the leader has the tables as they were at the end of its log, and what was acknowledged is
in front of that end. A leader that is deposed keeps what no quorum got until the next one writes its tables.

    begin    a leader has taken office in a term; its tables follow
    part     entries of its tables, a piece of them
    change   entries that changed; null for one that was removed
    end      the tables are complete if all parts arrived: what was not among them, or changed since, is removed

A leader accepts nothing before a quorum has all its tables, so a later leader has whatever it acknowledges in its term,
also what is no change and no record: a lock that is renewed, an offset that is asked for, a topic that was there. It
writes them again before retention removes the first of these records from its log, so a member that gets only the log
has the tables. Members of RocketMQ pass all these records. The one that leads writes none: then the tables are copied
from it, as a slave does (replication/master_tables.py).

`config/tableLog.json` says up to which position of the log the files of the tables have everything; a start takes the
rest from the log. It is written after the files. All entries are whole values, so to take one twice changes nothing.

Only the event loop touches this.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog
import trio

from triomq.broker.errors import NotReplicated
from triomq.broker.message_writer import QUORUM_SECONDS
from triomq.broker.tables.logged import LoggedTable
from triomq.broker.tables.table_file import TableFile
from triomq.protocol.errors import ProtocolError
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import PutStatus

log = structlog.get_logger("triomq.broker.group")

SOON_SECONDS: Final = 0.05
"""How long changed offsets wait for others. A pull carries one, so each would be a record."""
PART_BYTES: Final = 64 * 1024
"""The entries of a record, unless a single one is longer."""
RETRY_SECONDS: Final = 1.0
"""How long a new leader whose store does not take its tables waits before it tries again."""
LOOK_SECONDS: Final = 10.0
"""How often a leader looks whether retention comes near its tables, and how often the position is noted."""

_GONE: Final = b"null"
BEGIN, PART, CHANGE, END = "begin", "part", "change", "end"

Entry = tuple[str, str]
"""The name of a table, and that of one of its entries."""


class TableRecord(msgspec.Struct, omit_defaults=True):
    """The body of a record, as JSON. `port`: where the brokers of the group reach the leader. `parts`: how many an end
    closes."""

    kind: str
    tables: dict[str, dict[str, msgspec.Raw]] = {}
    term: int = 0
    member: str = ""
    port: int = 0
    parts: int = 0


class Position(msgspec.Struct, rename="camel"):
    """The content of tableLog.json. `whole`: the tables were complete once."""

    physical_offset: int
    whole: bool = False


class _Whole:
    """The tables that a leader writes, as far as they have arrived: `entries` are those to keep."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.parts = 0
        self.entries: set[Entry] = set()


class _Line:
    """The log of one table."""

    def __init__(self, log_of_all: TableLog, table: str) -> None:
        self._log = log_of_all
        self._table = table

    @property
    def leads(self) -> bool:
        return self._log.leads

    @property
    def is_settled(self) -> bool:
        return self._log.is_settled

    def changed(self, name: str) -> None:
        self._log.changed((self._table, name))

    def write(self) -> None:
        self._log.write()

    async def settled(self) -> None:
        await self._log.settled()


class TableLog:
    """See the module's docstring. `tables` are the tables by their names in the log, `wake` makes a turn end soon,
    `port` is this broker's own."""

    def __init__(
        self,
        store: DefaultMessageStore,
        tables: Mapping[str, LoggedTable],
        file: TableFile,
        wake: Callable[[], None],
        *,
        member: str,
        port: int,
    ) -> None:
        self._store = store
        self._tables = dict(tables)
        self._file = file
        self._wake = wake
        self._member = member
        self._port = port
        self.leads = False
        """Whether this member writes records at present."""
        self._dirty: dict[Entry, None] = {}
        self._soon = trio.Event()
        self._last_offset = -1
        self._whole: _Whole | None = None
        self._whole_begin = self._whole_end = -1
        self._position = Position(0)
        self._is_loading = False
        self.begun: TableRecord | None = None
        """The first record of the leader whose records are taken, or of this one."""
        self.is_whole = False
        """Whether the tables have been complete at some time, by the log."""
        for name, table in self._tables.items():
            table.log = _Line(self, name)

    # -- leading -----------------------------------------------------------------------------------------------------

    async def lead(self, term: int) -> None:
        """Write all tables, and changes from now on. A quorum has them when this returns; no message may be accepted in
        this term before."""
        self.leads = True
        self._dirty.clear()
        self._whole = None
        self.begun = TableRecord(BEGIN, term=term, member=self._member, port=self._port)
        self.is_whole = True
        while not await self._write_whole():  # noqa: ASYNC110 (no event says that a store takes something again)
            await trio.sleep(RETRY_SECONDS)

    def follow(self) -> None:
        """Write nothing from now on."""
        self.leads = False
        self._dirty.clear()

    def changed(self, entry: Entry) -> None:
        """Note a changed entry; it is written soon."""
        if self.leads:
            self._dirty[entry] = None
            self._soon.set()

    def write(self) -> None:
        """Write what has changed so far, as far as the store takes it."""
        names = iter(list(self._dirty)) if self.leads else iter(())
        while (piece := self._piece(CHANGE, names))[1]:
            record, entries = piece
            if not self._append(record, entries):
                return
            for entry in entries:
                self._dirty.pop(entry, None)

    @property
    def is_settled(self) -> bool:
        """Whether a quorum has what has changed so far."""
        return not self._dirty and self._last_offset < self._store.acknowledged.value

    async def settled(self) -> None:
        """Wait until a quorum has what has changed so far. Raises NotReplicated."""
        self.write()
        if not self.leads:
            raise NotReplicated(self._store.role_refusal or "this member does not lead the group")
        if self._dirty:
            raise NotReplicated(self._store.refusal or "the log takes nothing at present")
        try:
            with trio.fail_after(QUORUM_SECONDS):
                await self._store.acknowledged.wait_beyond(self._last_offset)
        except trio.TooSlowError:
            raise NotReplicated(f"no quorum of the group had it within {QUORUM_SECONDS} s") from None
        except StoreError as error:
            raise NotReplicated(str(error)) from None

    async def run_as_leader(self) -> None:
        """Write changes soon after they are made, and all tables again before retention takes them."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_soon)
            while True:
                await trio.sleep(LOOK_SECONDS)
                if self._is_expiring() or self._whole_end < self._whole_begin:
                    await self._write_whole()

    async def _write_soon(self) -> None:
        while True:
            await self._soon.wait()
            await trio.sleep(SOON_SECONDS)
            self._soon = trio.Event()
            self.write()
            if self._dirty:
                self._soon.set()  # the store takes nothing at present

    def _is_expiring(self) -> bool:
        """Return whether the tables in the log begin in its oldest file, and at least a file lies behind them."""
        file_bytes = self._store.contents.log.file_size_bytes
        oldest = self._store.reading.min_physical_offset // file_bytes
        is_oldest = self._whole_begin // file_bytes <= oldest
        return is_oldest and self._store.appended_offset - self._whole_end > file_bytes

    async def _write_whole(self) -> bool:
        """Write all entries between a record that begins and one that ends them, and wait until a quorum has them.
        Return False if a part is refused or reaches none: the tables of followers stay as they are, and the next look
        tries again."""
        assert self.begun is not None
        self._whole_begin = self._store.appended_offset
        if not self._append(self.begun, ()):
            return False
        parts = 0
        try:
            for name, table in self._tables.items():
                entries = iter([(name, each) for each in table.logged_names()])
                while (piece := self._piece(PART, entries))[1]:
                    before = self._last_offset
                    if not self._append(*piece):
                        return False
                    parts += self._last_offset != before
                    await self.settled()  # so that other requests have their turn, and few bytes wait for the quorum
            if not self._append(TableRecord(END, parts=parts), ()):
                return False
            await self.settled()
        except NotReplicated as error:
            log.warning("tables not written to the log", reason=error.remark)
            return False
        self._whole_end = self._store.appended_offset
        return True

    def _piece(self, kind: str, names: Iterator[Entry]) -> tuple[TableRecord, list[Entry]]:
        """Return a record with the next entries as they are now, and their names."""
        record = TableRecord(kind)
        written: list[Entry] = []
        size, most = 0, min(PART_BYTES, self._store.contents.log.longest_record_bytes // 4)
        while size < most and (entry := next(names, None)) is not None:
            table, name = entry
            text = self._tables[table].logged_entry(name)
            record.tables.setdefault(table, {})[name] = msgspec.Raw(text if text is not None else _GONE)
            written.append(entry)
            size += len(name) + (len(text) if text is not None else 0)
        return record, written

    def _append(self, record: TableRecord, entries: Sequence[Entry]) -> bool:
        """Append a record. Return False if the store refuses it. What a failed write takes back is written again."""
        body = msgspec.json.encode(record)
        result = self._store.append_tables(body)
        if result is not None and result.status is PutStatus.MESSAGE_ILLEGAL:
            # One entry alone: the pieces fit. To try it again would keep all others from the log.
            log.error("entry of a table not written to the log: it is too long", entries=entries[:1], bytes=len(body))
            return True
        if result is None or not result.is_ok:
            return False
        self._last_offset = result.last_offset
        self._wake()
        if entries:
            self._store.acknowledged.call_beyond(result.last_offset, partial(self._ended, entries))
        return True

    def _ended(self, entries: Sequence[Entry], error: Exception | None) -> None:
        if error is not None:
            for entry in entries:
                self.changed(entry)
            self.write()  # in front of the messages that come next

    # -- following ---------------------------------------------------------------------------------------------------

    def take(self, body: bytes) -> None:
        """Take a committed record of a leader. One that cannot be read is passed: a later version may have written
        it."""
        try:
            record = msgspec.json.decode(body, type=TableRecord)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            log.error("changes of tables in the log not read", error=str(error))
            return
        if record.kind == BEGIN:
            self.begun = record
            self._whole = _Whole(self._taken_to)
        for table, entries in record.tables.items():
            self._take_entries(table, entries)
        if self._whole is not None:
            self._whole.entries.update((table, name) for table, entries in record.tables.items() for name in entries)
            self._whole.parts += record.kind == PART
            if record.kind == END:
                self._end_whole(self._whole, record.parts)

    def _take_entries(self, name: str, entries: Mapping[str, msgspec.Raw]) -> None:
        table = self._tables.get(name)
        if table is None:
            return
        for entry, raw in entries.items():
            text = bytes(raw)
            try:
                table.take_logged(entry, text if text != _GONE else None)
            except (ValueError, ProtocolError) as error:
                log.error("entry of a table in the log not taken", table=name, entry=entry[:200], error=str(error))

    def _end_whole(self, whole: _Whole, parts: int) -> None:
        self._whole = None
        if whole.parts != parts:
            return  # this member has not had all of them
        for name, table in self._tables.items():
            for entry in [each for each in table.logged_names() if (name, each) not in whole.entries]:
                table.take_logged(entry, None)
        self.is_whole = True

    @property
    def _taken_to(self) -> int:
        """The position up to which the tables have everything; while a start reads the log, that of the files."""
        return self._position.physical_offset if self._is_loading else self._store.contents.log.committed_offset

    # -- the files ---------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Take what the log has and the files of the tables lack. The store is loaded, and so are the tables."""
        self._position = self._file.load(_decode) or self._position
        self.is_whole = self._position.whole
        self._is_loading = True
        for body in self._store.quorum.table_changes(self._position.physical_offset):
            if body is None:
                await trio.lowlevel.checkpoint()
            else:
                self.take(body)
        self._is_loading = False
        self.begun = None

    async def note_position(self, save: Callable[[], Awaitable[None]]) -> None:
        """Note how far the files of the tables have what is in the log, once `save` has written them. Raises
        OSError."""
        position = Position(self._whole.begin if self._whole is not None else self._taken_to, self.is_whole)
        if position != self._position:
            await save()
            self._file.save(msgspec.json.encode(position).decode())
            self._position = position


def _decode(text: str) -> Position:
    try:
        return msgspec.json.decode(text.encode(), type=Position)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error
