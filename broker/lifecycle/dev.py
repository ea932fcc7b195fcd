"""A NameServer, a broker and its dashboard in one process and one terminal, for development (`triomq dev`).

triomq dev [--store DIR] [--namesrv-port N] [--listen-port N] [--dashboard-port N]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from triomq.broker.lifecycle.both_daemons import Both, port, run_both


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; return the exit code of the process."""
    options = _parser().parse_args(sys.argv[1:] if arguments is None else arguments)
    with ExitStack() as stack:
        data = options.store or Path(stack.enter_context(TemporaryDirectory(prefix="triomq-dev-")))
        ports = options.namesrv_port, options.listen_port, 0, options.dashboard_port
        return run_both(
            "triomq dev", Both(data, *ports, partial(_how_to_connect, dashboard_port=options.dashboard_port))
        )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="triomq dev", description="A NameServer, a broker and its dashboard, for development."
    )
    parser.add_argument("--store", type=Path, help="directory of the store (default: a temporary one)")
    parser.add_argument("--namesrv-port", type=port, default=9876, help="port of the NameServer (9876)")
    parser.add_argument("--listen-port", type=port, default=10911, help="port of the broker (10911)")
    parser.add_argument("--dashboard-port", type=port, default=8082, help="port of the dashboard (8082), 0 for none")
    return parser


def _how_to_connect(name_server: str, dashboard_port: int) -> str:
    dashboard = f"  dashboard    http://127.0.0.1:{dashboard_port}/\n" if dashboard_port else ""
    return f"  name server  {name_server}\n{dashboard}  stop         Ctrl-C"


if __name__ == "__main__":
    sys.exit(main())
