"""A NameServer and a broker in one process, a few messages sent and received, and then they serve (`bin/quickstart`).

python -m triomq.broker.lifecycle.quickstart [--once] [--data DIR] [--namesrv-port N] [--listen-port N] [--grpc-port N]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from triomq.broker.configuration import GRPC_PORT
from triomq.broker.lifecycle.both_daemons import Both, port, run_both
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.produce.producer import Message, Producer

TOPIC = "Quickstart"
TEXTS = ("hello", "these five messages", "went from a producer", "through the broker's store", "to a consumer")
RECEIVE_SECONDS = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demonstration; return the exit code of the process."""
    options = _options(sys.argv[1:] if arguments is None else arguments)
    ports = options.namesrv_port, options.listen_port, options.metrics_port, options.dashboard_port, options.grpc_port
    how_to_connect = None if options.once else partial(_how_to_connect, options=options)
    return run_both("quickstart", Both(options.data, *ports, how_to_connect, _demonstrate, store_option="--data"))


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="quickstart", description="Try TrioMQ: NameServer and broker in one process.")
    parser.add_argument("--once", action="store_true", help="stop after the demonstration")
    parser.add_argument("--data", type=Path, default=Path("data"), help="directory of the store (default: ./data)")
    parser.add_argument("--namesrv-port", type=port, default=9876, help="port of the NameServer (9876)")
    parser.add_argument("--listen-port", type=port, default=10911, help="port of the broker (10911)")
    parser.add_argument(
        "--metrics-port", type=port, default=5557, help="metrics of the broker (5557), one below of the NameServer"
    )
    parser.add_argument("--dashboard-port", type=port, default=8082, help="dashboard of the broker (8082), 0 for none")
    parser.add_argument("--grpc-port", type=port, default=GRPC_PORT, help="port for gRPC clients (8081), 0 for none")
    return parser.parse_args(arguments)


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
    grpc = f"  gRPC    clients of RocketMQ 5: 127.0.0.1:{options.grpc_port}\n" if options.grpc_port else ""
    return (
        f"Connect any RocketMQ client to the NameServer {name_server}:\n"
        f'  Java    producer.setNamesrvAddr("{name_server}")\n'
        f'  Go      producer.WithNameServer([]string{{"{name_server}"}})\n'
        f'  Python  Producer("group", name_server="{name_server}")\n'
        f"  tools   mqadmin clusterList -n {name_server}\n"
        f"{grpc}{metrics}{dashboard}"
        "Serving until Ctrl-C."
    )


if __name__ == "__main__":
    sys.exit(main())
