"""Preparing the next log file (warmMapedFileEnable): its blocks are reserved before the first message needs them.

The prepared file has its final name but is not part of the log until the log reaches it; recovery removes an all-zero
file beyond the end of the log. A disk without space for it is not an error here.
"""

from __future__ import annotations

import structlog
import trio

from triomq.store.contents import Contents
from triomq.store.disk.files import Files
from triomq.store.disk.layout import file_name
from triomq.store.disk.worker_thread import Offload

log = structlog.get_logger("triomq.store.warm_up")


class WarmUp:
    """Checks once a second, and prepares one file when the current one is half full."""

    def __init__(self, contents: Contents, offload: Offload) -> None:
        self._files = contents.files
        self._log = contents.log
        self._offload = offload
        self._prepared = ""

    async def run(self) -> None:
        while True:
            await trio.sleep(1)
            await self.prepare()

    async def prepare(self) -> None:
        """Prepare the next file if the current one is half full."""
        commit_log = self._log
        size = commit_log.file_size_bytes
        last = commit_log.sequence.last
        if last is None or commit_log.next_offset - last.start < size // 2 or commit_log.next_offset >= last.end:
            return
        path = f"{commit_log.directory_for(last.end)}/{file_name(last.end)}"
        if path == self._prepared:
            return
        self._prepared = path
        try:
            with trio.CancelScope(shield=True):
                await self._offload(_prepare, self._files, path, size)
        except OSError as error:
            log.warning("next commit log file not prepared", path=path, error=str(error))

    def forget(self) -> None:
        """At a clean shutdown, delete a prepared file that the log did not reach."""
        if self._prepared and all(file.path != self._prepared for file in self._log.sequence.files):
            try:
                self._files.unlink(self._prepared)
            except FileNotFoundError:
                return


def _prepare(files: Files, path: str, size_bytes: int) -> None:
    """Create the file and reserve its blocks. Runs in a thread."""
    fd = files.create(path, size_bytes)
    try:
        files.allocate(fd, 0, size_bytes)
    finally:
        files.close(fd)
