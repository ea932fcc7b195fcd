"""A second walk over a part of the log that recovery has read already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from triomq.store.log.log_scan import LogScan
from triomq.store.log.store_log import StoreLog
from triomq.store.queues.dispatch import Dispatch, DispatchEntry
from triomq.store.upkeep.progress import Progress

_STEP_RECORDS: Final = 1024


def walk_again(
    commit_log: StoreLog,
    dispatch: Dispatch,
    begin: int,
    end: int,
    enter: Callable[[DispatchEntry], None],
    progress: Progress,
) -> Iterator[None]:
    """Scan [begin, end) of the log, which the first scan has already checked, in steps of a few milliseconds."""
    scan = LogScan(commit_log, begin, check_crc=False, stop=end)
    fields = scan.next()
    count = 0
    while fields is not None:
        enter(dispatch.entry_of(fields))
        count += 1
        if count % _STEP_RECORDS == 0:
            yield
            progress.at(fields.physical_offset)
        fields = scan.next()
    progress.over()
