"""Work that a full disk delayed, done once there is space: write queue entries and catch up the index.

Nothing is lost meanwhile. The entries wait in memory, and puts are refused, so their number is bounded. The index is
built from the log, which has every message. Runs in the event loop, in steps.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog
import trio

from triomq.store.contents import Contents
from triomq.store.fail_stop import FailStop
from triomq.store.queues.dispatch import Dispatch

log = structlog.get_logger("triomq.store")

RETRY_SECONDS = 1.0
_CATCH_UP_BYTES = 1 << 20


class Backlog:
    """The delayed work of one store. `write_entries` writes the waiting entries, and does nothing if there are none."""

    __slots__ = ("_contents", "_dispatch", "_fail_stop", "_write_entries")

    def __init__(
        self, contents: Contents, dispatch: Dispatch, fail_stop: FailStop, write_entries: Callable[[], None]
    ) -> None:
        self._contents = contents
        self._dispatch = dispatch
        self._fail_stop = fail_stop
        self._write_entries = write_entries

    async def run(self) -> None:
        """Retry every second until cancelled."""
        while True:
            await trio.sleep(RETRY_SECONDS)
            self._write_entries()
            if self._contents.index.stalled_at >= 0:
                with self._fail_stop.during("indexing messages that the full disk delayed"):
                    await self.catch_up_index()

    async def catch_up_index(self) -> None:
        """Index the messages stored since the index stalled, if there is space now."""
        commit_log, index = self._contents.log, self._contents.index
        begin = index.stalled_at
        if not index.has_room():
            return
        while begin < commit_log.committed_offset:
            stop = min(begin + _CATCH_UP_BYTES, commit_log.committed_offset)
            begin = self._dispatch.index_again(commit_log, begin, stop)
            if begin < 0:
                return
            await trio.lowlevel.checkpoint()
        index.stalled_at = -1
        log.info("index completed", physical_offset=begin)
