"""KvConfig: the NameServer's key-value configuration (RocketMQ: KVConfigManager): namespace -> key -> value, in
kvConfig.json.

A change is durable before it is visible: the new table goes into the file (a temporary file, the previous content into
.bak, then a rename), and only then replaces the table in memory. So a successful response means that the change
survives a restart, and after a failure memory and file still agree.

Any code on the event loop may read it. Only `put` and `delete` change it; they share a lock and write in a worker
thread, which receives bytes and a path, nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import structlog
import trio

from triomq.daemon.atomic_file import write_atomically
from triomq.daemon.errors import StartError
from triomq.protocol.bodies.kv_table import KVConfigSerializeWrapper
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import BodyError, RequestRefused
from triomq.remoting.table_memory import TableAccount, TableMemory

log = structlog.get_logger("triomq.namesrv.kv_config")

MAX_NAME_LENGTH = 1024
MAX_VALUE_LENGTH = 65_536
"""Characters of a namespace or key, and of a value. Every broker receives a whole namespace at each registration."""
MAX_TABLE_BYTES = 8 * 1024**2

ENTRY_COST = 300
TEXT_COST = 4
"""About the memory of an entry, and of each byte of its texts: while the file is written, the text is there once
more in each of several forms."""

_Table = dict[str, dict[str, str]]


class KvConfig:
    """See the module's docstring. Without a path nothing is read or written."""

    def __init__(
        self,
        path: Path | None,
        *,
        max_entries: int = 100_000,
        max_table_bytes: int = MAX_TABLE_BYTES,
        account: TableAccount | None = None,
    ) -> None:
        self.path = path
        self.max_entries = max_entries
        self.max_table_bytes = max_table_bytes
        self._account = account if account is not None else TableMemory().account("key-value entries")
        self._table: _Table = {}
        self._changing = trio.Lock()

    def load(self) -> None:
        """Read the file, or the .bak beside it if the file is torn. Without a file the table is empty. Raises
        StartError."""
        if self.path is None:
            return
        backup = self.path.with_name(self.path.name + ".bak")
        if not self.path.exists():
            return
        try:
            self._set(_read(self.path))
            return
        except BodyError as error:
            broken = error
        try:
            self._set(_read(backup))
        except (BodyError, StartError):
            raise StartError(f"{self.path} cannot be read: {broken}; repair it or move it away") from None
        log.warning("kvConfig.json is damaged; its backup is used", path=str(self.path), error=str(broken))

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Return all keys of a namespace; None if it never had one."""
        return self._table.get(namespace)

    async def put(self, namespace: str, key: str, value: str) -> str | None:
        """Set a value and persist the table; return the value before. Raises RequestRefused if the file cannot be
        written or the table is full, or a text too long."""
        for what, text, limit in (
            ("namespace", namespace, MAX_NAME_LENGTH),
            ("key", key, MAX_NAME_LENGTH),
            ("value", value, MAX_VALUE_LENGTH),
        ):
            if len(text) > limit:
                reason = f"the {what} {text[:40]!r}... has {len(text)} characters, the longest is {limit}"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        async with self._changing:
            present = self._table.get(namespace, {})
            if key not in present and self.entry_count() >= self.max_entries:
                raise RequestRefused(
                    ResponseCode.SYSTEM_ERROR,
                    f"there are {self.max_entries} entries, the limit (maxKvEntries)",
                )
            self._check_room(namespace, key, value)
            await self._replace({**self._table, namespace: {**present, key: value}})
        return present.get(key)

    async def delete(self, namespace: str, key: str) -> str | None:
        """Remove a key and persist the table; return the value before. A namespace stays when its last key goes. An
        unknown key changes nothing."""
        async with self._changing:
            known = self.get(namespace, key)
            if known is None:
                return None
            rest = {other: value for other, value in self._table[namespace].items() if other != key}
            await self._replace({**self._table, namespace: rest})
        return known

    def entry_count(self) -> int:
        return sum(map(len, self._table.values()))

    def items(self) -> list[tuple[str, str, str]]:
        """Return (namespace, key, value) of every entry."""
        return [(name, key, value) for name, table in self._table.items() for key, value in table.items()]

    def _check_room(self, namespace: str, key: str, value: str) -> None:
        """Refuse an entry that makes a full table larger. One that makes it smaller is welcome."""
        more = _size(namespace, key, value)
        known = self.get(namespace, key)
        if known is not None:
            more -= _size(namespace, key, known)
        if more > 0 and more + sum(_size(*entry) for entry in self.items()) > self.max_table_bytes:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"the entries would have more than {self.max_table_bytes} bytes, the limit (maxKvBytes)",
            )
        if more > 0:
            self._account.check(ENTRY_COST + TEXT_COST * more, f"key {key[:200]!r}")

    async def _replace(self, table: _Table) -> None:
        if self.path is not None:
            data = KVConfigSerializeWrapper(config_table=table).encode_pretty()
            try:
                await trio.to_thread.run_sync(write_atomically, self.path, data)
            except OSError as error:
                reason = f"{self.path} cannot be written: {error.strerror}; nothing was changed"
                raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason) from None
        self._set(table)

    def _set(self, table: _Table) -> None:
        self._table = table
        text_bytes = sum(_size(*entry) for entry in self.items())
        self._account.set(ENTRY_COST * self.entry_count() + TEXT_COST * text_bytes)


def _size(namespace: str, key: str, value: str) -> int:
    return sum(len(text.encode("utf-8", "surrogatepass")) for text in (namespace, key, value))


def _read(path: Path) -> _Table:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StartError(f"{path} cannot be read: {error.strerror}") from None
    if not data.strip():
        raise BodyError("the file is empty")
    return KVConfigSerializeWrapper.decode(data).config_table
