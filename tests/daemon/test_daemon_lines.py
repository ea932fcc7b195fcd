"""A line for a stream or a file never holds its caller up."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import structlog

from triomq.daemon.environment import read_environment
from triomq.daemon.lines import MAX_BYTES, Lines, Stream, lost_lines
from triomq.daemon.logs import BROKER_LOG_FILES, configure_logs

SECONDS = 10.0


class Recorded:
    """A sink that stands still until it is released."""

    def __init__(self, *, works: bool = True) -> None:
        self.texts: list[str] = []
        self.begun = threading.Event()
        self.released = threading.Event()
        self.works = works

    def write(self, text: str) -> bool:
        self.begun.set()
        assert self.released.wait(SECONDS)
        self.texts.append(text)
        return self.works


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        with suppress(OSError):
            os.close(end)


def test_lines_for_a_sink_that_stands_still_are_dropped_counted_and_told_of() -> None:
    lines, sink = Lines("test still"), Recorded()
    lines.put(sink, "first\n")
    assert sink.begun.wait(SECONDS)
    line = "x" * 1023 + "\n"
    for _ in range(MAX_BYTES // len(line) + 10):
        lines.put(sink, line)
    assert lines.lost_total == lost_lines()["test still"] == 11, "the first line counts until it is written"
    assert not lines.flush(0)
    sink.released.set()
    assert lines.flush(SECONDS)
    lines.put(sink, "last\n")
    assert lines.flush(SECONDS)
    assert "".join(sink.texts) == "first\n" + line * (MAX_BYTES // len(line) - 1) + "... 11 lines lost\nlast\n"


def test_lines_that_could_not_be_written_are_counted() -> None:
    lines, sink = Lines("test failing"), Recorded(works=False)
    sink.released.set()
    lines.put(sink, "one\n")
    assert lines.flush(SECONDS)
    assert lines.lost_total == 1


def test_a_closed_pipe_loses_lines_and_nothing_else(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.close(reader)
    with open(writer, "w", closefd=False) as stream:
        assert Stream(stream).write("line\n") is False


def test_a_pipe_that_another_program_made_non_blocking_is_waited_for(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    os.set_blocking(writer, False)
    size = 1024 * 1024
    found: list[bytes] = []

    def read() -> None:
        while sum(map(len, found)) < size:
            found.append(os.read(reader, 65536))

    with open(writer, "w", closefd=False) as stream:
        thread = threading.Thread(target=read)
        thread.start()
        assert Stream(stream).write("x" * size)
        thread.join(SECONDS)
    assert sum(map(len, found)) == size


def test_logging_does_not_wait_for_a_full_standard_error(tmp_path: Path, pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    environment = read_environment({"HOME": str(tmp_path), "TRIOMQ_LOG_DIR": str(tmp_path / "logs")})
    with open(writer, "w", closefd=False) as stderr:
        files = configure_logs(environment, BROKER_LOG_FILES, stderr=stderr)
        log = structlog.get_logger("triomq.store")
        for number in range(2000):
            log.warning("disk nearly full", number=number, text="x" * 100)
        assert files._lines.flush(SECONDS)
        text = (tmp_path / "logs/store.log").read_text()
        assert text.count("\n") == 2000, "the files get all lines"
        os.close(reader)


PROGRAM = """
import os, sys, structlog
from triomq.daemon.environment import read_environment
from triomq.daemon.lines import open_missing_streams
from triomq.daemon.logs import BROKER_LOG_FILES, configure_logs
open_missing_streams()
configure_logs(read_environment({"HOME": sys.argv[1], "TRIOMQ_LOG_DIR": "-"}), BROKER_LOG_FILES)
for number in range(1000):
    structlog.get_logger("triomq.store").info("line", number=number, text="x" * 200)
print(open(sys.argv[1] + "/file", "w").fileno())
"""


def test_a_process_whose_standard_error_is_full_ends(tmp_path: Path, pipe: tuple[int, int]) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(command, stderr=pipe[1], stdout=subprocess.PIPE, timeout=60, check=False)
    assert ended.returncode == 0


def test_what_is_queued_at_the_end_of_a_process_is_written(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert ended.stderr.count(b"\n") == 1000


def test_no_file_takes_the_place_of_a_missing_standard_error(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", sys.executable, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=True)
    assert int(ended.stdout) > 2
    assert (tmp_path / "file").read_bytes() == b""
