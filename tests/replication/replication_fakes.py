"""A master and its slaves in one process: real stores, memory streams, and connections that can fail."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import cycle
from pathlib import Path
from typing import Any

import trio
import trio.testing
from fake_clock import FakeClock
from store_support import message, open_store

from triomq.broker.configuration import Configuration
from triomq.broker.replication.copied import CopiedPart
from triomq.broker.replication.log_follower import LogFollower
from triomq.broker.replication.log_server import LogServer
from triomq.broker.replication.slave_link import Write
from triomq.broker.tables.table_file import NoFile, TableFile
from triomq.store.config import BrokerRole, FlushDiskType
from triomq.store.disk.files import Files
from triomq.store.message_store import DefaultMessageStore

FILLER_SIZE = 0x7FFFFFFF
ADDRESS = "10.0.0.1:10912"


def configuration(store: DefaultMessageStore) -> Configuration:
    return Configuration(store=store.settings)


def fill(store: DefaultMessageStore, count: int, *, topic: str = "T", body: bytes = b"x" * 200) -> None:
    """Put `count` messages; each is a commit of its own."""
    for number in range(count):
        result = store.append(message(topic, number % 4, body, uniq_key=f"{topic}{store.reading.max_physical_offset}"))
        assert result.is_ok, result
        store.commit()


def log_bytes(store: DefaultMessageStore, begin: int | None = None) -> bytes:
    """Return the log from `begin` (default: its first byte) to its end."""
    at = max(0, store.reading.min_physical_offset) if begin is None else begin
    parts = []
    while data := store.reading.read_log(at, 1 << 20):
        parts.append(data)
        at += len(data)
    return b"".join(parts)


def assert_prefix(slave: DefaultMessageStore, master: DefaultMessageStore) -> None:
    """Check that the slave's log equals its master's, byte for byte, as far as it goes."""
    begin = max(0, slave.reading.min_physical_offset)
    mine = log_bytes(slave)
    assert mine == log_bytes(master, begin)[: len(mine)]


def queue_contents(store: DefaultMessageStore, begin: int = 0) -> dict[tuple[str, int, int], tuple[int, int, int]]:
    """Return (topic, queue id, queue offset) -> entry, for messages at or after `begin`."""
    found = {}
    for topic, ids in store.reading.queues().items():
        for queue_id in ids:
            queue_offset = store.reading.min_offset(topic, queue_id)
            while entries := store.reading.queue_entries(topic, queue_id, queue_offset, 10_000):
                for entry in entries:
                    if entry[0] >= begin and entry[1] != FILLER_SIZE:
                        found[topic, queue_id, queue_offset] = entry
                    queue_offset += 1
    return found


def assert_same_queues(slave: DefaultMessageStore, master: DefaultMessageStore) -> None:
    """Check that the slave's queues equal its master's, as far back as its log goes."""
    assert queue_contents(slave) == queue_contents(master, max(0, slave.reading.min_physical_offset))
    assert queue_contents(slave)


class Line:
    """One connection between a slave and its master, with an optional fault: `blackhole` accepts everything and
    delivers nothing, `delay_seconds` delays every piece, `break_after` bytes from the master end it.
    """

    def __init__(self, slave: trio.abc.Stream, master: trio.abc.Stream) -> None:
        self.slave = slave
        self.master = master
        self.blackhole = False
        self.delay_seconds = 0.0
        self.break_after = math.inf
        self.from_slave = bytearray()
        self.from_master = 0
        self._scope = trio.CancelScope()

    def cut(self) -> None:
        self._scope.cancel()

    async def run(self) -> None:
        with self._scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pump, self.slave, self.master, True)
                nursery.start_soon(self._pump, self.master, self.slave, False)
        for stream in (self.slave, self.master):
            await trio.aclose_forcefully(stream)

    async def _pump(self, source: trio.abc.Stream, target: trio.abc.Stream, is_report: bool) -> None:
        try:
            while data := await source.receive_some(8192):
                if is_report:
                    self.from_slave += data
                elif self.from_master + len(data) > self.break_after:
                    await target.send_all(data[: int(self.break_after) - self.from_master])
                    break
                else:
                    self.from_master += len(data)
                if self.delay_seconds:
                    await trio.sleep(self.delay_seconds)
                if not self.blackhole:
                    await target.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        self.cut()


class Pair:
    """One master and one slave; `lines` are the connections so far, `on_line` may prepare each."""

    def __init__(
        self,
        nursery: trio.Nursery,
        master: DefaultMessageStore,
        slave: DefaultMessageStore,
        copied: TableFile | None = None,
    ) -> None:
        self.nursery = nursery
        self.master = master
        self.slave = slave
        self.server = LogServer(configuration(master), master)
        self.chained: list[LogServer] = []
        self.settings = configuration(slave)
        part = CopiedPart(copied or NoFile())
        self.follower = LogFollower(self.settings, slave, self.connect, copied=part, on_cut=self._cut)
        self.follower.master_known(ADDRESS)
        self.lines: list[Line] = []
        self.on_line: Callable[[Line], None] = lambda line: None
        self.is_reachable = True
        self.written_now = 0

    def _cut(self) -> None:
        for server in self.chained:
            server.close_links()

    async def connect(self, host: str, port: int) -> trio.abc.Stream:
        if not self.is_reachable:
            raise OSError("no route")
        slave, line_slave = trio.testing.memory_stream_pair()
        line_master, master = trio.testing.memory_stream_pair()
        line = Line(line_slave, line_master)
        self.on_line(line)
        self.lines.append(line)
        self.nursery.start_soon(line.run)
        self.nursery.start_soon(self.server.serve, master, f"{host}:{port}", self._writer(line_master))
        return slave

    def _writer(self, line_master: trio.abc.Stream) -> Write:
        """Write as a socket does without waiting: it accepts all bytes, none, or a part."""
        assert isinstance(line_master, trio.StapledStream)
        received = line_master.receive_stream
        assert isinstance(received, trio.testing.MemoryReceiveStream)
        moods = cycle((1.0, 1.0, 0.0, 1.0, 0.5))

        def write(data: bytes) -> int:
            mood = next(moods)
            if mood == 0.0:
                raise BlockingIOError
            count = max(1, int(len(data) * mood))
            try:
                received.put_data(data[:count])
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise BrokenPipeError from error
            self.written_now += 1
            return count

        return write

    def start(self) -> trio.CancelScope:
        """Let the slave follow; cancelling the scope stops it."""
        scope = trio.CancelScope()

        async def run() -> None:
            with scope:
                await self.follower.run()

        self.nursery.start_soon(run)
        return scope

    async def wait_equal(self, seconds: float = 300) -> None:
        """Wait until the slave has the master's log."""
        with trio.fail_after(seconds):
            while not self._is_equal():  # noqa: ASYNC110 (in a test the clock jumps)
                await trio.sleep(0.05)

    def _is_equal(self) -> bool:
        if self.slave.reading.max_physical_offset != self.master.reading.max_physical_offset:
            return False
        return log_bytes(self.slave) == log_bytes(self.master, max(0, self.slave.reading.min_physical_offset))


async def open_pair(
    nursery: trio.Nursery,
    directory: Path,
    *,
    files: Files | None = None,
    slave_files: Files | None = None,
    slave: Any = None,
    **changes: Any,
) -> Pair:
    """Open stores below `directory`, as small as those of the store's tests. `files` are the master's."""
    changes.setdefault("ha_send_heartbeat_interval_ms", 1000)
    changes.setdefault("ha_housekeeping_interval_ms", 4000)
    master_store = await open_store(directory / "master", files=files, broker_role=BrokerRole.SYNC_MASTER, **changes)
    slave_store = await open_slave(directory / "slave", files=slave_files, **{**changes, **(slave or {})})
    return Pair(nursery, master_store, slave_store)


async def open_slave(directory: Path, *, files: Files | None = None, **changes: Any) -> DefaultMessageStore:
    changes.setdefault("flush_disk_type", FlushDiskType.ASYNC_FLUSH)
    return await open_store(directory, files=files, clock=FakeClock(), broker_role=BrokerRole.SLAVE, **changes)
