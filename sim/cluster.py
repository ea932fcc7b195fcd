"""The nodes of a simulated cluster: each is a program on a host that starts, stops, dies and returns.

A process that is killed runs no more code. Here its tasks share the interpreter with everything else, so they are
cancelled through every shield, and what they still do on the way out reaches neither disk nor network.
"""

from __future__ import annotations

from collections.abc import Mapping

import trio

from sim.disk import Disk, DiskFiles
from sim.network import Host
from sim.trace import Trace
from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.broker.embedded.plan import EMBEDDED_SETTINGS
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.remoting.config import ServerSettings

NAME_SERVER_PORT = 9876
BROKER_PORT = 10911
BEGIN_MS = 1_700_000_000_000
START_SECONDS = 120.0


def now_ms() -> int:
    """Return the wall clock of all hosts."""
    return BEGIN_MS + int(trio.current_time() * 1000)


class Node:
    """One program on one host. Subclasses say what it runs."""

    def __init__(self, host: Host, trace: Trace, nursery: trio.Nursery) -> None:
        self.host = host
        self.name = host.name
        self.failure: str | None = None
        """Why the program ended although nobody ended it."""
        self.died_at: list[tuple[float, str]] = []
        """When it was killed ("kill") or lost its power ("power")."""
        self._down: list[tuple[float, float]] = []
        self._ended_at: float | None = None
        self._trace = trace
        self._nursery = nursery
        self._scope: trio.CancelScope | None = None
        self._ended = trio.Event()
        self._ended.set()
        self._is_dying = False

    @property
    def is_running(self) -> bool:
        return self._scope is not None

    def down_seconds(self, begin: float, end: float) -> float:
        """Return for how long within these moments it was not there to do anything."""
        now_down = [(self._ended_at, end)] if self._ended_at is not None else []
        return sum(max(0.0, min(end, until) - max(begin, since)) for since, until in (*self._down, *now_down))

    async def start(self) -> None:
        """Start it; return when it is ready. Does nothing if it runs."""
        if self._scope is not None:
            return
        self._is_dying = False
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        ready = trio.Event()
        self.host.process_starts()
        with self.host.entered():
            self._nursery.start_soon(self._live, self._scope, ready, name=self.name)
        with trio.move_on_after(START_SECONDS) as limit:
            await ready.wait()
        if limit.cancelled_caught:
            self.failure = f"not ready after {START_SECONDS:g} s"
        self._trace.add(f"{self.name} runs" if self._scope is not None else f"{self.name} did not start")

    async def _live(self, scope: trio.CancelScope, ready: trio.Event) -> None:
        try:
            with scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(self._serve)
                    if self._ended_at is not None:
                        self._down.append((self._ended_at, trio.current_time()))
                        self._ended_at = None
                    ready.set()
            if not scope.cancel_called:
                self.failure = "it ended by itself"
        except Exception as error:
            self._trace.add(f"{self.name} ended: {in_words(error)}")
            if not self._is_dying:
                self._died("kill")
                if not self._is_excused(is_serving=ready.is_set() and not scope.cancel_called):
                    self.failure = in_words(error)
        finally:
            self.host.process_died()  # the system closes what the program left open
            self._scope = None
            if self._ended_at is None:
                self._ended_at = trio.current_time()
            self._ended.set()
            ready.set()

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        raise NotImplementedError

    def _is_excused(self, *, is_serving: bool) -> bool:
        """Return whether the program may end with an error at present. `is_serving`: it has started, and is not
        asked to stop."""
        return False

    async def stop(self) -> None:
        """End it in order, as SIGTERM does."""
        if self._scope is not None:
            self._trace.add(f"{self.name} is stopped")
            self._scope.cancel()
            await self._ended.wait()

    async def kill(self, *, as_if: str = "kill") -> None:
        """End the process, now. `as_if` is what `died_at` notes."""
        if self._scope is not None:
            self._trace.add(f"{self.name} is killed")
            self._died(as_if)
            self.host.process_died()
            await self._end_at_once()

    async def lose_power(self) -> None:
        """End the host, now."""
        if self._scope is not None:
            self._trace.add(f"{self.name} loses its power")
            self._died("power")
            self.host.power_failed()
            await self._end_at_once()

    def _died(self, how: str) -> None:
        self.died_at.append((trio.current_time(), how))

    async def _end_at_once(self) -> None:
        self._is_dying = True
        while self._scope is not None:
            cancel_through_shields(self._scope)
            with trio.move_on_after(0.001):
                await self._ended.wait()


def cancel_through_shields(scope: trio.CancelScope) -> None:
    """Cancel everything in a scope, also what is shielded."""
    found = [scope._cancel_status]
    while found:
        status = found.pop()
        if status is not None:
            status._scope.shield = False
            found += status._children
    scope.cancel()


