"""The signals of a daemon, from before its start to the end of its process.

    SIGTERM, SIGINT   stop, once: a repeated request changes nothing, since an interrupted stop would be a crash
    SIGHUP            reload: reopen the log files and read the configuration file again

A stop signal that the parent process ignored (nohup, background jobs of a shell) stays ignored. SIGHUP is always
handled: it does not end a daemon, so a terminal that closes does no harm.

State: which stop signals are handled, and what has arrived while no task waited for it. The handlers run in the main
thread between any two bytecodes, hence they only set fields and write to descriptor 2; they must not log, since the log
may be locked by the very code that they interrupt. Tasks take over through trio's receivers, and the handlers return
when those close.
"""

import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import FrameType

import trio

_STOP = (signal.SIGTERM, signal.SIGINT)

Reload = Callable[[], Awaitable[None]]
"""Reopens and reads again whatever a daemon can reload; reports its own errors."""


class DaemonSignals:
    """The signals of this process. Create it in the main thread. The handlers stay until the process ends, so that no
    signal can interrupt the last steps of a stop."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._watched = [number for number in _STOP if signal.getsignal(number) is not signal.SIG_IGN]
        self._first_stop: signal.Signals | None = None
        for number in self._watched:
            signal.signal(number, self._stop_requested)
        self._is_reload_due = False
        signal.signal(signal.SIGHUP, self._reload_requested)

    async def wait_stop(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> signal.Signals:
        """Wait for the first stop signal, which may have arrived before this call."""
        with trio.open_signal_receiver(*self._watched) as received:
            task_status.started()
            if self._first_stop is None:
                async for number in received:
                    self._first_stop = signal.Signals(number)
                    break
        assert self._first_stop is not None, "a receiver never ends by itself"
        return self._first_stop

    async def obey_reload(self, reload: Reload, *, task_status: trio.TaskStatus[None]) -> None:
        """Call `reload` for each SIGHUP until cancelled. Signals that arrive during a reload count as one."""
        with trio.open_signal_receiver(signal.SIGHUP) as received:
            task_status.started()
            if self._is_reload_due:
                await reload()
            async for _ in received:
                await reload()

    def _reload_requested(self, _number: int, _frame: FrameType | None) -> None:
        self._is_reload_due = True

    def _stop_requested(self, number: int, _frame: FrameType | None) -> None:
        """Handle a stop signal while no task waits for one: before the start, or during the stop."""
        if self._first_stop is None:
            self._first_stop = signal.Signals(number)
            return
        with suppress(OSError):  # nobody reads standard error any more
            os.write(2, f"{self._program}: already stopping\n".encode())
