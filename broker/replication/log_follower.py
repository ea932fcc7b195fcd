"""LogFollower: the slave's side of replication; connects to the master and appends its log (RocketMQ: HAClient).

The master's HA address is haMasterAddress, or what the NameServers return at each registration. There is one connection
at a time, with one task that receives and one that reports; replication/overlap.py decides what may be appended. Log
bytes are written as they arrive and reported at once; queues and index follow, so that a synchronous master's producers
do not wait for them. With SYNC_FLUSH the report covers what is on disk. There is a report at least every
haSendHeartbeatInterval. A master that is silent for haHousekeepingInterval is abandoned.

Any failure ends the connection; the next one follows after a pause. A full disk is retried until it has room. An end
of the log that the master lacks is saved and cut (store/upkeep/tail_cut.py) if this broker wrote it as a master. If it
came from a master (copied.py), or if the log has nothing in common with the master's, the log is left alone: `refused`
says so, and nothing is replicated from that master.

On a slave only this task writes to the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.replication.copied import CopiedPart
from triomq.broker.replication.frames import TransferDecoder, encode_report
from triomq.broker.replication.overlap import OutOfStep, Overlap
from triomq.broker.tables.table_file import NoFile
from triomq.protocol.errors import FrameError
from triomq.remoting import network
from triomq.remoting.handshake import explained
from triomq.store.config import FlushDiskType
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore

log = structlog.get_logger("triomq.broker.replication")

CONNECT_SECONDS = 5.0
RETRY_SECONDS = 5.0
"""The pause between connections that make no progress (HAClient.run), and after a failed write."""
FIRST_RETRY_SECONDS = 0.25
"""The first such pause. It doubles each time up to RETRY_SECONDS, because the master may only be restarting."""
RECONNECT_SECONDS = 0.2
REFUSED_SECONDS = 30.0
QUIET_SECONDS = 2.0
"""A master that has the requested bytes sends them directly after its first heartbeat."""
HEARTBEATS_AT_END = 2
"""This number of consecutive heartbeats without log bytes means that the master's log ends there."""
RECEIVE_BYTES = 256 * 1024
"""Log bytes received, written and dispatched per step; other tasks may run between two steps."""
SHORTEST_HA_ADDRESS = 6
MASTER_CLOSED = "the master closed the connection"
MASTER_REFUSED = (
    "the master closed the connection before it sent anything; its log says why. Perhaps it requires TLS "
    "(tls.ha.enable=true here), or another certificate"
)

Connect = Callable[[str, int], Awaitable[trio.abc.Stream]]


class Ending(Enum):
    """How a connection ended; determines the next step."""

    LOST = "the connection ended"
    FRUITLESS = "the connection ended before any data arrived"
    LOOK_BACK = "the master has nothing at the first compared offset"
    DIVERGED = "the log differs from the master's"
    NOT_WRITTEN = "the log cannot be written"


