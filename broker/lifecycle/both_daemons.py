"""A NameServer and a broker in one process, for trials and development."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import trio

from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.daemon.clock import system_now_ms
from triomq.daemon.environment import read_environment
from triomq.daemon.errors import StartError
from triomq.daemon.logs import BROKER_LOG_FILES, configure_logs
from triomq.daemon.run import report, run
from triomq.daemon.shortage import leaves
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve as serve_namesrv
from triomq.remoting.config import ServerSettings

STOP_DEADLINE_SECONDS = 15.0


@dataclass(frozen=True)
class Both:
    """Where both serve. A `metrics_port`, `dashboard_port` or `grpc_port` of 0: none. `demonstrate` is called with the
    address of the NameServer when both are ready, `how_to_connect` returns the text to print then; None: both stop at
    once."""

    data: Path
    namesrv_port: int
    listen_port: int
    metrics_port: int
    dashboard_port: int
    grpc_port: int
    how_to_connect: Callable[[str], str] | None
    demonstrate: Callable[[str], Awaitable[None]] | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of the broker, by their keys; they win over those that follow from the other fields."""
    store_option: str = "--store"
    """The option of the command line that gives `data`."""


def run_both(program: str, both: Both) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code of the process."""
    data = both.data
    environment = read_environment({"TRIOMQ_LOG_DIR": str(data / "logs"), "HOME": str(data)})
    files = configure_logs(environment, BROKER_LOG_FILES)
    try:
        serving = partial(_serve, program, both)
        return run(program, serving, stop_deadline_seconds=STOP_DEADLINE_SECONDS, log_hint=f"{data}/logs")
    except Exception as error:
        return report(program, error)
    finally:
        files.close()


def port(text: str) -> int:
    """Read a port of the command line."""
    if not text.isdigit() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


async def _serve(program: str, both: Both, *, task_status: trio.TaskStatus[str]) -> None:
    """Run both daemons; the broker stops before the NameServer, so that it can unregister there."""
    broker_stopped = trio.Event()
    async with trio.open_nursery() as nursery:
        with _errors_name_options({"listenPort": "--namesrv-port"}):
            namesrv_port: int = await nursery.start(_namesrv, both, broker_stopped)
        name_server = f"127.0.0.1:{namesrv_port}"
        configuration = Configuration.from_values(
            {
                "listenPort": str(both.listen_port),
                "brokerName": "broker-a",
                "brokerIP1": "127.0.0.1",
                "namesrvAddr": name_server,
                "storePathRootDir": str(both.data / "store"),
                "metricsPort": str(both.metrics_port),
                "dashboardPort": str(both.dashboard_port),
                "grpcServerPort": str(both.grpc_port),
                **both.settings,
            },
            source=program,
        )
        controller = BrokerController(configuration, now_ms=system_now_ms)
        try:
            async with trio.open_nursery() as broker_nursery:
                with _errors_name_options(
                    {
                        "listenPort": "--listen-port",
                        "dashboardPort": "--dashboard-port",
                        "metricsPort": "--metrics-port",
                        "grpcServerPort": "--grpc-port",
                        "storePathRootDir or storePathCommitLog": both.store_option,
                        "storePathRootDir": both.store_option,
                    }
                ):
                    await broker_nursery.start(controller.serve)
                store = both.data / "store"
                print(f"NameServer on port {namesrv_port}, broker on port {controller.port}, store in {store}")  # noqa: T201
                if both.demonstrate is not None:
                    await both.demonstrate(name_server)
                if both.how_to_connect is None:
                    task_status.started("Done: both stop now.")
                    broker_nursery.cancel_scope.cancel()
                else:
                    task_status.started(both.how_to_connect(name_server))
        finally:
            broker_stopped.set()


@contextmanager
def _errors_name_options(names: Mapping[str, str]) -> Iterator[None]:
    """Have errors of a start tell to set what this command has: options, where a daemon of its own has settings."""
    try:
        yield
    except Exception as error:
        for cause in leaves(error):
            if isinstance(cause, StartError):
                text = str(cause)
                for key, option in names.items():
                    text = text.replace(f"set {key}", f"set {option}")
                raise StartError(text, cause.exit_code) from None
        raise


async def _namesrv(both: Both, broker_stopped: trio.Event, *, task_status: trio.TaskStatus[int]) -> None:
    """Run the NameServer until the broker has stopped."""
    settings = NamesrvSettings(kv_config_path=str(both.data / "namesrv" / "kvConfig.json"))
    server_settings = ServerSettings(listen_port=both.namesrv_port, metrics_port=max(0, both.metrics_port - 1))
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(await nursery.start(partial(serve_namesrv, settings, server_settings)))
            await broker_stopped.wait()
            nursery.cancel_scope.cancel()
