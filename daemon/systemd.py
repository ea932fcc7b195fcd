"""Notices to systemd about the life of a daemon (Type=notify, sd_notify(3)).

Each notice is one datagram to the socket that NOTIFY_SOCKET names; without that variable nothing is sent. A notice that
cannot be sent is logged and never disturbs the daemon. WATCHDOG notices come from the event loop, so that systemd
restarts a daemon whose loop hangs (WatchdogSec=); three are sent per WATCHDOG_USEC. State: whether READY was sent.
"""

import os
import socket
import time
from collections.abc import Mapping

import structlog
import trio

log = structlog.get_logger("triomq.daemon.systemd")

_NOTICES_PER_TIMEOUT = 3


class Notices:
    """The notices of this process. `variables`: its environment, such as os.environ."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        path = variables.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._watchdog_seconds = _watchdog_seconds(variables)
        self._is_ready = False

    def ready(self, status: str) -> None:
        """Notify that the daemon accepts requests."""
        self._is_ready = True
        self._send(f"READY=1\nSTATUS={status}")

    def reloading(self) -> None:
        """Notify that a reload begins; `reloaded` follows."""
        if self._is_ready:
            self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def reloaded(self) -> None:
        """Notify that the reload is over. A reload during the start does not make the daemon ready."""
        if self._is_ready:
            self._send("READY=1")

    def stopping(self) -> None:
        """Notify that the daemon stops."""
        self._send("STOPPING=1\nSTATUS=stopping")

    async def watch(self) -> None:
        """Send WATCHDOG notices until cancelled. Return immediately without WatchdogSec=."""
        while self._address and self._watchdog_seconds:
            self._send("WATCHDOG=1")
            await trio.sleep(self._watchdog_seconds / _NOTICES_PER_TIMEOUT)

    def _send(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto(text.encode(), self._address)
        except OSError as error:
            log.info("systemd not notified", notice=text.partition("\n")[0], reason=error.strerror)


def _watchdog_seconds(variables: Mapping[str, str]) -> float:
    """Return the interval in which systemd expects a notice, or 0 if it expects none from this process."""
    if variables.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    text = variables.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() else 0.0
