"""One slave's link to the LogServer: its reports come in, the log goes out (RocketMQ: HAConnection).

A link has two tasks and one buffer of at most `PASSING_BYTES`. If the slave is up to date, a commit sends it the new
bytes before its turn ends. A slave that is behind is served in steps, which read in a thread if the log is not in
memory. A slave that reports nothing for haHousekeepingInterval, or reports more than it can have, is disconnected.

Nothing here writes to the store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.replication.frames import ReportDecoder, TransferBuffer, encode_heartbeat, encode_transfers
from triomq.broker.replication.ha_tls import NO_TLS_HERE
from triomq.protocol.errors import FrameError
from triomq.remoting.handshake import HandshakeFailed, begins_tls, explained
from triomq.store.errors import StoreBroken, StoreError, StoreFull
from triomq.store.message_store import DefaultMessageStore
from triomq.store.watermark import Watermark

log = structlog.get_logger("triomq.broker.replication")

TURN_BYTES = 256 * 1024
"""Log bytes read and sent per step for a slave that is behind; other tasks may run between two steps."""
GIVE_WAY_BYTES = 512 * 1024
GIVE_WAY_SECONDS = 0.003
"""See CatchUp."""
PASSING_BYTES = 512 * 1024
"""The most log bytes that a commit itself sends; the link's task sends a longer commit."""
REPORT_READ_BYTES = 4096
AFTER_FAILED_PUT_SECONDS = 0.1


Write = Callable[[bytes], int]
"""Send what the socket accepts without waiting; return the number of bytes. Raises OSError."""
Accept = Callable[[trio.abc.Stream, str], Awaitable[trio.abc.Stream]]
"""Return the stream to use, after a TLS handshake if the peer begins one (HaTls.accept). Raises HandshakeFailed."""


class LinkClosed(Exception):
    """The link ends; the text says why. The slave may connect again."""