class LogFollower:
    """See the module's docstring. Run `run` on slaves only. `connect(host, port)` opens a stream or raises OSError.
    `on_cut` is called at the moment the log has lost its end."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        connect: Connect = network.connect,
        *,
        copied: CopiedPart | None = None,
        on_cut: Callable[[], None] = lambda: None,
    ) -> None:
        self.copied = copied if copied is not None else CopiedPart(NoFile())
        self._refused: str | None = None
        self._configuration = configuration
        self._store = store
        self._connect = connect
        self._on_cut = on_cut
        self._learnt: str | None = None
        self._address_changed = trio.Event()
        self._steps_back = 0
        self._next_retry_seconds = FIRST_RETRY_SECONDS
        self._last_failure = ""
        self._following: Following | None = None

    @property
    def refused(self) -> str | None:
        """Return why nothing is replicated from the present master until somebody decides, or None."""
        return None if self._following is not None and self.agrees else self._refused

    @property
    def is_following(self) -> bool:
        """Return whether there is a connection to the master."""
        return self._following is not None

    @property
    def agrees(self) -> bool:
        """Return whether the log is known to match the present master's, as far as it goes. True while the log is
        empty."""
        following = self._following
        if self._store.reading.max_physical_offset == 0:
            return True
        return following is not None and following.overlap.took_any and following.overlap.is_known

    @property
    def address(self) -> str | None:
        """Return the master's HA address, "host:port"."""
        fixed = self._configuration.store.ha_master_address
        return fixed if fixed and len(fixed) >= SHORTEST_HA_ADDRESS else self._learnt

    def master_known(self, ha_address: str | None) -> None:
        """Learn the master's HA address from a NameServer. A response without a master changes nothing, because the
        master may return."""
        if ha_address and ha_address != self._learnt:
            log.info("master's HA address learnt", address=ha_address, before=self._learnt)
            self._learnt = ha_address
            self._address_changed.set()

    async def run(self) -> None:
        """Follow the current master, until cancelled."""
        while True:
            self._address_changed = trio.Event()
            self.copied.follows(self._store.reading.max_physical_offset)
            address = self.address
            pause = RETRY_SECONDS if address is None else await self._follow(address)
            with trio.move_on_after(pause):
                await self._address_changed.wait()

    async def _follow(self, address: str) -> float:
        """Follow over one connection. Return the number of seconds to wait before the next."""
        try:
            host, _, port = address.rpartition(":")
            with trio.fail_after(CONNECT_SECONDS):
                stream = await self._connect(host, int(port))
        except (OSError, ValueError, trio.TooSlowError) as error:
            reason = str(error) or f"no response within {CONNECT_SECONDS:g} s"
            self._failed(address, f"cannot be reached: {reason}")
            return self._pause_seconds()
        following = self._following = Following(self._configuration, self._store, stream, self._steps_back)
        ending, reason = await following.run()
        if ending is not Ending.NOT_WRITTEN:
            self._following = None  # the next broker at that address may have another log
        if ending is Ending.LOOK_BACK:
            return self._look_back(following.overlap, address)
        if ending is Ending.DIVERGED:
            return await self._cut(following.overlap, address)
        if following.overlap.is_known and following.overlap.took_any:
            self._steps_back = 0
            self._refused = None
            self._last_failure = ""
        self._failed(address, reason)
        if ending is Ending.LOST:
            self._next_retry_seconds = FIRST_RETRY_SECONDS
            return RECONNECT_SECONDS
        return self._pause_seconds() if ending is Ending.FRUITLESS else RETRY_SECONDS

    def _pause_seconds(self) -> float:
        """Return the pause before the next connection when the last one made no progress."""
        pause = self._next_retry_seconds
        self._next_retry_seconds = min(2 * pause, RETRY_SECONDS)
        return pause

    def _failed(self, address: str, reason: str) -> None:
        if reason != self._last_failure:
            self._last_failure = reason
            log.warning("master not followed at present", master=address, reason=reason)

    def _look_back(self, overlap: Overlap, address: str) -> float:
        if overlap.reaches_start:
            return self._refuse(address, overlap.begin, self._nothing_in_common(address))
        self._steps_back += 1
        log.warning("end of this log not found at the master", master=address, physical_offset=overlap.begin)
        return RECONNECT_SECONDS

    async def _cut(self, overlap: Overlap, address: str) -> float:
        """Cut the part that differs, if a record before it is proved identical."""
        store = self._store
        border = await store.replica.border(overlap.divergence)
        if overlap.reaches_start:
            is_proved = border > max(0, store.reading.min_physical_offset)
        else:
            first = await store.replica.border(overlap.begin)
            if first < overlap.begin:  # this record is compared only in part: the next is the first whole one
                first += int.from_bytes(store.reading.read_log(first, 4), "big")
            is_proved = border > first
        if not is_proved:
            return self._look_back(overlap, address)
        end = store.reading.max_physical_offset
        copied_from = max(border, self.copied.follows(end))
        if copied_from < end and not self._configuration.store.ha_cut_copied:
            return self._refuse(address, border, _went_back(address, copied_from, end))
        try:
            saved = await store.replica.cut(border)
        except OSError as error:
            self._failed(address, f"the end of the log cannot be saved: {error}")
            return RETRY_SECONDS
        self._on_cut()
        self.copied.follows(store.reading.max_physical_offset)
        self._steps_back = 0
        if saved is None:
            self._failed(address, "the log cannot be truncated at present")
            return RETRY_SECONDS
        return 0.0

    def _nothing_in_common(self, address: str) -> str:
        own = self._store.reading
        return (
            f"this log ({own.min_physical_offset} to {own.max_physical_offset}) has no message in "
            f"common with that of {address}: it is another log, or the master has deleted everything of it. Nothing is "
            "replicated. To follow this master, stop this broker and move its store directory away"
        )

    def _refuse(self, address: str, physical_offset: int, text: str) -> float:
        self._steps_back = 0
        if self._refused is None:
            log.error("replication refused", master=address, physical_offset=physical_offset, reason=text)
        self._refused = text
        return REFUSED_SECONDS