def in_words(error: BaseException) -> str:
    """Return the type and text of an error, or of all errors of a group."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(in_words(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"


class NameServer(Node):
    """A NameServer; it keeps nothing."""

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        settings = ServerSettings(listen_port=NAME_SERVER_PORT)
        await serve(NamesrvSettings(), settings, task_status=task_status)


POOL_COMMIT_SECONDS = 0.3
"""commitIntervalCommitLog, in seconds, and what the commit before it and its own take in a thread."""


class DiskNode(Node):
    """A program that keeps something on the disk of its host."""

    def __init__(self, host: Host, trace: Trace, nursery: trio.Nursery, disk: Disk) -> None:
        super().__init__(host, trace, nursery)
        self.disk = disk
        self._files = DiskFiles(disk)

    async def crash_within_a_write(self, writes: int, *, power: bool) -> None:
        """Die in the middle of the `writes`-th write from now on, or after ten seconds."""
        burnt = trio.Event()

        def burn() -> None:
            self._is_dying = True
            self._died("power" if power else "kill")  # also in the middle of a stop, which nobody else notes
            (self.host.power_failed if power else self.host.process_died)()
            burnt.set()

        self._files.fuse, self._files.on_burnt = writes, burn
        with trio.move_on_after(10.0):
            await burnt.wait()
        await (super().lose_power if power else self.kill)()

    async def _end_at_once(self) -> None:
        self._files.is_dead = True
        await super()._end_at_once()
        if not self.host.has_power:
            self.disk.power_failed()


class Broker(DiskNode):
    """A master or a slave with a disk."""

    def __init__(self, host: Host, trace: Trace, nursery: trio.Nursery, disk: Disk, values: Mapping[str, str]) -> None:
        super().__init__(host, trace, nursery, disk)
        self._values = {
            **EMBEDDED_SETTINGS,
            "brokerIP1": host.ip,
            "brokerIP2": host.ip,
            "listenPort": str(BROKER_PORT),
            "storePathRootDir": str(disk.directory / "store"),
            "mappedFileSizeCommitLog": str(1024 * 1024),
            "mappedFileSizeConsumeQueue": str(20 * 500),
            "maxHashSlotNum": "500",
            "maxIndexNum": "2000",
            "rocketmqHome": str(disk.directory / "home"),
            **values,
        }
        self.controller: BrokerController | None = None
        self.restored: list[tuple[float, float]] = []
        """(when its disk was copied, when it went back to the copy)"""
        self.kept_bytes = 0
        """How long the log of this slave is at least, whatever its master does."""

    def change_settings(self, values: Mapping[str, str]) -> None:
        """Use other settings from the next start on."""
        self._values |= values

    @property
    def broker_name(self) -> str:
        return self._values["brokerName"]

    @property
    def ends_that_lose(self) -> tuple[str, ...]:
        """Return the ends, as in `died_at`, that may take acknowledged messages with these settings."""
        if self._values.get("flushDiskType") == "SYNC_FLUSH":
            return ()
        has_pool = self._values.get("transientStorePoolEnable") == "true"
        return ("kill", "power") if has_pool else ("power",)

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        self._files = DiskFiles(self.disk)
        self.controller = BrokerController(
            Configuration.from_values(self._values, source=self.name),
            now_ms=now_ms,
            files=self._files,
            offload=self.disk.offload,
        )
        await self.controller.serve(task_status=task_status)

    def _died(self, how: str) -> None:
        if how == "power":
            self.kept_bytes = 0  # what it copied and did not sync is gone, and its master may not have it any more
        if (
            self.disk.is_full
        ):  # since then nothing left the buffer of transientStorePoolEnable, and the next commit saw it
            self.died_at.append((self.disk.full_since + POOL_COMMIT_SECONDS, how))
        super()._died(how)

    async def start(self) -> None:
        if not self.is_running:
            self.disk.replace_unlinked()  # nobody starts a broker that lacks a file
        await super().start()

    def _is_excused(self, *, is_serving: bool) -> bool:
        return self.disk.is_full or (self.disk.is_failing and not is_serving)  # a start and a stop must sync

    async def lose_power(self) -> None:
        """End the host at the next moment at which something waits for a sync, or in two seconds: most of the time
        nothing does, and such a power failure shows little."""
        with trio.move_on_after(2.0):
            while self.disk.is_log_synced:
                await trio.sleep(0.002)
        await super().lose_power()

    async def err_within_a_commit(self, writes: int) -> None:
        """Have a write of log or queues raise an unexpected error, after the given number of others, and wait until the
        broker has ended of it, at most ten seconds."""
        self._is_dying = True
        self._files.slips = writes
        self.died_at.append((trio.current_time(), "kill"))
        with trio.move_on_after(10.0):
            await self._ended.wait()
        self.died_at.append((trio.current_time(), "kill"))
        self._files.slips = -1
        self._is_dying = self._scope is None

    def log_end(self) -> int:
        """Return the end of the log, in bytes."""
        serving = self.controller.serving if self.controller is not None and self.is_running else None
        return serving.store.reading.max_physical_offset if serving is not None else 0
