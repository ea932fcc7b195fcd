"""The files of tables when the process has no descriptor left: a table is written late, and nothing else happens."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from descriptors import descriptors_left
from structlog.testing import capture_logs

from triomq.broker.tables.stored_file import StoredFile
from triomq.broker.tables.write_behind import RETRY_SECONDS, WriteBehind
from triomq.protocol.outage import REMIND_SECONDS
from triomq.store.disk.files import Files


async def at_once(function: Any, *arguments: Any) -> Any:
    await trio.lowlevel.checkpoint()
    return function(*arguments)


def test_a_new_directory_that_no_descriptor_can_sync_is_an_error_of_the_system(tmp_path: Path) -> None:
    """Creating the directory needs none, so the sync of its name is the first to lack one."""
    path = tmp_path / "config" / "topics.json"
    file = StoredFile(Files(), str(path))
    with descriptors_left(0), pytest.raises(OSError) as caught:
        file.save("{}")
    assert caught.value.errno == errno.EMFILE
    assert path.parent.is_dir() and not path.exists()
    file.save("{}")
    assert path.read_text() == "{}"


def test_each_descriptor_that_a_save_lacks_is_an_error_of_the_system(tmp_path: Path) -> None:
    for left in range(3):
        file = StoredFile(Files(), str(tmp_path / str(left) / "config" / "topics.json"))
        with descriptors_left(left):
            try:
                file.save("{}")
            except OSError as error:
                assert error.errno == errno.EMFILE


async def test_a_table_is_written_after_the_shortage_and_the_log_has_a_line_a_minute(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    path = tmp_path / "config" / "topics.json"
    writer = WriteBehind(StoredFile(Files(), str(path)), lambda: [b"{}"])
    with capture_logs() as lines:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(writer.run, at_once)
            await trio.testing.wait_all_tasks_blocked()
            with descriptors_left(0):
                writer.changed()
                await trio.sleep(REMIND_SECONDS + 2 * RETRY_SECONDS)
            assert [line["event"] for line in lines] == ["table not written; the next write tries again"] * 2
            await trio.sleep(3 * RETRY_SECONDS)
            assert path.read_text() == "{}"
            writer.changed()
            await trio.sleep(RETRY_SECONDS)
            nursery.cancel_scope.cancel()
    assert [line["event"] for line in lines[2:]] == ["table written again"]
