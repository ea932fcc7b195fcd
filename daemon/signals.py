"""SIGTERM, SIGINT and SIGHUP ask a daemon to stop; a second one kills it, since the receiver is gone by then."""

import signal

import trio

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


async def wait_stop_signal(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> signal.Signals:
    """Wait for the first stop signal. One that was ignored when the process began (nohup) stays ignored."""
    watched = [number for number in _STOP if signal.getsignal(number) is not signal.SIG_IGN]
    with trio.open_signal_receiver(*watched) as signals:
        task_status.started()
        async for number in signals:
            return signal.Signals(number)
    raise AssertionError("the receiver never ends by itself")
