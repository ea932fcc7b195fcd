"""A NameServer and brokers inside a program, for tests and trials: ready in a fraction of a second, gone without a
trace.

    async with LocalCluster() as cluster:                # in a trio program: tasks of this very run
        async with Producer("g", name_server=cluster.name_server) as producer: ...

    with LocalCluster() as cluster: ...                  # anywhere else: a thread with a trio run of its own

    with ProcessCluster() as cluster: ...                # a child process: `kill()` it to see what survives

    clock = VirtualClock()                               # hours pass when the test says so, whoever the clients are
    with LocalCluster(clock=clock) as cluster: clock.advance(7200)

Ports are free ones unless given, the store is a temporary directory unless given; a temporary one is never waited for
until it is on the disk, which changes nothing but after a crash of the machine. `settings` are broker settings by
their RocketMQ keys. Importing this module does not import the broker yet; starting a cluster does.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from triomq.broker.virtual_clock import VirtualClock, run_now_ms
from triomq.protocol.clock import NowMs

if TYPE_CHECKING:
    from triomq.broker.controller import BrokerController
    from triomq.broker.extensions import Extensions
    from triomq.store.files import Files

__all__ = ["LocalCluster", "ProcessCluster", "VirtualClock", "run_now_ms"]

# Small files, so that a test does not reserve a gigabyte of disk; filters that a plain broker has switched off; and no
# requests refused because the machine that runs the tests is a slow one.
EMBEDDED_SETTINGS: Mapping[str, str] = {
    "brokerIP1": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "mappedFileSizeCommitLog": str(64 * 1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 50_000),
    "maxHashSlotNum": "50000",
    "maxIndexNum": "200000",
    "enablePropertyFilter": "true",
    "osPageCacheBusyTimeOutMills": "30000",
    "waitTimeMillsInSendQueue": "30000",
    "waitTimeMillsInPullQueue": "30000",
    "waitTimeMillsInHeartbeatQueue": "30000",
    "waitTimeMillsInTransactionQueue": "30000",
}
START_SECONDS = 30.0
STOP_SECONDS = 20.0


class _Plan:
    """What both kinds of cluster are told."""

    def __init__(
        self,
        brokers: int,
        store: Path | str | None,
        name_server_port: int,
        broker_port: int,
        cluster_name: str,
        settings: Mapping[str, str] | None,
    ) -> None:
        if not 1 <= brokers <= 26:
            raise ValueError(f"a local cluster has 1 to 26 brokers, not {brokers}")
        if brokers > 1 and broker_port:
            raise ValueError("broker_port is for a single broker; several take free ports")
        self.brokers = brokers
        self.store = None if store is None else Path(store)
        self.name_server_port = name_server_port
        self.broker_port = broker_port
        self.cluster_name = cluster_name
        self.settings = dict(settings or {})

    def broker_names(self) -> list[str]:
        return [f"broker-{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"[: self.brokers]]

    def values(self, name: str, directory: Path, name_server: str) -> dict[str, str]:
        """The settings of one broker."""
        return {
            **EMBEDDED_SETTINGS,
            "listenPort": str(self.broker_port),
            "brokerName": name,
            "brokerClusterName": self.cluster_name,
            "namesrvAddr": name_server,
            "storePathRootDir": str(directory / name if self.brokers > 1 else directory),
            **self.settings,
        }


class LocalCluster:
    """See the module's text. Attributes while it runs: `name_server` ("127.0.0.1:port"), `brokers` (name -> address),
    `store` (its directory)."""

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
        """`extensions` are hooks and plug-ins for every broker (docs/extending.md). With a `clock` the cluster runs by
        it in a thread of its own, also under `async with`. `now_ms` is the wall clock of a cluster in a trio program
        whose clock is not the system's: `run_now_ms()`."""
        if clock is not None and now_ms is not None:
            raise ValueError("a cluster with a clock takes its wall clock from there: now_ms is not for it")
        self._plan = _Plan(brokers, store, name_server_port, broker_port, cluster_name, settings)
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
        from triomq.broker.library_log import diverted

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
        """A nursery that is cancelled when the stack is left; so the brokers stop first, then the name server."""
        nursery = await stack.enter_async_context(trio.open_nursery())

        def cancel() -> None:
            nursery.cancel_scope.cancel()

        stack.callback(cancel)
        return nursery

    async def _start_name_server(self, nursery: trio.Nursery) -> str:
        from triomq.namesrv.config import NamesrvSettings
        from triomq.namesrv.controller import serve
        from triomq.remoting.config import ServerSettings

        settings = NamesrvSettings(kv_config_path=str(self.store / "namesrv" / "kvConfig.json"))
        server = ServerSettings(listen_port=self._plan.name_server_port, bind_address="127.0.0.1")
        on_jump = None if self._clock is None else self._clock.on_jump
        port: int = await nursery.start(partial(serve, settings, server, on_jump=on_jump))
        return f"127.0.0.1:{port}"

    async def _start_broker(self, nursery: trio.Nursery, name: str) -> str:
        from triomq.broker.configuration import Configuration
        from triomq.broker.controller import BrokerController
        from triomq.daemon.clock import system_now_ms

        values = self._plan.values(name, self.store, self.name_server)
        clock = self._clock
        controller = BrokerController(
            Configuration.from_values(values, source=f"LocalCluster, {name}"),
            now_ms=clock.now_ms if clock is not None else self._now_ms or system_now_ms,
            files=self._files(),
            extensions=self._extensions,
            on_jump=None if clock is None else clock.on_jump,
        )
        await nursery.start(controller.serve)
        self._controllers.append(controller)
        return f"127.0.0.1:{controller.port}"

    def _files(self) -> Files:
        """A temporary store need not reach the disk, which may be slow or busy."""
        from triomq.store.files import Files, UnsyncedFiles

        if self._clock is not None:
            return self._clock.files()
        return UnsyncedFiles() if self._plan.store is None else Files()

    # Anywhere else.

    def start(self) -> Self:
        """Start in a thread; returns when brokers are registered."""
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="triomq-cluster", daemon=True)
        self._thread.start()
        started.result(START_SECONDS)
        return self

    def close(self) -> None:
        """Stop the thread; the store is closed properly (and removed when it is a temporary one)."""
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
                    self._clock.attach(self._seconds_to_next, self._log_end)
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
        from triomq.broker.agenda import seconds_to_next

        return min(seconds_to_next(one.parts) for one in self._controllers if one.parts is not None)

    def _log_end(self) -> int:
        return sum(one.parts.store.committed.value for one in self._controllers if one.parts is not None)


