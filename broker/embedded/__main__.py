"""python -m triomq.broker.embedded: the child process of a ProcessCluster."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

import structlog
import trio

from triomq.broker.embedded.local_cluster import LocalCluster


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the child: print one JSON line when it is ready, serve until standard input ends. Return the exit code."""
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
    """Send warnings and errors to standard error; drop other log lines."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


if __name__ == "__main__":
    sys.exit(main())