class Following:
    """One connection to a master."""

    def __init__(
        self, configuration: Configuration, store: DefaultMessageStore, stream: trio.abc.Stream, steps_back: int
    ) -> None:
        self.overlap = Overlap(store.reading, steps_back)
        self._configuration = configuration
        self._store = store
        self._stream = stream
        self._decoder = TransferDecoder()
        self._told = self.overlap.begin
        self._is_telling = False
        self._progress = trio.Event()
        self._heartbeats = 0
        self._came_any = False
        self._ending = Ending.FRUITLESS
        self._reason = ""

    async def run(self) -> tuple[Ending, str]:
        """Follow until the connection ends; return how it ended, and why. Closes the stream. Raises Cancelled only."""
        try:
            async with self._stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._report)
                if self._configuration.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
                    nursery.start_soon(self._watch_flushed)
                await self._receive()
                nursery.cancel_scope.cancel()
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as errors:
            error = _first(errors)
            self._reason = f"connection lost: {explained(error)}"
            if not self._came_any and not self._heartbeats:
                self._reason = f"{MASTER_REFUSED} ({explained(error)})"
        except* (FrameError, OutOfStep, StoreError) as errors:
            error = _first(errors)
            self._reason = str(error)
        if self._came_any and self._ending is Ending.FRUITLESS:
            self._ending = Ending.LOST
        return self._ending, self._reason or self._ending.value

    @property
    def _asks_in_vain(self) -> bool:
        """Return whether data is missing that the master should have sent by now."""
        return not self.overlap.took_any and not self.overlap.is_known

    # -- receiving -------------------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        """Receive until the connection has to end."""
        while self._ending is Ending.FRUITLESS:
            silence_seconds = self._configuration.store.ha_housekeeping_interval_ms / 1000
            # Silence may also come from a slow host. It suffices for comparing more, but not for a refusal.
            asked_in_vain = self._heartbeats > 0 and self._asks_in_vain and not self.overlap.reaches_start
            with trio.move_on_after(min(silence_seconds, QUIET_SECONDS) if asked_in_vain else silence_seconds) as limit:
                data = await self._stream.receive_some(RECEIVE_BYTES)
            if limit.cancelled_caught:
                if asked_in_vain:
                    self._ending = Ending.LOOK_BACK
                self._reason = f"nothing came for {silence_seconds:g} s (haHousekeepingInterval)"
                return
            if not data:
                self._reason = MASTER_CLOSED if self._came_any or self._heartbeats else MASTER_REFUSED
                return
            try:
                self._take_all(data)
                await self._tell_progress()
            finally:
                self._store.replica.dispatch()

    def _take_all(self, data: bytes | bytearray) -> None:
        for physical_offset, part in self._decoder.feed(data):
            if not part:
                self._heartbeat()
            else:
                self._take(physical_offset, part)
            if self._ending is not Ending.FRUITLESS:
                return

    def _heartbeat(self) -> None:
        self._heartbeats += 1
        overlap = self.overlap
        if self._heartbeats >= HEARTBEATS_AT_END and not overlap.is_known:
            if overlap.took_any:
                overlap.divergence = overlap.position
                self._ending = Ending.DIVERGED
            else:
                self._ending = Ending.LOOK_BACK

    def _take(self, physical_offset: int, data: bytes) -> None:
        """Compare or write the bytes; set the ending if the connection has to end."""
        overlap = self.overlap
        self._heartbeats = 0
        self._came_any = True
        rest = overlap.take(physical_offset, data)
        if overlap.divergence >= 0:
            self._ending = Ending.DIVERGED
            return
        file_bytes = self._store.settings.mapped_file_size_commit_log_bytes
        at = 0
        while at < len(rest):
            part = rest[at : at + file_bytes - overlap.position % file_bytes]
            if not self._store.replica.append(overlap.position, part):
                self._ending = Ending.NOT_WRITTEN
                self._reason = self._store.replica.fault or "log bytes cannot be written"
                return
            at += len(part)
            overlap.appended(overlap.position + len(part))

    # -- reporting -------------------------------------------------------------------------------------------------

    @property
    def _has(self) -> int:
        """Return the physical offset up to which the log is safely stored here."""
        if self._configuration.store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return min(self.overlap.position, self._store.flushed.value)
        return self.overlap.position

    async def _tell_progress(self) -> None:
        """Report progress; called by the receiving task."""
        if self._has <= self._told:
            return
        if self._is_telling:  # a report is stuck; the other task continues when it is sent
            self._progress.set()
        else:
            await self._tell()

    async def _tell(self) -> None:
        self._is_telling = True
        try:
            self._told = max(self._told, self._has)
            await self._stream.send_all(encode_report(self._told))
        finally:
            self._is_telling = False

    async def _report(self) -> None:
        """Report where to begin, then repeat reports while nothing changes, and send those the receiving task could
        not."""
        await self._tell()
        while True:
            with trio.move_on_after(self._configuration.store.ha_send_heartbeat_interval_ms / 1000):
                await self._progress.wait()
            self._progress = trio.Event()
            # A RocketMQ master closes the connection at the second report of more than it has, instead of sending a
            # heartbeat.
            if not self._is_telling and not self._asks_in_vain:
                await self._tell()

    async def _watch_flushed(self) -> None:
        while True:
            await self._store.flushed.wait_beyond(self._store.flushed.value)
            self._progress.set()


def _went_back(address: str, begin: int, end: int) -> str:
    return (
        f"{address} lacks {end - begin} bytes ({begin} to {end}) that this log has from a master: it was restored from "
        "an older copy of its disk, or lost its end in a crash. Producers may have got SEND_OK for them. Nothing is "
        "replicated. To keep these messages, make this broker the master; to give them up, set haCutCopied=true here, "
        "which saves them under salvage/ and cuts them"
    )


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
