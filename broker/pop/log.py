"""The log of messages in flight: numbered files, of which the newest complete one counts (docs/internals/pop.md).

`append` writes to the kernel at once, on the event loop: a record has some ten bytes. A thread syncs (`run`). A file
that is written behind what `state` returns is complete by itself; the files before it are removed when it is on
the disk. After a sync that failed nobody knows what of the file is on the disk: a new one begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import structlog
import trio

from triomq.broker.pop import log_records
from triomq.store.disk.files import Files
from triomq.store.disk.worker_thread import Offload
from triomq.store.watermark import Watermark

log = structlog.get_logger("triomq.broker.pop")

SPARE_BYTES: Final = 4 * 1024 * 1024
GROWTH: Final = 2
"""A new file begins when a file is larger than this many times its beginning, and SPARE_BYTES."""
RETRY_SECONDS: Final = 1.0
NAME_DIGITS: Final = 20


State = tuple[list[bytes], Callable[[], None]]


class InFlightLog:
    """`state` returns the records of all queues as they are, and what to call when a file has them; `sync_seconds` how
    long a sync may be put off.

    `synced`: the count of bytes that were appended since the start and are on the disk; `appended` is that of all.
    """

    def __init__(
        self,
        files: Files,
        directory: str,
        state: Callable[[], State],
        *,
        sync_seconds: Callable[[], float],
        offload: Offload,
    ) -> None:
        self._files = files
        self.directory = directory
        self._state = state
        self._sync_seconds = sync_seconds
        self._offload = offload
        self._fd = -1
        self._number = 0
        self._end = 0
        self._state_bytes = 0
        self._old: list[str] = []  # files to remove when this one is on the disk
        self._is_doubtful = False
        self._dirty = trio.Event()
        self.appended = 0
        self.synced = Watermark()

    # -- the start -----------------------------------------------------------------------------------------------------

    def read(self) -> list[list[Any]]:
        """Return the bodies of the records of the newest complete file; none if there is none. Raises OSError, and
        ValueError for a file of another version."""
        for name in reversed(self._names()):
            path = f"{self.directory}/{name}"
            self._number = max(self._number, int(name))
            self._old.append(path)
            data = self._files.read_file(path)
            records = log_records.Records(data)
            bodies = list(records)
            if bodies and bodies[0] != [log_records.BEGIN, log_records.VERSION]:
                raise ValueError(f"{path} begins with {bodies[0]!r}")
            if [log_records.COMPLETE] in bodies:
                if records.end < len(data):
                    log.warning("end of the log of messages in flight not read", path=path, at=records.end)
                self._old += [f"{self.directory}/{other}" for other in self._names() if other < name]
                return bodies
            log.warning("incomplete log of messages in flight left out", path=path)
        return []

    def _names(self) -> list[str]:
        names = self._files.list_directory(self.directory)
        return [name for name in names if len(name) == NAME_DIGITS and name.isdigit()]

    def begin(self) -> None:
        """Begin a new file with all queues as they are. Raises OSError; the file before stays in use then."""
        self._files.make_directories(self.directory)
        queues, written = self._state()
        records = [log_records.encode(log_records.BEGIN, log_records.VERSION), *queues]
        state = b"".join([*records, log_records.encode(log_records.COMPLETE)])
        path = self._path(self._number + 1)
        fd = self._files.create(path, 0)
        try:
            self._files.pwrite(fd, state, 0)
        except BaseException:
            self._files.close(fd)
            self._files.unlink(path)
            raise
        if self._fd >= 0:
            self._files.close(self._fd)
            self._old.append(self._path(self._number))
        self._fd, self._number, self._end, self._state_bytes = fd, self._number + 1, len(state), len(state)
        self._is_doubtful = False
        written()
        self._appended(len(state))

    def _path(self, number: int) -> str:
        return f"{self.directory}/{number:0{NAME_DIGITS}d}"

    # -- writing -------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Begin the first file, unless there is one. Raises OSError."""
        if self._fd < 0:
            self.begin()

    def append(self, records: bytes) -> None:
        """Write records to the file, which is open. Raises OSError, and nothing is written then."""
        self._files.pwrite(self._fd, records, self._end)  # what a write that failed left there is overwritten
        self._end += len(records)
        self._appended(len(records))

    def _appended(self, size_bytes: int) -> None:
        if self.appended == self.synced.value:  # otherwise `run` is at work
            self._dirty.set()
        self.appended += size_bytes

    @property
    def wants_new_file(self) -> bool:
        """Whether the file has grown so large that a new one should begin, or may lack records."""
        return self._fd >= 0 and (self._is_doubtful or self._end > GROWTH * self._state_bytes + SPARE_BYTES)

    async def run(self) -> None:
        """Sync what is appended, until cancelled."""
        while True:
            if self.appended == self.synced.value:
                self._dirty = trio.Event()
                await self._dirty.wait()
            await trio.sleep(self._sync_seconds())
            try:
                if self.wants_new_file:
                    self.begin()
                await self.sync()
            except OSError as error:
                log.error("log of messages in flight not synced", error=str(error), path=self.directory)
                self._is_doubtful = True
                self.synced.reject(error)
                await trio.sleep(RETRY_SECONDS)

    async def sync(self) -> None:
        """Return when everything that is appended by now is on the disk, and remove older files. Raises OSError."""
        if self._fd < 0:
            return
        appended, old = self.appended, self._old[:]
        fd = self._files.duplicate(self._fd)  # a new file may begin meanwhile
        with trio.CancelScope(shield=True):
            await self._offload(self._sync, fd, old)
        self._old = [path for path in self._old if path not in old]
        self.synced.advance(max(appended, self.synced.value))

    def _sync(self, fd: int, old: list[str]) -> None:
        """Sync the file, and the names of files if some changed. Runs in a thread."""
        try:
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
        if self.synced.value == 0 or old:
            self._files.sync_directory(self.directory)
            self._files.sync_directory(self.directory.rpartition("/")[0])
        for path in old:
            self._files.unlink(path)

    async def close(self) -> None:
        """Sync and close the file; `run` has ended."""
        if self._fd < 0:
            return
        try:
            await self.sync()
        except OSError as error:
            log.error("log of messages in flight not synced", error=str(error), path=self.directory)
        finally:
            self._files.close(self._fd)
            self._fd = -1
