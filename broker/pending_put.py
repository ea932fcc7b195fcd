"""Puts in progress: what MessageWriter finishes when a message is as durable as it requests.

Watermarks and deadlines call them; the outcome is in `result.status`. They hold no task and send nothing: subclasses
send the response, or wake the task that waits.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

import trio

from triomq.broker.put_responses import STORED
from triomq.store.results import PutResult, PutStatus
from triomq.store.watermark import Watermark

_PUT_OK: Final = PutStatus.PUT_OK
_FLUSH_DISK_TIMEOUT: Final = PutStatus.FLUSH_DISK_TIMEOUT


class PendingPut:
    """One put in progress. `finish` is called exactly once, when `result.status` holds the outcome.

    It waits for one watermark of this broker's store, and for a slave while `replica_status` is None.
    """

    __slots__ = (
        "is_finished",
        "is_stored",
        "late_status",
        "replica_deadline",
        "replica_status",
        "result",
    )

    def __init__(self) -> None:
        self.result: PutResult
        self.is_finished = False
        self.is_stored = False
        self.replica_deadline = 0.0
        self.late_status = _FLUSH_DISK_TIMEOUT
        self.replica_status: PutStatus | None = _PUT_OK

    def begin(self, result: PutResult) -> None:
        """Take what the store says of the put, before anything is waited for."""
        self.result = result

    def finish(self) -> None:
        """Complete the put; subclasses send the response here."""

    def release_body(self) -> None:
        """Give back the body of the message: it is in the log, and the put may wait long for the disk or a slave."""

    def reached(self, error: Exception | None) -> None:
        """Note that the watermark of this broker's store passed this put, or failed (called by the watermark)."""
        if self.is_finished:
            return
        if error is not None:
            self.result.status = PutStatus.SERVICE_NOT_AVAILABLE
            self.result.reason = str(error)
            self.is_finished = True
            self.finish()
            return
        self._stored(_PUT_OK)

    def too_late(self) -> None:
        """Note that this broker's store took longer than the put may wait."""
        if not self.is_finished and not self.is_stored:
            self._stored(self.late_status)

    @property
    def is_replica_known(self) -> bool:
        return self.replica_status is not None or self.is_finished

    def set_replica_status(self, status: PutStatus) -> None:
        """Set the slaves' part of the outcome; the put no longer waits for them."""
        if self.replica_status is None and not self.is_finished:
            self.replica_status = status
            if self.is_stored:
                self._stored(self.result.status)

    def _stored(self, status: PutStatus) -> None:
        """Note the outcome of this broker's part."""
        self.result.status = status
        self.is_stored = True
        if self.replica_status is None:
            return
        if self.replica_status is not _PUT_OK:
            self.result.status = self.replica_status
        self.is_finished = True
        self.finish()


class PutGroup:
    """Puts of one commit, with one callback and one deadline for all. A watermark passes all of them at once or none;
    only a quorum of a group may have the first of them sooner than the last, for which the group then waits again."""

    __slots__ = ("_watermark", "commit_begin", "deadline", "puts")

    def __init__(self, commit_begin: int, watermark: Watermark | None = None) -> None:
        """`commit_begin` is the physical offset at which the commit begins, -1 for a group that accepts no more
        puts. `watermark` is the one that calls `reached`."""
        self._watermark = watermark
        self.commit_begin = commit_begin
        self.deadline = inf
        self.puts: list[PendingPut] = []

    def reached(self, error: Exception | None) -> None:
        """Complete the group's puts, when the watermark has passed the last of them or fails."""
        if error is None and self._watermark is not None:
            last_offset = self.puts[-1].result.last_offset
            if last_offset >= self._watermark.value:
                self._watermark.call_beyond(last_offset, self.reached)
                return
        self.commit_begin = -1
        for put in self.puts:
            if error is not None or put.is_finished or put.replica_status is not _PUT_OK:
                put.reached(error)
            else:  # what it does with nearly all, without two calls
                put.result.status = _PUT_OK
                put.is_stored = put.is_finished = True
                put.finish()

    def too_late(self) -> None:
        """Note that the disk took longer than these puts may wait."""
        for put in self.puts:
            put.too_late()


class DependentPut(PendingPut):
    """Stands in for a put that depends on a new topic or group: when it is stored, it waits until that is safe."""

    __slots__ = ("_call_when_kept", "_put")

    def __init__(self, put: PendingPut, call_when_kept: Callable[[Callable[[str], None]], None]) -> None:
        """`call_when_kept` calls what it receives when the name is safe, or with the reason why it is not."""
        super().__init__()
        self._put = put
        self._call_when_kept = call_when_kept

    def begin(self, result: PutResult) -> None:
        self.result = result
        self._put.begin(result)  # the same object: the owner of the put looks at it

    def release_body(self) -> None:
        self._put.release_body()

    def finish(self) -> None:
        if self.result.status in STORED:
            self._call_when_kept(self._kept)
        else:
            self._kept("")

    def _kept(self, reason: str) -> None:
        if reason:
            self.result.status = PutStatus.SERVICE_NOT_AVAILABLE
            self.result.reason = reason
        self._put.is_finished = True
        self._put.finish()


class AwaitedPut(PendingPut):
    """A put that a task waits for."""

    __slots__ = ("_done",)

    def __init__(self) -> None:
        super().__init__()
        self._done = trio.Event()

    def finish(self) -> None:
        self._done.set()

    async def wait(self) -> PutResult:
        await self._done.wait()
        return self.result


class NotifyingPut(PendingPut):
    """A put that calls `stored` when it is stored, and nobody if it is not."""

    __slots__ = ("_call",)

    def __init__(self, stored: Callable[[], None]) -> None:
        super().__init__()
        self._call = stored

    def finish(self) -> None:
        if self.result.status is _PUT_OK:
            self._call()


class WatchedPut(PendingPut):
    """A put that calls `refused` if it is not stored."""

    __slots__ = ("_refused",)

    def __init__(self, refused: Callable[[PutResult], None]) -> None:
        super().__init__()
        self._refused = refused

    def finish(self) -> None:
        if self.result.status is not _PUT_OK:
            self._refused(self.result)
