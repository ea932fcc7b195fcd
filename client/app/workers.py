"""Several processes of one application, and the one that looks after them: triomq run MODULE:NAME --workers N.

    this process -- a socket, which is the worker's standard input -- worker 1
                 -- another one                                    -- worker 2

A worker writes a byte when its application has opened, and stops in order when its socket ends: because `stop` shut it
down, or this process is gone. `stop` sends no SIGTERM, since systemd sends one to every process of a service, and a
worker's second signal ends it at once.

The first worker begins alone: if its application cannot open, that ends the command with one error, not with N.
Later, one that ends is started again after a pause, which doubles up to MOST_PAUSE_SECONDS while it ends soon.

State: which workers run, and how many signals came. All of it belongs to the tasks of one `trio.run`.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterable, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import trio

INTERRUPTED = 130
MAX_WORKERS = 1000
FIRST_PAUSE_SECONDS = 1.0
MOST_PAUSE_SECONDS = 30.0
STEADY_SECONDS = 60.0
"""What runs for so long has started well: the next pause is the first one again."""
HEAR_SECONDS = 1.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)
STANDARD_INPUT = 0
log = logging.getLogger("triomq.app")


def run_workers(words: Sequence[str], count: int) -> int:
    """Run a command `count` times, each with its number at the end, until a signal comes. Return the exit code."""

    async def start(number: int, opened: Callable[[], object]) -> Worker:
        return await Process.started([*words, str(number)], opened)

    async def run() -> int:
        with trio.open_signal_receiver(*SIGNALS) as signals:
            return await Workers(start, count).run(signals)

    return trio.run(run)


class Worker(Protocol):
    """A process that runs the application."""

    async def wait(self) -> int:
        """Wait until it ends. Return its exit code, for a signal the negative number."""

    def stop(self) -> None:
        """Have it finish what it has in hand, and end."""

    def kill(self) -> None:
        """End it at once."""


Start = Callable[[int, Callable[[], object]], Awaitable[Worker]]
"""Starts the worker of a number, which calls the function when its application has opened. Raises OSError."""


class Workers:
    """The workers of one command."""

    def __init__(self, start: Start, count: int) -> None:
        self._start = start
        self._count = count
        self._running: set[Worker] = set()
        self._opened = trio.Event()
        self._stopping = trio.Event()
        self._is_killing = False
        self._code = 0

    async def run(self, signals: AsyncIterable[int]) -> int:
        """Run them until the first signal; the second one ends them at once. Return the exit code of the command."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._obey, signals)
            async with trio.open_nursery() as keepers:
                keepers.start_soon(self._keep, 1)
                await self._opened.wait()
                for number in range(2, self._count + 1):
                    keepers.start_soon(self._keep, number)
            nursery.cancel_scope.cancel()
        return self._code

    async def _obey(self, signals: AsyncIterable[int]) -> None:
        async for _ in signals:
            if not self._stopping.is_set():
                log.info("shutdown begun; another Ctrl-C or SIGTERM ends all workers at once")
                self._stop()
            elif not self._is_killing:
                print("triomq: ended at once; the messages in hand will be delivered again", file=sys.stderr)  # noqa: T201
                self._is_killing = True
                self._code = INTERRUPTED
                for worker in self._running:
                    worker.kill()

    def _stop(self) -> None:
        self._stopping.set()
        self._opened.set()  # nothing waits for it any more
        for worker in self._running:
            worker.stop()

    async def _keep(self, number: int) -> None:
        """Run one worker, again when it ends by itself."""
        pause = FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            began = trio.current_time()
            code = await self._run_one(number)
            if self._stopping.is_set():
                self._code = self._code or code
                return
            if not self._opened.is_set():
                self._code = code or 1
                log.error("application not opened; its worker ended: %s", said(code))
                self._stop()
                return
            if trio.current_time() - began >= STEADY_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            log.warning("worker ended: number %d, %s; to be started again in %g s", number, said(code), pause)
            with trio.move_on_after(pause):
                await self._stopping.wait()
            pause = min(2 * pause, MOST_PAUSE_SECONDS)

    async def _run_one(self, number: int) -> int:
        """Start a worker, and wait for its end. Return its exit code, for a signal as shells do."""
        try:
            worker = await self._start(number, self._opened.set)
        except OSError as error:
            log.error("worker not started: number %d, %s", number, error)
            return 1
        self._running.add(worker)
        # A signal may have come meanwhile.
        if self._is_killing:
            worker.kill()
        elif self._stopping.is_set():
            worker.stop()
        try:
            code = await worker.wait()
        finally:
            self._running.discard(worker)
        return code if code >= 0 else 128 - code


def said(code: int) -> str:
    """Return how a process ended."""
    with suppress(ValueError):
        if code > 128:
            return signal.Signals(code - 128).name
    return f"exit code {code}"


class Process:
    """A worker that is a process."""

    def __init__(self, process: trio.Process, ours: trio.socket.SocketType, opened: Callable[[], object]) -> None:
        self._process = process
        self._socket = ours
        self._opened = opened

    @classmethod
    async def started(cls, words: Sequence[str], opened: Callable[[], object]) -> Self:
        ours, theirs = socket.socketpair()
        with theirs:
            # A process group of its own: Ctrl-C reaches the parent alone, which stops each worker once.
            process = await trio.lowlevel.open_process(words, stdin=theirs.fileno(), process_group=0)
        return cls(process, trio.socket.from_stdlib_socket(ours), opened)

    async def wait(self) -> int:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._hear)
            code = await self._process.wait()
            # What it wrote is there; but a child of its own may hold the socket open.
            nursery.cancel_scope.deadline = trio.current_time() + HEAR_SECONDS
        self._socket.close()
        return code

    async def _hear(self) -> None:
        with suppress(OSError):
            if await self._socket.recv(1):
                self._opened()

    def stop(self) -> None:
        with suppress(OSError):  # of one that has ended
            self._socket.shutdown(socket.SHUT_WR)

    def kill(self) -> None:
        self._process.kill()


class Parent:
    """What a worker has of the process that looks after it. Make it before the application is imported."""

    def __init__(self) -> None:
        self._socket = socket.socket(fileno=os.dup(STANDARD_INPUT))
        # The application may close its standard input, and its children inherit it.
        with Path(os.devnull).open() as nothing:
            os.dup2(nothing.fileno(), STANDARD_INPUT)

    def say_opened(self) -> None:
        """Say that the application has opened."""
        with suppress(OSError):  # of a parent that has ended
            self._socket.send(b".")

    def when_it_stops(self, stop: Callable[[], object]) -> None:
        """Call `stop` when the parent wants this worker to stop, or has ended; in another thread."""
        threading.Thread(target=self._watch, args=(stop,), name="triomq-worker", daemon=True).start()

    def _watch(self, stop: Callable[[], object]) -> None:
        with suppress(OSError):
            while self._socket.recv(1):
                pass
        with suppress(RuntimeError):  # of a loop that has ended
            stop()
