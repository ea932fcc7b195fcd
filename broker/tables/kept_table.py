"""KeptTable: the base of tables with a data version and a file of their own (RocketMQ: ConfigManager).

The file is an object with two members, the data version and the entries. It is written in the background
(write_behind.py), and only changed entries are rendered again (fragments.py). Only the event loop touches the table.
"""

from __future__ import annotations

from triomq.broker.tables import entry_costs
from triomq.broker.tables.fragments import Fragments, compact, member
from triomq.broker.tables.new_names import NewNames
from triomq.broker.tables.saved_table import SavedTable
from triomq.broker.tables.table_file import NoFile, TableFile
from triomq.broker.tables.write_behind import Covered, WriteBehind
from triomq.protocol.bodies.fastjson import dumps
from triomq.protocol.bodies.topic_config import DataVersion
from triomq.protocol.clock import NowMs
from triomq.remoting.table_memory import TableAccount, TableMemory


def ignored(*_: object) -> None:
    """Stand in for a listener that a table does not have."""


class KeptTable(SavedTable):
    """A subclass calls `_touch` for each entry that it changes and then `_changed`; `entries_name` is the member of the
    file that holds the entries, `kind` what one of them is.

    A subclass counts entries in and out. `sent_bytes` is never less than the size of the encoded table, which goes to
    slaves and NameServers in one frame: `entry_bytes` bounds an entry without its name, which occurs twice.
    `entry_cost` is the memory of an entry beside its text.
    """

    kind = ""
    entries_name = ""
    entry_bytes = 0
    entry_cost = 0

    def __init__(self, file: TableFile | None, now_ms: NowMs, covered: Covered | None = None) -> None:
        self._file = file if file is not None else NoFile()
        self._now_ms = now_ms
        self.sent_bytes = 0
        self._entry_count = 0
        self._account = TableMemory().account(self.entries_name)
        self._fragments: Fragments[str] = Fragments(self._member)
        self._writer = WriteBehind(self._file, self._pieces, self._fragments.render, covered)
        self.new_names = NewNames(self.kind, self.wait_kept, self._may_change)
        self.data_version = DataVersion(timestamp=now_ms())

    def count_on(self, account: TableAccount) -> None:
        """Note the memory of the entries in this account from now on."""
        self._account = account
        self._count(0, 0)

    def encode(self) -> bytes:
        """Return the whole table as slaves and tools receive it."""
        return compact(self._pieces())

    def bump_version(self) -> None:
        """Change the data version, so that NameServers and slaves accept the table again."""
        self.data_version = self.data_version.next_version(self._now_ms())

    def mark_unsaved(self) -> None:
        """Let the next write of the file happen although nothing changed: there is none yet."""
        self._writer.mark()

    def persist(self) -> None:
        """Write the file if it lacks changes. Raises OSError."""
        self._writer.save()

    def _may_change(self) -> bool:
        return self.log is None or self.log.leads

    def _bytes_of(self, name: str) -> int:
        return 2 * len(dumps(name)) + self.entry_bytes

    def _count_in(self, name: str) -> None:
        self._count(1, self._bytes_of(name))

    def _count_out(self, name: str) -> None:
        self._count(-1, -self._bytes_of(name))

    def _count(self, entries: int, sent_bytes: int) -> None:
        self._entry_count += entries
        self.sent_bytes += sent_bytes
        self._account.set(self.entry_cost * self._entry_count + entry_costs.SENT * self.sent_bytes)

    def _check_memory(self, name: str, what: str) -> None:
        """Raise MemoryShort if there is none for a new entry."""
        self._account.check(self.entry_cost + entry_costs.SENT * self._bytes_of(name), what)

    def _touch(self, name: str) -> None:
        """Note that an entry was added, changed or removed."""
        self._fragments.touch(name)
        if self.log is not None:
            self.log.changed(name)

    def _changed(self) -> None:
        self.bump_version()
        self._writer.changed()
        if self.log is not None:
            self.log.write()

    def _entry_text(self, name: str) -> str | None:
        """Return the text of the entry's value as if it stood alone; None for a removed entry."""
        raise NotImplementedError

    def _member(self, name: str) -> str | None:
        entry = self._entry_text(name)
        return member(name, entry) if entry is not None else None

    def _pieces(self) -> list[bytes]:
        entries = self._fragments.object()
        version = self.data_version.encode_pretty().replace(b"\n", b"\n\t")
        return [b'{\n\t"dataVersion":%b,\n\t"%b":' % (version, self.entries_name.encode()), *entries, b"\n}"]