class SlaveLink:
    """One slave. `reported` is its last report, -1 before the first. `sent` is the offset up to which the log was sent
    to it. `write_now` lets a commit write to the stream directly; without it the link's own task sends everything.
    `acknowledged` receives each report that is a statement about the log here. `accept` decides about TLS.
    `is_refused`: it was not an acceptable TLS connection."""

    def __init__(
        self,
        stream: trio.abc.Stream,
        remote: str,
        configuration: Configuration,
        store: DefaultMessageStore,
        write_now: Write | None = None,
        acknowledged: Callable[[int], None] = lambda offset: None,
        accept: Accept | None = None,
    ) -> None:
        self.remote = remote
        self.is_refused = False
        self.reported = -1
        self.sent = -1
        self._stream = stream
        self._configuration = configuration
        self._store = store
        self._write_now = write_now
        self._acknowledged = acknowledged
        self._accept = accept
        self._last_sent = 0.0
        self._unsent = b""
        self._catch_up: CatchUp | None = None
        self._begun = trio.Event()
        self._close_reason = "closed"
        self._scope = trio.CancelScope()

    @property
    def is_silent(self) -> bool:
        """Return whether the slave has not reported yet."""
        return self.reported < 0

    @property
    def acknowledged_offset(self) -> int:
        """Return the offset up to which the slave has the log, as far as its report says something about the log here:
        a slave that is ahead has other records there."""
        return self.reported if self.reported <= self._store.reading.max_physical_offset else -1

    def close(self, reason: str = "closed") -> None:
        """End the link; the slave may connect again."""
        self._close_reason = reason
        self._scope.cancel()

    async def run(self) -> str:
        """Serve until something ends the link; return the reason. Closes the stream. Raises Cancelled only."""
        reason = ""
        try:
            with self._scope:
                await self._secure()
                async with self._stream, trio.open_nursery() as nursery:
                    nursery.start_soon(self._send)
                    await self._receive()
        except* (LinkClosed, FrameError, StoreError) as errors:
            reason = str(_first(errors))
        except* HandshakeFailed as errors:
            self.is_refused = True
            reason = str(_first(errors))
        except* (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as errors:
            cause = _first(errors)
            reason = f"connection lost: {explained(cause)}"
        return reason or self._close_reason

    async def _secure(self) -> None:
        """Find out whether the slave uses TLS; its first byte tells."""
        if self._accept is None:
            return
        with trio.move_on_after(self._configuration.store.ha_housekeeping_interval_ms / 1000) as limit:
            stream = await self._accept(self._stream, self.remote)
            if isinstance(stream, trio.SSLStream):
                self._write_now = None  # it would pass TLS by
            self._stream = stream
        if limit.cancelled_caught:
            raise LinkClosed("no report for haHousekeepingInterval")

    async def _receive(self) -> None:
        decoder = ReportDecoder()
        heard = trio.current_time()
        while True:
            # Since the last whole report: single bytes do not keep a link open.
            with trio.move_on_at(heard + self._configuration.store.ha_housekeeping_interval_ms / 1000) as limit:
                data = await self._stream.receive_some(REPORT_READ_BYTES)
            if limit.cancelled_caught:
                raise LinkClosed("no report for haHousekeepingInterval")
            if not data:
                raise LinkClosed("the slave closed the connection")
            if not self._begun.is_set() and begins_tls(data):
                raise LinkClosed(NO_TLS_HERE)
            reports = decoder.feed(data)
            if reports:
                heard = trio.current_time()
                self._take(reports)

    def _take(self, reports: list[int]) -> None:
        last, end = reports[-1], self._store.reading.max_physical_offset
        if not self._begun.is_set():
            self.sent = reports[0] or self._start_of_newest_file()
            self._begun.set()
            log.info("slave connected", slave=self.remote, physical_offset=self.sent)
        elif last > end:
            raise LinkClosed(f"the slave reports {last}, beyond the end of this log at {end}")
        elif last > self.sent:
            raise LinkClosed(f"the slave reports {last}, but was sent the log up to {self.sent} only")
        self.reported = last
        if self.acknowledged_offset >= 0:
            self._acknowledged(last)

    def _start_of_newest_file(self) -> int:
        end = self._store.reading.max_physical_offset
        return end - end % self._store.settings.mapped_file_size_commit_log_bytes

    async def _send(self) -> None:
        await self._begun.wait()
        if 0 <= self.sent < self._store.reading.min_physical_offset:
            log.warning(
                "deleted log requested by a slave; give it an empty store directory",
                slave=self.remote,
                physical_offset=self.sent,
                min_offset=self._store.reading.min_physical_offset,
            )
        await self._send_heartbeat()
        while True:
            if self.sent < self._store.committed.value and await self._send_turn():
                continue
            self._catch_up = None
            quiet_seconds = self._configuration.store.ha_send_heartbeat_interval_ms / 1000
            with trio.move_on_at(self._last_sent + quiet_seconds):
                await self._wait_for_work()
            if self._unsent:
                unsent, self._unsent = self._unsent, b""
                await self._stream.send_all(unsent)
            elif trio.current_time() >= self._last_sent + quiet_seconds:
                await self._send_heartbeat()

    async def _send_heartbeat(self) -> None:
        await self._stream.send_all(encode_heartbeat(self.sent))
        self._last_sent = trio.current_time()

    async def _send_turn(self) -> bool:
        """Send the next bytes, at most TURN_BYTES; return False if they were deleted."""
        batch_bytes = self._configuration.store.ha_transfer_batch_size_bytes
        if self._catch_up is None or self._catch_up.buffer.batch_bytes != batch_bytes:
            self._catch_up = CatchUp(batch_bytes, self._store.committed)
        buffer = self._catch_up.buffer
        # `sent` does not change during this await: commits send directly only while this task waits in
        # `_wait_for_work`.
        count = await self._store.reading.read_log_into(self.sent, buffer.places)
        if not count:
            return False
        transfers = buffer.transfers(self.sent, count)
        self._count_sent(count)
        await self._stream.send_all(transfers)
        await self._catch_up.give_way(count)
        return True

    def _count_sent(self, log_bytes: int) -> None:
        self.sent += log_bytes
        self._last_sent = trio.current_time()

    async def _wait_for_work(self) -> None:
        """Wait until the link's task has work to do. Meanwhile commits may send their bytes directly."""
        committed = self._store.committed
        if committed.value > self.sent:  # the log is longer, but the part that the slave wants was deleted
            await trio.sleep_forever()
        if self._write_now is None:
            try:
                await committed.wait_beyond(self.sent)
            except (StoreFull, StoreBroken):  # some puts failed; what is in the log can still be sent
                await trio.sleep(AFTER_FAILED_PUT_SECONDS)
            return
        push = Push(self, committed, self._write_now)
        try:
            await push.over.wait()
        finally:
            push.stop()
        if push.error is not None:
            if not isinstance(push.error, StoreFull | StoreBroken):
                raise push.error
            await trio.sleep(AFTER_FAILED_PUT_SECONDS)

    def write_next(self, write: Write) -> bool:
        """Send what has just been committed, without waiting. Return False if the link's task must continue. Raises
        OSError."""
        data = self._store.reading.read_log(self.sent, PASSING_BYTES)
        frames = encode_transfers(self.sent, data, self._configuration.store.ha_transfer_batch_size_bytes)
        self._count_sent(len(data))
        try:
            count = write(frames)
        except BlockingIOError:
            count = 0
        self._unsent = frames[count:]
        return not self._unsent and self.sent == self._store.committed.value


class CatchUp:
    """The state of a link whose slave is behind: a buffer, and a measure of how busy the producers are. While they are
    busy, the slave gains GIVE_WAY_BYTES on them, then the link leaves them alone for GIVE_WAY_SECONDS. So the slave
    catches up however fast they are, and at full speed if they are idle."""

    def __init__(self, batch_bytes: int, committed: Watermark) -> None:
        self.buffer = TransferBuffer(batch_bytes, TURN_BYTES)
        self._committed = committed
        self._committed_then = committed.value
        self._may_send = GIVE_WAY_BYTES

    async def give_way(self, sent_bytes: int) -> None:
        """Wait if it is the producers' time, after `sent_bytes` bytes of log were sent."""
        self._may_send -= sent_bytes
        if self._may_send > 0:
            return
        if self._committed.value != self._committed_then:
            await trio.sleep(GIVE_WAY_SECONDS)
        self._may_send = GIVE_WAY_BYTES + self._committed.value - self._committed_then
        self._committed_then = self._committed.value


class Push:
    """Sends each commit as soon as it is made, while a link's task waits. `over` is set when the task has to
    continue."""

    __slots__ = ("_committed", "_link", "_waiter", "_write", "error", "over")

    def __init__(self, link: SlaveLink, committed: Watermark, write: Write) -> None:
        self.over = trio.Event()
        self.error: Exception | None = None
        self._link = link
        self._committed = committed
        self._write = write
        self._waiter = committed.call_beyond(link.sent, self._passed)

    def stop(self) -> None:
        if self._waiter is not None:
            self._waiter.cancel()

    def _passed(self, error: Exception | None) -> None:
        """Handle a commit. The watermark calls this, so it must not raise."""
        self.error = error
        try:
            if error is None and self._link.write_next(self._write):
                self._waiter = self._committed.call_beyond(self._link.sent, self._passed)
                return
        except OSError as lost:
            self.error = lost
        self.over.set()


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
