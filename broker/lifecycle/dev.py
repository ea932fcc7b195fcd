"""A NameServer, a broker and its dashboard in one process and one terminal, for development (`triomq dev`).

triomq dev [--store DIR] [--namesrv-port N] [--listen-port N] [--dashboard-port N] [--grpc-port N] [--set KEY=VALUE]...
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from triomq.broker.configuration import GRPC_PORT
from triomq.broker.lifecycle.both_daemons import Both, port, run_both


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code of the process."""
    options = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    with ExitStack() as stack:
        data = options.store or Path(stack.enter_context(TemporaryDirectory(prefix="triomq-dev-")))
        ports = options.namesrv_port, options.listen_port, 0, options.dashboard_port, options.grpc_port
        how_to_connect = partial(_how_to_connect, dashboard_port=options.dashboard_port, grpc_port=options.grpc_port)
        settings = {"enablePropertyFilter": "true", **dict(options.set)}
        return run_both("triomq dev", Both(data, *ports, how_to_connect, settings=settings))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="triomq dev", description="A NameServer, a broker and its dashboard, for development."
    )
    parser.add_argument("--store", type=Path, metavar="DIR", help="keep the store, in DIR/store (default: temporary)")
    parser.add_argument("--namesrv-port", type=port, default=9876, help="port of the NameServer (9876)")
    parser.add_argument("--listen-port", type=port, default=10911, help="port of the broker (10911)")
    parser.add_argument("--dashboard-port", type=port, default=8082, help="port of the dashboard (8082), 0 for none")
    parser.add_argument("--grpc-port", type=port, default=GRPC_PORT, help="port for gRPC clients (8081), 0 for none")
    parser.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the broker, repeatable (enablePropertyFilter=true is one already)",
    )
    return parser


def _setting(text: str) -> tuple[str, str]:
    """Read a setting of the command line."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _how_to_connect(name_server: str, dashboard_port: int, grpc_port: int) -> str:
    grpc = f"  gRPC         127.0.0.1:{grpc_port}\n" if grpc_port else ""
    dashboard = f"  dashboard    http://127.0.0.1:{dashboard_port}/\n" if dashboard_port else ""
    return f"  name server  {name_server}\n{grpc}{dashboard}  stop         Ctrl-C"


if __name__ == "__main__":
    sys.exit(main())
