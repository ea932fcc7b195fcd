"""A NameServer and brokers inside the calling program; see the package's docstring.

In a trio program the cluster is a set of tasks of the same run; elsewhere it is a thread with a trio run of its own.
Importing this module does not import the broker; starting a cluster does.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from triomq.broker import optional
from triomq.broker.embedded.library_log import diverted
from triomq.broker.embedded.plan import START_SECONDS, STOP_SECONDS, ClusterPlan
from triomq.broker.embedded.virtual_clock import VirtualClock
from triomq.protocol.clock import NowMs, OnJump
from triomq.remoting import virtual_time
from triomq.remoting.process_bound import ProcessBound
from triomq.store.disk.files import Files, UnsyncedFiles

if TYPE_CHECKING:
    from triomq.broker.controller import BrokerController
    from triomq.broker.extensions import Extensions


class LocalCluster(ProcessBound):
    """See the module's docstring. Attributes while it runs: `name_server` ("127.0.0.1:port"), `brokers` (name ->
    address), `store` (its directory)."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        store: Path | str | None = None,
        name_server_port: int = 0,
        broker_port: int = 0,
        cluster_name: str = "DefaultCluster",
        settings: Mapping[str, str] | None = None,
        extensions: Extensions | None = None,
        clock: VirtualClock | None = None,
        now_ms: NowMs | None = None,
    ) -> None:
        """`extensions` are hooks and plug-ins for every broker (docs/extending.md). With a `clock` the cluster follows
        it in a thread of its own, also under `async with`. `now_ms` is the wall clock of a cluster in a trio program
        whose clock is not the system's: `run_now_ms()`."""
        if clock is not None and now_ms is not None:
            raise ValueError("give clock or now_ms, not both: a cluster with a clock takes its time from it")
        self._plan = ClusterPlan(brokers, store, name_server_port, broker_port, cluster_name, settings)
        self._extensions = extensions
        self.name_server = ""
        self.brokers: dict[str, str] = {}
        self.store = Path()
        self._clock = clock
        self._now_ms = now_ms
        self._controllers: list[BrokerController] = []
        self._stack = AsyncExitStack()
        self._thread: threading.Thread | None = None
        self._stop: tuple[trio.lowlevel.TrioToken, trio.Event] | None = None
        self._ended: Future[None] = Future()

    # In a trio program.

    async def __aenter__(self) -> Self:
        if self._clock is None:
            await self._open()
        else:
            await trio.to_thread.run_sync(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._clock is None:
            await self._stack.aclose()
        else:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self.close)

    async def _open(self) -> None:
        self._controllers.clear()
        async with AsyncExitStack() as stack:
            stack.enter_context(diverted())
            self.store = await self._directory(stack)
            with_name_server = await self._nursery(stack)
            self.name_server = await self._start_name_server(with_name_server)
            with_brokers = await self._nursery(stack)
            for name in self._plan.broker_names():
                self.brokers[name] = await self._start_broker(with_brokers, name)
            self._stack = stack.pop_all()

    async def _directory(self, stack: AsyncExitStack) -> Path:
        if self._plan.store is not None:
            await trio.to_thread.run_sync(partial(self._plan.store.mkdir, parents=True, exist_ok=True))
            return self._plan.store
        made = Path(await trio.to_thread.run_sync(partial(tempfile.mkdtemp, prefix="triomq-")))
        stack.callback(shutil.rmtree, made, ignore_errors=True)
        return made

    @staticmethod
    async def _nursery(stack: AsyncExitStack) -> trio.Nursery:
        """Return a nursery that the stack cancels on exit: brokers stop first, then the NameServer."""
        nursery = await stack.enter_async_context(trio.open_nursery())

        def cancel() -> None:
            nursery.cancel_scope.cancel()

        stack.callback(cancel)
        return nursery

    async def _start_name_server(self, nursery: trio.Nursery) -> str:
        directory, port = self.store / "namesrv", self._plan.name_server_port
        return f"127.0.0.1:{await optional.daemons.start_name_server(nursery, directory, port, self._on_jump)}"

    async def _start_broker(self, nursery: trio.Nursery, name: str) -> str:
        values = self._plan.values(name, self.store, self.name_server)
        controller = await optional.daemons.start_broker(
            nursery,
            name,
            values,
            self._now_ms if self._clock is None else self._clock.now_ms,
            self._files(),
            self._extensions,
            self._on_jump,
        )
        self._controllers.append(controller)
        return f"127.0.0.1:{controller.port}"

    @property
    def _on_jump(self) -> OnJump | None:
        return None if self._clock is None else self._clock.on_jump

    def _files(self) -> Files:
        """Return the store's files; a temporary store need not reach the disk, which may be slow or busy."""
        if self._clock is not None:
            return self._clock.files()
        return UnsyncedFiles() if self._plan.store is None else Files()

    # Anywhere else.

    def start(self) -> Self:
        """Start in a thread; return when the brokers are registered."""
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="triomq-cluster", daemon=True)
        self._thread.start()
        started.result(START_SECONDS)
        return self

    def close(self) -> None:
        """Stop the thread. The store is closed properly, and removed if it is temporary."""
        if self._thread is None or self._stop is None:
            return
        token, stop = self._stop
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(stop.set)
        self._thread.join(STOP_SECONDS)
        self._thread = self._stop = None
        self._ended.result(0)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, started: Future[None]) -> None:
        async def main() -> None:
            stop = trio.Event()
            await self._open()
            async with self._stack:
                self._stop = (trio.lowlevel.current_trio_token(), stop)
                if self._clock is not None:
                    watched = virtual_time.begin(self.name_server, self._has_topic)
                    self._stack.callback(virtual_time.end, self.name_server)
                    self._clock.attach(self._seconds_to_next, self._log_end, watched)
                    self._stack.callback(self._clock.detach)
                started.set_result(None)
                await stop.wait()

        try:
            trio.run(main, clock=self._clock)
        except BaseException as error:
            (self._ended if started.done() else started).set_exception(error)
        else:
            self._ended.set_result(None)

    # For the clock.

    def _seconds_to_next(self) -> float:
        return optional.daemons.seconds_to_next_of(self._controllers)

    def _has_topic(self, topic: str) -> bool:
        """Any thread may ask."""
        serving = [one.serving for one in self._controllers if one.serving is not None]
        return any(one.tables.metadata.topics.get(topic) is not None for one in serving)

    def _log_end(self) -> int:
        return sum(one.serving.store.committed.value for one in self._controllers if one.serving is not None)
