"""KvConfig: the NameServer's key-value configuration (RocketMQ: KVConfigManager): namespace -> key -> value, in
kvConfig.json.

A change is durable before it is visible: the new table goes into the file (a temporary file, the previous content into
.bak, then a rename), and only then into the table in memory. So a successful response means that the change survives a
restart, and after a failure memory and file still agree.

The file is written as a whole, so changes that arrive while it is written share the next write. The text of each entry
is kept as the file has it, so that a change costs the event loop the text of its own entry and not that of the table.
The changes of one write enter the next table (`_next`) in steps, and so do the texts the list that the thread writes.

Any code on the event loop may read it. Only `put` and `delete` change it; one of them at a time writes, for all, in a
worker thread, which receives bytes and a path, nothing else.

The bytes of all namespaces and entries as JSON have a limit: a registration's response and the file have them as they
are. A namespace counts from its first entry on, and as long as the file has it, with or without entries.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog
import trio

from triomq.daemon.atomic_file import write_atomically
from triomq.daemon.errors import StartError
from triomq.protocol.bodies.fastjson_writer import quote
from triomq.protocol.bodies.kv_table import KVConfigSerializeWrapper
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import BodyError, RequestRefused
from triomq.remoting.scheduling.step_line import NO_LINE, Steps
from triomq.remoting.table_memory import TableAccount, TableMemory

log = structlog.get_logger("triomq.namesrv.kv_config")

MAX_NAME_LENGTH = 1024
MAX_VALUE_LENGTH = 65_536
"""Characters of a namespace or key, and of a value. Every broker receives a whole namespace at each registration."""
MAX_TABLE_BYTES = 8 * 1024**2

ENTRY_COST = 400
NAMESPACE_COST = 600
TEXT_COST = 5
"""About the memory of an entry, of a namespace, and of each byte that they have as JSON: a character may take four for
one, and the text itself is kept."""

BLOCK_BYTES = 256 * 1024
"""Texts of entries are joined to blocks of about this size, so that the thread has few of them to write."""

_INDENT = b"\n\t\t\t"
_Entry = tuple[str, bytes]
"""A value, and the text of its entry in the file, without the indentation."""
_Table = dict[str, dict[str, _Entry]]


class _Change:
    """A change that waits for the file; `value` None deletes. `before` is the value that it replaces."""

    def __init__(self, namespace: str, key: str, value: str | None) -> None:
        self.namespace = namespace
        self.key = key
        self.value = value
        self.before: str | None = None
        self.entry: _Entry | None = None
        self.entry_before: _Entry | None = None
        self.is_first_of_namespace = False
        self.is_done = False
        self.refusal: RequestRefused | None = None


class KvConfig:
    """See the module's docstring. Without a path nothing is read or written."""

    def __init__(
        self,
        path: Path | None,
        *,
        max_table_bytes: int = MAX_TABLE_BYTES,
        account: TableAccount | None = None,
    ) -> None:
        self.path = path
        self.max_table_bytes = max_table_bytes
        self._account = account if account is not None else TableMemory().account("key-value entries")
        self._table: _Table = {}
        self._next: _Table = {}
        self._entry_count = self._text_bytes = 0  # of the next file, as JSON
        self._waiting: list[_Change] = []
        self._writing = trio.Lock()

    def load(self) -> None:
        """Read the file, or the .bak beside it if the file is torn. Without a file the table is empty. Raises
        StartError."""
        if self.path is None:
            return
        backup = self.path.with_name(self.path.name + ".bak")
        if not self.path.exists():
            return
        try:
            self._load_table(_read(self.path))
            return
        except BodyError as error:
            broken = error
        try:
            self._load_table(_read(backup))
        except (BodyError, StartError):
            raise StartError(f"{self.path} cannot be read: {broken}; repair it or move it away") from None
        log.warning("kvConfig.json damaged; its backup is used", path=str(self.path), error=str(broken))

    def get(self, namespace: str, key: str) -> str | None:
        entry = self._table.get(namespace, {}).get(key)
        return entry[0] if entry is not None else None

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all keys of a namespace; None if it never had one."""
        entries = self._table.get(namespace)
        return {key: value for key, (value, _) in entries.items()} if entries is not None else None

    def encoded(self, namespace: str) -> bytes | None:
        """Return all keys of a namespace as a KVTable; None if it never had one."""
        entries = self._table.get(namespace)
        return b'{"table":{%b}}' % b",".join([piece for _, piece in entries.values()]) if entries is not None else None

    def put(self, namespace: str, key: str, value: str, steps: Steps = NO_LINE) -> Coroutine[Any, Any, str | None]:
        """Take the place of a change among the others, and return what sets a value and persists the table; it must be
        awaited. That returns the value before. Both raise RequestRefused: if a text is too long, or if the file cannot
        be written or the table is full."""
        for what, text, limit in (
            ("namespace", namespace, MAX_NAME_LENGTH),
            ("key", key, MAX_NAME_LENGTH),
            ("value", value, MAX_VALUE_LENGTH),
        ):
            if len(text) > limit:
                reason = f"the {what} {text[:40]!r}... has {len(text)} characters, the longest is {limit}"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        return self._begin(_Change(namespace, key, value), steps)

    def delete(self, namespace: str, key: str, steps: Steps = NO_LINE) -> Coroutine[Any, Any, str | None]:
        """Return what removes a key; order, persistence and errors are those of `put`. A namespace stays when its last
        key goes. An unknown key changes nothing."""
        return self._begin(_Change(namespace, key, None), steps)

    def items(self) -> list[tuple[str, str, str]]:
        """Return (namespace, key, value) of every entry."""
        return [(name, key, value) for name, table in self._table.items() for key, (value, _) in table.items()]

    def _begin(self, change: _Change, steps: Steps) -> Coroutine[Any, Any, str | None]:
        self._waiting.append(change)
        return self._change(change, steps)

    async def _change(self, change: _Change, steps: Steps) -> str | None:
        """Write the changes that wait, or wait for the one that does. Return the value before. A caller that is
        cancelled before the write begins changes nothing."""
        try:
            async with self._writing:
                if not change.is_done:
                    with trio.CancelScope(shield=True):  # the others rely on it, and it is in a thread
                        await self._write_waiting(steps)
        finally:
            with suppress(ValueError):
                self._waiting.remove(change)
        refusal, change.refusal = change.refusal, None
        if refusal is not None:
            try:
                raise refusal
            finally:
                del refusal  # its traceback refers to this frame, and would keep the value until a garbage collection
        return change.before

    async def _write_waiting(self, steps: Steps) -> None:
        """Write all changes that wait at once, then show them. The lock is held. The steps are those of one of them."""
        changes, self._waiting = self._waiting, []
        entered: list[_Change] = []
        is_written = False
        try:
            for change in changes:
                if self._enter(change):
                    entered.append(change)
                await steps.next(is_short=True)
            if entered and self.path is not None:
                blocks = []
                for block in self._file():
                    blocks.append(block)
                    await steps.next(is_short=True)
                await trio.to_thread.run_sync(write_atomically, self.path, blocks)
            is_written = True
        except OSError as error:
            error.__traceback__ = None  # it refers to this frame, and the thread's result to it
            reason = f"{self.path} cannot be written: {error.strerror}; nothing was changed"
            for change in changes:  # also those that would change nothing after the others
                change.refusal = change.refusal or RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        finally:
            for change in entered if is_written else reversed(entered):
                if is_written:
                    self._show(change)
                else:
                    self._undo(change)
            self._count()
        for change in changes:
            change.is_done = True

    def _enter(self, change: _Change) -> bool:
        """Make a change in what the next file will have, after the changes that came before it. Return whether it
        changes anything."""
        namespace = change.namespace
        key = change.key
        value = change.value
        present = self._next.get(namespace, {}).get(key)
        change.entry_before = present
        change.before = present[0] if present is not None else None
        if value is None:
            if present is None:
                return False
            self._remove(namespace, key)
            return True
        change.entry = _entry(key, value)
        change.is_first_of_namespace = namespace not in self._next
        try:
            self._check_room(change)
        except RequestRefused as refusal:
            change.refusal = refusal
            return False
        self._set(namespace, key, change.entry)
        return True

    def _check_room(self, change: _Change) -> None:
        """Refuse an entry that makes a full table larger. One that makes it smaller is welcome."""
        more = _size(change.entry) - _size(change.entry_before)
        more += _name_size(change.namespace) if change.is_first_of_namespace else 0
        if more > 0 and more + self._text_bytes > self.max_table_bytes:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the entries would have more than {self.max_table_bytes} bytes, the limit (maxKvBytes)",
            )
        if more > 0:
            self._count()
            cost = ENTRY_COST + TEXT_COST * more + (NAMESPACE_COST if change.is_first_of_namespace else 0)
            self._account.check(cost, f"key {change.key[:200]!r}")

    def _undo(self, change: _Change) -> None:
        if change.entry_before is not None:
            self._set(change.namespace, change.key, change.entry_before)
            return
        self._remove(change.namespace, change.key)
        if change.is_first_of_namespace:
            del self._next[change.namespace]
            self._text_bytes -= _name_size(change.namespace)

    def _show(self, change: _Change) -> None:
        entries = self._table.setdefault(change.namespace, {})
        if change.entry is None:
            del entries[change.key]
        else:
            entries[change.key] = change.entry

    def _set(self, namespace: str, key: str, entry: _Entry) -> None:
        if key in self._next.get(namespace, {}):
            self._remove(namespace, key, is_replaced=True)
        self._name(namespace)[key] = entry
        self._entry_count += 1
        self._text_bytes += _size(entry)

    def _name(self, namespace: str) -> dict[str, _Entry]:
        """Return the entries of a namespace, which there is then."""
        entries = self._next.get(namespace)
        if entries is None:
            entries = self._next[namespace] = {}
            self._text_bytes += _name_size(namespace)
        return entries

    def _remove(self, namespace: str, key: str, *, is_replaced: bool = False) -> None:
        entries = self._next[namespace]
        self._entry_count -= 1
        self._text_bytes -= _size(entries[key])
        if not is_replaced:  # its place in the file stays
            del entries[key]

    def _file(self) -> Iterator[bytes]:
        """Yield the next file in blocks: KVConfigSerializeWrapper, in the pretty form. The largest is a block and one
        entry long."""
        pieces = [b'{\n\t"configTable":{']
        size = 0
        between = b""
        for namespace, entries in self._next.items():
            pieces.append(between + f"\n\t\t{quote(namespace)}:{{".encode("utf-8", "replace"))
            between = b""
            for _, piece in entries.values():
                pieces += (between, _INDENT, piece)
                between = b","
                size += len(piece) + ENTRY_COST
                if size > BLOCK_BYTES:
                    yield b"".join(pieces)
                    pieces.clear()
                    size = 0
            pieces.append(b"\n\t\t}" if entries else b"}")
            size += ENTRY_COST
            between = b","
        pieces.append(b"\n\t}\n}" if self._next else b"}\n}")
        yield b"".join(pieces)

    def _load_table(self, table: dict[str, dict[str, str]]) -> None:
        for namespace, values in table.items():
            self._name(namespace)
            for key, value in values.items():
                self._set(namespace, key, _entry(key, value))
        self._table = {namespace: entries.copy() for namespace, entries in self._next.items()}
        self._count()

    def _count(self) -> None:
        names = NAMESPACE_COST * len(self._next)
        self._account.set(names + ENTRY_COST * self._entry_count + TEXT_COST * self._text_bytes)


def _entry(key: str, value: str) -> _Entry:
    return value, f"{quote(key)}:{quote(value)}".encode("utf-8", "replace")


def _size(entry: _Entry | None) -> int:
    return len(entry[1]) if entry is not None else 0


def _name_size(namespace: str) -> int:
    return len(quote(namespace).encode("utf-8", "replace"))


def _read(path: Path) -> dict[str, dict[str, str]]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None
    if not data.strip():
        raise BodyError("the file is empty")
    return KVConfigSerializeWrapper.decode(data).config_table