class ProcessCluster:
    """The same in a child process, for tests that kill it, or that must not share an interpreter with it."""

    def __init__(
        self,
        *,
        brokers: int = 1,
        store: Path | str | None = None,
        name_server_port: int = 0,
        broker_port: int = 0,
        cluster_name: str = "DefaultCluster",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._plan = _Plan(brokers, store, name_server_port, broker_port, cluster_name, settings)
        self.name_server = ""
        self.brokers: dict[str, str] = {}
        self.store = Path()
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Returns when the brokers are registered. Raises RuntimeError with the child's output when it does not
        start."""
        plan = self._plan
        command = [sys.executable, "-m", "triomq.broker.embedded", "--brokers", str(plan.brokers)]
        command += ["--name-server-port", str(plan.name_server_port), "--broker-port", str(plan.broker_port)]
        command += ["--cluster-name", plan.cluster_name, "--settings", json.dumps(plan.settings)]
        if plan.store is not None:
            command += ["--store", str(plan.store)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._process = process
        assert process.stdout is not None
        seen: list[str] = []
        for line in process.stdout:
            if line.startswith("{"):
                ready = json.loads(line)
                self.name_server, self.brokers = ready["name_server"], ready["brokers"]
                self.store = Path(ready["store"])
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return self
            seen.append(line)
        process.wait()
        raise RuntimeError(f"the cluster did not start (exit code {process.returncode}):\n{''.join(seen)}")

    def close(self) -> None:
        """Stop the child; its store is closed properly."""
        process = self._process
        if process is None:
            return
        self._process = None
        if process.stdin is not None:
            process.stdin.close()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill(self) -> None:
        """End the child as a crash would. The store stays, also a temporary one (`store` says where)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """The child: prints one JSON line when it is ready, serves until its standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m triomq.broker.embedded", description=main.__doc__)
    parser.add_argument("--brokers", type=int, default=1)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--name-server-port", type=int, default=0)
    parser.add_argument("--broker-port", type=int, default=0)
    parser.add_argument("--cluster-name", default="DefaultCluster")
    parser.add_argument("--settings", type=json.loads, default={}, help="JSON object of broker settings")
    options = parser.parse_args(arguments)
    cluster = LocalCluster(
        brokers=options.brokers,
        store=options.store,
        name_server_port=options.name_server_port,
        broker_port=options.broker_port,
        cluster_name=options.cluster_name,
        settings=options.settings,
    )

    async def serve() -> None:
        async with cluster:
            ready = {"name_server": cluster.name_server, "brokers": cluster.brokers, "store": str(cluster.store)}
            sys.stdout.write(json.dumps(ready) + "\n")
            sys.stdout.flush()
            await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)

    _quiet()
    trio.run(serve)
    return 0


def _quiet() -> None:
    """Logs go to standard error, warnings and worse only."""
    import logging

    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


if __name__ == "__main__":
    sys.exit(main())
