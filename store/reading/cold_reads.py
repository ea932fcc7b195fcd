"""Cold reads: a thread reads old parts of log and queues before the event loop touches them.

The log is read through mappings. Touching a page that is not in the page cache stops the event loop, and with it all
clients, until the disk has read it: for less than a millisecond if the disk is idle, for a tenth of a second while it
writes what a sync asks for. So pulls, and the delivery of delayed messages, ask `missing` first which parts of the log
are not in memory, and have them read (`fetch`); pulls ask the same of their queue (`missing_entries`). Who reads on
finds the rest in memory: the thread reads ahead of it.

Nobody tells what the kernel drops. So a block that was found in memory counts as such, until the first look for another
one after `TRUSTED_SECONDS`; if it was dropped meanwhile, the loop waits for the disk after all. It also does where the
system or the file system cannot tell.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from time import monotonic
from typing import Final

import structlog
import trio

from triomq.store.contents import Contents, Opened
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.disk.worker_thread import Offload, WorkerThread
from triomq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, FILLER_SIZE_BYTES, ConsumeQueue
from triomq.store.queues.entry_blocks import BLOCK_ENTRIES
from triomq.store.results import Missing

log = structlog.get_logger("triomq.store.reading.cold_reads")

BLOCK_BYTES: Final = 128 * 1024
"""What Linux reads for a fault by default."""
AHEAD_BLOCKS: Final = 32
"""4 MiB: what a consumer of 200 MB a second reads in 20 ms."""
DENSE_BYTES: Final = 4 * 1024 * 1024
"""Records that lie closer together than this are fetched with all between them, which are the next ones of other
queues, or of this one; others by themselves."""
NEAR_END_BYTES: Final = 64 * 1024 * 1024
"""Records that this process wrote, this close to the end of the log, are in memory."""
ENTRIES_BYTES: Final = BLOCK_ENTRIES * ENTRY_BYTES
"""What a pull reads of the file of its queue, unless it has a filter."""
MOST_FILES: Final = 4096
MOST_REQUESTS: Final = 10_000
MOST_AHEAD: Final = 64
"""The most consumers whose messages are read ahead at a time."""
TRUSTED_SECONDS: Final = 10.0
MOST_RECORD_BYTES: Final = 16 * 1024 * 1024
"""A damaged entry may claim any size."""
MOST_ENTRIES: Final = 64
MOST_BYTES: Final = 1024 * 1024
"""Where records lie far apart, a read examines at most this number of entries, or as many as have records of this size
together: more than a pull returns."""

_IN_MEMORY: Final = 1
_READ_ON: Final = 2  # in memory; who reads it wants what is read ahead to continue

_entry_at: Final = ENTRY.unpack_from

Fetched = Callable[[OSError | None], None]
"""Called when what was missing is in memory, or could not be read."""


class ColdReads:
    """See the module's docstring. Only while `run` runs anything is missing."""

    def __init__(
        self, contents: Contents, offload: Offload | None = None, clock: Callable[[], float] = monotonic
    ) -> None:
        """`offload` runs a blocking function outside of the event loop, by default in a thread of its own."""
        self._reader = WorkerThread("commit log reads")
        self._clock = clock
        self._log = contents.log
        self._files = contents.files
        self._offload: Offload = offload or self._reader
        self._known: dict[MappedFile, bytearray] = {}  # a byte for each block
        self._known_since = 0.0
        self._requests: deque[tuple[Missing, Fetched]] = deque()
        self._ahead: deque[tuple[MappedFile, int]] = deque(maxlen=MOST_AHEAD)  # first blocks of what to read ahead
        self._wakeup = trio.Event()
        self._is_running = False
        self.written_from = 0

    def begin(self, opened: Opened) -> None:
        self.written_from = opened.log_end

    def missing(self, entries: bytes) -> Missing | None:
        """Return what is not in memory of the records to which these queue entries (at least one) lead. None: all is,
        as far as one can tell."""
        first: int = _entry_at(entries, 0)[0]
        if first >= self.written_from and self._log.committed_offset - first <= NEAR_END_BYTES:
            return None
        if not self._is_running:
            return None
        last, size, _ = _entry_at(entries, len(entries) - ENTRY_BYTES)
        is_dense = 0 <= last - first <= DENSE_BYTES and size <= DENSE_BYTES
        blocks = self._missing_between(first, last + size) if is_dense else self._missing_of(entries)
        if not blocks:
            return None
        file, block = blocks[0]
        return Missing(blocks, reads_on=is_dense and (block == 0 or self._states(file)[block - 1] != 0))

    def missing_entries(self, queue: ConsumeQueue, queue_offset: int) -> Missing | None:
        """Return what is not in memory of the queue's file at this offset. None: all is, as far as one can tell."""
        if not self._is_running:
            return None
        at = queue_offset * ENTRY_BYTES
        file = queue.sequence.find(at)
        if file is None:
            return None
        block = (at - file.start) // BLOCK_BYTES
        last = min(at + ENTRIES_BYTES, file.end, queue.end * ENTRY_BYTES) - 1
        if self._states(file)[block] or self._is_between(file, block, at - file.start, last - file.start):
            return None
        return Missing([(file, block)], reads_on=False)

    def fetch(self, missing: Missing, then: Fetched) -> None:
        """Read what is missing, and call `then`, unless the store is closed before. The request is dropped if
        `MOST_REQUESTS` wait: then the disk does not respond, and clients that gave up ask once more."""
        if len(self._requests) < MOST_REQUESTS:
            self._request(missing, then)

    def _request(self, missing: Missing, then: Fetched) -> None:
        self._requests.append((missing, then))
        self._wakeup.set()

    async def have_read(self, entries: bytes) -> None:
        """Return when the records of these queue entries (at least one) are in memory, or could not be read."""
        missing = self.missing(entries)
        if missing is not None:
            read = trio.Event()
            self._request(missing, lambda error: read.set())
            await read.wait()

    async def run(self) -> None:
        """Read what is asked for until cancelled."""
        self._is_running = True
        try:
            while True:
                if self._requests:
                    missing, then = self._requests.popleft()
                    then(await self._read(missing))
                elif self._ahead:
                    await self._read_ahead(*self._ahead.popleft())
                else:
                    self._wakeup = trio.Event()
                    await self._wakeup.wait()
        finally:
            self._is_running = False
            self._requests.clear()
            self._ahead.clear()

    def end(self) -> None:
        """Stop the thread; `run` has ended."""
        self._reader.end()

    # -- what is in memory -------------------------------------------------------------------------------------------

    def _missing_between(self, begin: int, end: int) -> list[tuple[MappedFile, int]]:
        """Return the missing blocks of [begin, end), as far as they are of one file. What is found is what a consumer
        that reads on has reached."""
        file = self._log.sequence.find(begin)
        if file is None:
            return []
        states = self._states(file)
        missing: list[tuple[MappedFile, int]] = []
        for block in range((begin - file.start) // BLOCK_BYTES, _blocks(min(end, file.end) - file.start)):
            state = states[block]
            if state == _READ_ON:
                states[block] = _IN_MEMORY
                self._ahead.append((file, block + AHEAD_BLOCKS))
                self._wakeup.set()
            elif not state and not self._is_found(file, block):
                missing.append((file, block))
        return missing

    def _missing_of(self, entries: bytes) -> list[tuple[MappedFile, int]]:
        """Return the missing blocks of these records, which lie far apart."""
        missing: dict[tuple[MappedFile, int], None] = {}
        file: MappedFile | None = None
        wanted_bytes = 0
        for at in range(0, min(len(entries), MOST_ENTRIES * ENTRY_BYTES), ENTRY_BYTES):
            begin, size, _ = _entry_at(entries, at)
            if size == FILLER_SIZE_BYTES:
                continue
            if file is None or not file.start <= begin < file.end:
                file = self._log.sequence.find(begin)
                if file is None:
                    continue
            states = self._states(file)
            begin -= file.start
            end = begin + min(size, MOST_RECORD_BYTES)
            for block in range(begin // BLOCK_BYTES, min(_blocks(end), len(states))):
                if not states[block] and not self._is_found(file, block):
                    missing[file, block] = None
            wanted_bytes += size
            if wanted_bytes > MOST_BYTES:
                break
        return list(missing)

    def _forget(self) -> None:
        """Forget what was found too long ago, or of too many files. Called before each look into the page cache, so
        that pulls whose blocks are known need no clock."""
        now = self._clock()
        if now - self._known_since > TRUSTED_SECONDS or len(self._known) > MOST_FILES:
            self._known_since = now
            self._known.clear()

    def _states(self, file: MappedFile) -> bytearray:
        states = self._known.get(file)
        if states is None:
            states = self._known[file] = bytearray(_blocks(file.size_bytes))
        return states

    def _is_found(self, file: MappedFile, block: int) -> bool:
        """Look for what is written of a block of the log in the page cache."""
        begin = block * BLOCK_BYTES
        end = min(begin + BLOCK_BYTES, file.size_bytes, self._log.committed_offset - file.start)
        return self._is_between(file, block, begin, end - 1)

    def _is_between(self, file: MappedFile, block: int, first: int, last: int) -> bool:
        """Look for the first and the last of these bytes of a block, and note the block if they are there: the kernel
        reads and drops pages in larger pieces."""
        self._forget()
        fd = file.fd()
        if not self._files.is_in_memory(fd, first) or not self._files.is_in_memory(fd, last):
            return False
        self._states(file)[block] = _IN_MEMORY
        return True

    # -- reading -----------------------------------------------------------------------------------------------------

    async def _read(self, missing: Missing) -> OSError | None:
        """Read what is missing, unless it was read for another pull by now. Return why that failed."""
        blocks = [(file, block) for file, block in missing.blocks if not self._states(file)[block]]
        if not blocks:
            await trio.lowlevel.checkpoint()  # there may be a thousand pulls of the same blocks
            return None
        try:
            await self._read_blocks(blocks)
        except OSError as error:
            log.error("messages not read from the disk", file=blocks[0][0].path, error=str(error))
            return error
        if missing.reads_on:
            file, block = blocks[-1]
            self._ahead.append((file, block + 1))
        return None

    async def _read_ahead(self, file: MappedFile, begin: int) -> None:
        """Read the blocks of a file from `begin` on, or of the next file, unless they are in memory or not written.
        An error is left to the pull that needs them."""
        if begin >= _blocks(file.size_bytes):
            begin -= _blocks(file.size_bytes)
            following = self._log.sequence.after(file)
            if following is None:
                return
            file = following
        states = self._states(file)
        stop = min(begin + AHEAD_BLOCKS, _blocks(self._log.committed_offset - file.start), len(states))
        blocks = [(file, block) for block in range(begin, stop) if not states[block]]
        try:
            if not blocks or self._is_found(file, blocks[0][1]):
                return
            await self._read_blocks(blocks)
        except OSError:
            return
        self._states(file)[blocks[0][1]] = _READ_ON

    async def _read_blocks(self, blocks: list[tuple[MappedFile, int]]) -> None:
        """Read these blocks, in the thread, and note them; nothing of files that are deleted by now. Raises OSError."""
        fds: dict[MappedFile, int] = {}
        runs: list[tuple[int, int, int]] = []
        try:
            for file, begin, size_bytes in _runs(blocks):
                try:
                    if file not in fds:
                        fds[file] = file.borrow()
                except FileNotFoundError:
                    continue
                runs.append((fds[file], begin, size_bytes))
            if runs:
                with trio.CancelScope(shield=True):
                    await self._offload(self._files.read_into_memory, runs)
        finally:
            for fd in fds.values():
                self._files.close(fd)
        for file, block in blocks:
            self._states(file)[block] = _IN_MEMORY


def _blocks(size_bytes: int) -> int:
    """Return how many blocks these bytes of a file, from its beginning, lie in."""
    return -(-size_bytes // BLOCK_BYTES)


def _runs(blocks: Iterable[tuple[MappedFile, int]]) -> list[tuple[MappedFile, int, int]]:
    """Return file, position and size of the blocks, those that follow each other as one."""
    runs: list[tuple[MappedFile, int, int]] = []
    for file, block in blocks:
        begin = block * BLOCK_BYTES
        if runs and runs[-1][0] is file and runs[-1][1] + runs[-1][2] == begin:
            runs[-1] = (file, runs[-1][1], runs[-1][2] + BLOCK_BYTES)
        else:
            runs.append((file, begin, BLOCK_BYTES))
    return runs
