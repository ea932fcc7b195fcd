"""The progress that a long scan reports."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import pytest
from fake_clock import FakeClock
from golden_data import copy_golden_store
from store_golden import settings_of
from store_support import abandon, message, open_store, small_settings
from structlog.testing import capture_logs

from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep import offline
from triomq.store.upkeep.progress import Bar, LogLines, Progress, State

MIB = 1 << 20


class Ear:
    """Records every report."""

    every_ms = 0

    def __init__(self) -> None:
        self.heard: list[State | None] = []

    def tell(self, state: State) -> None:
        self.heard.append(state)

    def end(self) -> None:
        self.heard.append(None)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def walk(listener: Bar | LogLines, step_ms: int) -> None:
    """Report 10 MiB of 40, then the end; the clock advances with each MiB."""
    clock = FakeClock()
    progress = Progress(listener, clock, "reading the log", 5 * MIB, 45 * MIB)
    for number in range(1, 11):
        clock.now_ms += step_ms
        progress.at((5 + number) * MIB)
    progress.over()


def test_what_a_state_says() -> None:
    state = State("reading", 10 * MIB, 30 * MIB, 2.5)
    assert (state.percent, state.mib_per_second, state.seconds_left) == (25, 4.0, 8)
    assert State("reading", 0, 0, 0.0).percent == 100
    assert State("reading", 0, 5, 1.0).seconds_left is None


def test_a_bar_on_a_terminal_is_one_line_and_goes() -> None:
    stream = Terminal()
    walk(Bar(stream), 110)
    shown = stream.getvalue()
    assert "\n" not in shown
    drawn = shown.split("\r\x1b[K")
    assert drawn[0] == drawn[-1] == ""
    assert drawn[1:-1] == [
        f"reading the log [{'#' * (30 * done // 40):.<30}] {100 * done // 40:3d} %  9 MiB/s  0:0{left} left"
        for done, left in ((2, 4), (4, 4), (6, 4), (8, 4), (10, 3))
    ]


def test_elsewhere_it_is_a_line_now_and_then() -> None:
    stream = io.StringIO()
    walk(Bar(stream), 4000)
    assert stream.getvalue().splitlines() == [
        "reading the log:   7 %  0 MiB/s  2:28 left",
        "reading the log:  15 %  0 MiB/s  2:16 left",
        "reading the log:  22 %  0 MiB/s  2:04 left",
    ]


def test_a_short_walk_is_not_spoken_of() -> None:
    stream = Terminal()
    walk(Bar(stream), 1)
    with capture_logs() as logs:
        walk(LogLines(), 1)
    assert (stream.getvalue(), logs) == ("", [])


def test_a_daemon_logs_it() -> None:
    with capture_logs() as logs:
        walk(LogLines(), 1000)
    assert len(logs) == 5
    assert logs[0] == {
        "event": "reading the log",
        "log_level": "info",
        "done_mib": 2,
        "left_mib": 38,
        "mib_per_second": 1.0,
        "seconds_left": 38,
    }


def test_verify_and_dump_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "_STEP_RECORDS", 50)
    settings = settings_of(copy_golden_store("k00_killed", tmp_path))
    for command in (offline.verify, lambda values, start: list(offline.dump(values, None, start))):
        ear = Ear()
        command(settings, partial(Progress, ear, FakeClock(step_ms=1)))
        states = ear.heard[: ear.heard.index(None)]
        done = [state.done_bytes for state in states if state is not None]
        assert len(done) > 5
        assert done == sorted(set(done))
        assert all(state is not None and state.what == "reading the log" for state in states)


async def test_recovery_tells(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    for _ in range(3000):
        assert store.append(message(body=b"x")).is_ok
    store.commit()
    abandon(store)
    ear = Ear()
    again = DefaultMessageStore(small_settings(tmp_path), now_ms=FakeClock(step_ms=1))
    await again.load(ear)
    states = [state for state in ear.heard if state is not None]
    assert len(states) > 1
    assert ear.heard[-1] is None
    assert {state.what for state in states} == {"reading the log"}
    abandon(again)
