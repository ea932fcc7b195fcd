"""A NameServer and a broker in one process, a few messages sent and received, and then they serve (`bin/quickstart`).

python -m triomq.broker.quickstart [--once] [--data DIR] [--namesrv-port N] [--listen-port N]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.produce.producer import Message, Producer
from triomq.daemon.clock import system_now_ms
from triomq.daemon.environment import read_environment
from triomq.daemon.logs import BROKER_LOG_FILES, configure_logs
from triomq.daemon.run import report, run
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve as serve_namesrv
from triomq.remoting.config import ServerSettings

TOPIC = "Quickstart"
TEXTS = ("hello", "these five messages", "went from a producer", "through the broker's store", "to a consumer")
RECEIVE_SECONDS = 30.0
STOP_DEADLINE_SECONDS = 15.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; return the exit code of the process."""
    options = _options(sys.argv[1:] if arguments is None else arguments)
    data: Path = options.data
    environment = read_environment({"TRIOMQ_LOG_DIR": str(data / "logs"), "HOME": str(data)})
    files = configure_logs(environment, BROKER_LOG_FILES)
    try:
        demonstration = partial(_serve, options, data)
        return run("quickstart", demonstration, stop_deadline_seconds=STOP_DEADLINE_SECONDS, log_hint=f"{data}/logs")
    except Exception as error:
        return report("quickstart", error)
    finally:
        files.close()


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quickstart", description="Try TrioMQ: NameServer and broker in one process.")
    parser.add_argument("--once", action="store_true", help="stop after the demonstration")
    parser.add_argument("--data", type=Path, default=Path("data"), help="directory of the store (default: ./data)")
    parser.add_argument("--namesrv-port", type=_port, default=9876, help="port of the NameServer (9876)")
    parser.add_argument("--listen-port", type=_port, default=10911, help="port of the broker (10911)")
    parser.add_argument(
        "--metrics-port", type=_port, default=5557, help="metrics of the broker (5557), one below of the NameServer"
    )
    parser.add_argument("--dashboard-port", type=_port, default=8082, help="dashboard of the broker (8082), 0 for none")
    return parser.parse_args(arguments)


def _port(text: str) -> int:
    if not text.isdigit() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


async def _serve(options: argparse.Namespace, data: Path, *, task_status: trio.TaskStatus[str]) -> None:
    """Run both daemons; the broker stops before the NameServer, so that it can unregister there."""
    broker_stopped = trio.Event()
    async with trio.open_nursery() as nursery:
        namesrv_port: int = await nursery.start(_namesrv, options, data, broker_stopped)
        name_server = f"127.0.0.1:{namesrv_port}"
        configuration = Configuration.from_values(
            {
                "listenPort": str(options.listen_port),
                "brokerName": "broker-a",
                "brokerIP1": "127.0.0.1",
                "namesrvAddr": name_server,
                "storePathRootDir": str(data / "store"),
                "metricsPort": str(options.metrics_port),
                "dashboardPort": str(options.dashboard_port),
            },
            source="bin/quickstart",
        )
        controller = BrokerController(configuration, now_ms=system_now_ms)
        try:
            async with trio.open_nursery() as broker_nursery:
                await broker_nursery.start(controller.serve)
                print(f"NameServer on port {namesrv_port}, broker on port {controller.port}, store in {data / 'store'}")  # noqa: T201
                await _demonstrate(name_server)
                if options.once:
                    task_status.started("Done: both stop now.")
                    broker_nursery.cancel_scope.cancel()
                else:
                    task_status.started(_how_to_connect(name_server, options))
        finally:
            broker_stopped.set()


async def _namesrv(
    options: argparse.Namespace, data: Path, broker_stopped: trio.Event, *, task_status: trio.TaskStatus[int]
) -> None:
    """Run the NameServer until the broker has stopped."""
    settings = NamesrvSettings(kv_config_path=str(data / "namesrv" / "kvConfig.json"))
    server_settings = ServerSettings(
        listen_port=options.namesrv_port, metrics_port=max(0, options.metrics_port - 1)
    )
    with trio.CancelScope(shield=True):
        async with trio.open_nursery() as nursery:
            task_status.started(await nursery.start(partial(serve_namesrv, settings, server_settings)))
            await broker_stopped.wait()
            nursery.cancel_scope.cancel()


async def _demonstrate(name_server: str) -> None:
    """Send a few messages and receive them through the Python client."""
    async with Producer("quickstart-producers", name_server=name_server) as producer:
        for number, text in enumerate(TEXTS):
            result = await producer.send(Message(TOPIC, text.encode(), tags="demo", keys=f"key-{number}"))
            print(f"  sent     {text!r:32} -> queue {result.queue.queue_id}, offset {result.queue_offset}")  # noqa: T201
    expected = len(TEXTS)
    consumer = PushConsumer("quickstart-consumers", name_server=name_server)
    consumer.subscribe(TOPIC, "demo")
    with trio.fail_after(RECEIVE_SECONDS):
        async with consumer:
            async for message in consumer:
                print(f"  received {message.body.decode()!r:32} <- queue {message.queue_id}, {message.msg_id}")  # noqa: T201
                consumer.ack()
                expected -= 1
                if not expected:
                    break


def _how_to_connect(name_server: str, options: argparse.Namespace) -> str:
    metrics = f"  metrics http://127.0.0.1:{options.metrics_port}/metrics\n" if options.metrics_port else ""
    dashboard = f"  browser http://127.0.0.1:{options.dashboard_port}/\n" if options.dashboard_port else ""
    return (
        f"Connect any RocketMQ client to the NameServer {name_server}:\n"
        f'  Java    producer.setNamesrvAddr("{name_server}")\n'
        f'  Go      producer.WithNameServer([]string{{"{name_server}"}})\n'
        f'  Python  Producer("group", name_server="{name_server}")\n'
        f"  tools   mqadmin clusterList -n {name_server}\n"
        f"{metrics}{dashboard}"
        "Serving until Ctrl-C."
    )


if __name__ == "__main__":
    sys.exit(main())
