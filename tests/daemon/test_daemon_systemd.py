"""The notices that a daemon sends to systemd with Type=notify."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from structlog.testing import capture_logs

from triomq.daemon.systemd import Notices

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(30)
        yield receiver


def received(listener: socket.socket) -> list[str]:
    """Return the first lines of all notices so far."""
    listener.setblocking(False)
    found: list[str] = []
    while True:
        try:
            found.append(listener.recv(4096).decode())
        except BlockingIOError:
            return found


def test_the_notices_of_a_life(listener: socket.socket) -> None:
    notices = Notices({"NOTIFY_SOCKET": listener.getsockname()})
    notices.reloading()
    notices.reloaded()
    assert received(listener) == [], "a reload during the start does not make it ready"
    notices.ready("boot success")
    notices.reloading()
    notices.reloaded()
    notices.stopping()
    ready, reloading, reloaded, stopping = received(listener)
    assert (ready, reloaded) == ("READY=1\nSTATUS=boot success", "READY=1")
    assert reloading.startswith("RELOADING=1\nMONOTONIC_USEC=")
    assert stopping.startswith("STOPPING=1\n")


def test_an_abstract_socket() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(f"\0triomq-notify-{os.getpid()}")
        Notices({"NOTIFY_SOCKET": f"@triomq-notify-{os.getpid()}"}).ready("up")
        assert received(receiver) == ["READY=1\nSTATUS=up"]


async def test_the_event_loop_shows_that_it_runs(listener: socket.socket, autojump_clock: trio.abc.Clock) -> None:
    notices = Notices({"NOTIFY_SOCKET": listener.getsockname(), "WATCHDOG_USEC": "30000000"})
    with trio.move_on_after(60.5):
        await notices.watch()
    assert received(listener) == ["WATCHDOG=1"] * 7, "at 0, 10, ... 60 s"


@pytest.mark.parametrize("variables", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}])
async def test_nothing_is_sent_where_nobody_watches(listener: socket.socket, variables: dict[str, str]) -> None:
    await Notices({"NOTIFY_SOCKET": listener.getsockname(), **variables}).watch()
    await Notices({"WATCHDOG_USEC": "1000"}).watch()
    assert received(listener) == []


def test_a_socket_that_is_gone_does_no_harm(tmp_path: Path) -> None:
    with capture_logs() as logs:
        Notices({"NOTIFY_SOCKET": str(tmp_path / "gone")}).ready("up")
        Notices({}).stopping()
    assert [line["notice"] for line in logs] == ["READY=1"]


def test_a_daemon_tells_systemd_about_its_life(tmp_path: Path, listener: socket.socket) -> None:
    (tmp_path / "a.conf").write_text("listenPort=0\n")
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": str(SOURCE),
        "NOTIFY_SOCKET": listener.getsockname(),
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "triomq.namesrv", "-c", "a.conf"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert listener.recv(4096).decode() == "READY=1\nSTATUS=The Name Server boot success. serializeType=JSON"
        process.send_signal(signal.SIGHUP)
        assert listener.recv(4096).decode().startswith("RELOADING=1")
        assert listener.recv(4096).decode() == "READY=1"
        process.send_signal(signal.SIGTERM)
        assert listener.recv(4096).decode().startswith("STOPPING=1")
    finally:
        process.terminate()
        assert process.wait(60) == 0
