"""Fail-stop: the reaction of a store to a failed write.

Holds the reason, once there is one; it is never reset, so only a new process recovers from it. Two grades:

    broken   The operating system refused a write or a sync, so the state of the disk is uncertain. Puts are refused,
             waits for the disk end with an error, reads continue.
    failed   An unexpected exception was raised while messages were being written: a bug, a plug-in, a callback, no
             memory. Log, queues and the state in memory may disagree now, and running code cannot detect that. Nothing
             more may be acknowledged: every wait ends with an error, every further commit raises, and `wait` raises in
             the store's own nursery, so that the process ends even if some code dropped the first exception.

Why that loses nothing: an acknowledgement requires a completed commit (and a sync, if the caller waits for one), so
every acknowledged message was in the log before the failure. The abort file stays and no clean note is written, so the
next start does not trust the files: it reads the log after the last checkpoint and rebuilds queues and index from it.
It may also find messages whose commit failed; their producers received an error or no response, and send again.

Only the store's own thread may touch it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import structlog
import trio

from triomq.store.contents import Marks
from triomq.store.errors import StoreBroken, StoreError, StoreFailed
from triomq.store.refusals import Refusals
from triomq.store.watermark import Watermark

log = structlog.get_logger("triomq.store")


class FailStop:
    """Ends the waits for the disk when the store is broken, and all waits when it failed."""

    def __init__(self, marks: Marks, refusals: Refusals) -> None:
        self._marks = marks
        self._refusals = refusals
        self._failed = trio.Event()
        self.reason: str | None = None
        self.failure: StoreFailed | None = None

    def broke(self, reason: str) -> None:
        """Mark the store broken: a write failed and the state of the disk is uncertain. Later calls change nothing."""
        if self.reason is None:
            self.reason = reason
            log.error("store broken; it refuses messages until a restart", reason=reason)
            text = f"{reason}; the store refuses messages until it is restarted"
            self._refusals.set("broken", text)
            self._end_waits([self._marks.flushed], StoreBroken(text))

    def fail(self, doing: str, error: BaseException) -> NoReturn:
        """Mark the store failed: `doing` raised the unexpected `error`. Raises StoreFailed, or `error` itself if it is
        not an Exception (it asks the process to end)."""
        self.mark_failed(doing, error)
        if not isinstance(error, Exception) or isinstance(error, StoreFailed):
            raise error
        raise StoreFailed(str(self.failure)) from error

    def mark_failed(self, doing: str, error: BaseException) -> None:
        """Mark the store failed without raising. Later failures change nothing."""
        if self.failure is None:
            self.failure = StoreFailed(f"{doing} failed; restart to recover the store: {_text(error)}")
            self.failure.__cause__ = error
            self.reason = str(self.failure)
            log.info("store failed", reason=self.reason, exc_info=error)  # the end of the process reports it
            self._refusals.set("broken", self.reason)
            self._end_waits(self._marks.all(), self.failure)
            self._failed.set()

    def check(self) -> None:
        """Raise StoreFailed if the store has failed."""
        if self.failure is not None:
            raise StoreFailed(str(self.failure)) from self.failure

    @contextmanager
    def during(self, doing: str) -> Iterator[None]:
        """Treat every exception raised inside, except cancellation, as a failure of the store. (A commit runs once per
        turn and does the same with plain statements, which cost less.)"""
        try:
            yield
        except trio.Cancelled:
            raise
        except BaseException as error:
            self.fail(doing, error)

    async def wait(self) -> NoReturn:
        """Wait for a failure, then raise StoreFailed."""
        await self._failed.wait()
        self.check()
        raise AssertionError("the event is set by a failure only")

    @staticmethod
    def _end_waits(marks: list[Watermark], error: StoreError) -> None:
        """End every wait, even if the callback of a waiter raises."""
        for mark in marks:
            try:
                mark.fail(error)
            except BaseException as second:
                log.error("waiter's callback failed", exc_info=second)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
