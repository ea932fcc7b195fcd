"""Members of a group without a broker, and a client of such a group, for tests and soak runs.

    python -m triomq.dledger member --group G --self n0 --peers "n0-127.0.0.1:20000;n1-..." --store DIR
    python -m triomq.dledger append --group G --peers "..." TEXT ...
    python -m triomq.dledger get --group G --peers "..." INDEX ...
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

import trio

from triomq.daemon.environment import read_environment
from triomq.daemon.errors import ExitCode
from triomq.daemon.logs import LogFileRule, configure_logs
from triomq.daemon.run import run
from triomq.dledger.member.alone import Options, serve
from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.dledger.member.peers import PeersRefused, parse_peers
from triomq.dledger.rules.core import Setup
from triomq.remoting.client import open_client

PROGRAM = "dledger"
STOP_DEADLINE_SECONDS = 15.0
FIND_SECONDS = 15.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a member until a signal, or one command of the client. Return the exit code."""
    given = _parser().parse_args(arguments)
    try:
        members = parse_peers(given.peers, getattr(given, "self", None))
    except PeersRefused as error:
        return _complain(str(error), ExitCode.REFUSED)
    if given.command == "member":
        return _run_member(given, members)
    try:
        trio.run(_append if given.command == "append" else _get, given, members)
    except GroupFailed as error:
        return _complain(str(error), ExitCode.FAILED)
    return ExitCode.STOPPED


def _run_member(given: argparse.Namespace, members: dict[str, str]) -> int:
    configure_logs(read_environment(os.environ), (LogFileRule("", "dledger.log", 1, 1),), to_files=False)
    setup = Setup(given.group, given.self, members, given.flush == "SYNC_FLUSH")
    options = Options(setup, given.store, given.file_bytes)
    return run(PROGRAM, partial(serve, options), stop_deadline_seconds=STOP_DEADLINE_SECONDS)


async def _append(given: argparse.Namespace, members: dict[str, str]) -> None:
    async with open_client() as client:
        group = GroupClient(client, given.group, members)
        await group.find_leader(FIND_SECONDS)
        for text in given.texts:
            print(await group.append(text.encode()), flush=True)  # noqa: T201


async def _get(given: argparse.Namespace, members: dict[str, str]) -> None:
    async with open_client() as client:
        group = GroupClient(client, given.group, members)
        await group.find_leader(FIND_SECONDS)
        for index in given.indexes:
            entry = await group.get(index)
            print(entry.index, entry.term, entry.body.decode(errors="replace"), flush=True)  # noqa: T201


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    member = commands.add_parser("member", help="run one member until a signal")
    member.add_argument("--self", required=True, metavar="ID", help="dLegerSelfId")
    member.add_argument("--store", required=True, metavar="DIR", help="storePathRootDir")
    member.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH", help="flushDiskType")
    member.add_argument("--file-bytes", type=int, default=1 << 30, metavar="N", help="mappedFileSizeCommitLog")
    append = commands.add_parser("append", help="append texts, and print their indexes")
    append.add_argument("texts", nargs="+", metavar="TEXT")
    get = commands.add_parser("get", help="print entries: index, term, body")
    get.add_argument("indexes", nargs="+", type=int, metavar="INDEX")
    for command in (member, append, get):
        command.add_argument("--group", required=True, help="dLegerGroup")
        command.add_argument("--peers", required=True, help="dLegerPeers: id-host:port;id-host:port;...")
    return parser


def _complain(text: str, code: int) -> int:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
