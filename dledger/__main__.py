"""Groups (DLedger): who leads, handing over, conversion of stores, and members without a broker for tests.

    python -m triomq.dledger members --group G --peers "n0-127.0.0.1:20000;n1-..." [-n NAMESRV | --brokers BROKERS]
    python -m triomq.dledger transfer --group G --peers "..." --to n1
    python -m triomq.dledger convert-to-ledger SOURCE_ROOT TARGET_ROOT --self n0 [-c broker.conf]
    python -m triomq.dledger convert-to-plain SOURCE_ROOT TARGET_ROOT --self n0 [-c broker.conf]
    python -m triomq.dledger member --group G --self n0 --peers "..." --store DIR
    python -m triomq.dledger append --group G --peers "..." TEXT ...
    python -m triomq.dledger get --group G --peers "..." INDEX ...

A conversion needs a stopped broker and an empty target. It exits with 1 if something could not be converted.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import structlog
import trio

from triomq.daemon.environment import read_environment
from triomq.daemon.errors import ExitCode
from triomq.daemon.logs import LogFileRule, configure_logs
from triomq.daemon.run import run
from triomq.dledger import status
from triomq.dledger.convert.conversion import to_ledger, to_plain
from triomq.dledger.member import watching
from triomq.dledger.member.alone import Options, serve
from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.dledger.member.hosts import PeerAddresses
from triomq.dledger.member.peers import PeersRefused, items_in, parse_peers
from triomq.dledger.rules.core import Setup
from triomq.dledger.rules.timing import DEFAULT, FAST
from triomq.protocol import java_properties
from triomq.protocol.settings import SettingError, bind
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.link_tls import LinkTls
from triomq.remoting.member_tls import MemberTlsSettings
from triomq.remoting.tls import TlsError, TlsSettings, client_context
from triomq.store.config import StoreSettings
from triomq.store.disk.listing import reason
from triomq.store.errors import StoreError
from triomq.store.upkeep.progress import Bar

PROGRAM = "dledger"
STOP_DEADLINE_SECONDS = 15.0
FIND_SECONDS = 15.0
LEFT_OUT = 1
"""Exit code of a conversion that left something out."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a member until a signal, or one command. Return the exit code."""
    given = _parser().parse_args(arguments)
    if given.command.startswith("convert"):
        return _convert(given)
    try:
        members = parse_peers(given.peers, getattr(given, "self", None))
    except PeersRefused as error:
        return _complain(str(error), ExitCode.REFUSED)
    if given.command == "member":
        return _run_member(given, members)
    try:
        tls = _tls(given.config)
    except (TlsError, SettingError, OSError) as error:
        return _complain(str(error), ExitCode.REFUSED)
    failure = trio.run(_with_client, _COMMANDS[given.command], given, members, tls)
    return ExitCode.STOPPED if failure is None else _complain(failure, ExitCode.FAILED)


def _run_member(given: argparse.Namespace, members: dict[str, str]) -> int:
    configure_logs(read_environment(os.environ), (LogFileRule("", "dledger.log", 1, 1),), to_files=False)
    timing = FAST if given.fast_election else DEFAULT
    setup = Setup(given.group, given.self, members, given.flush == "SYNC_FLUSH", timing=timing)
    try:
        addresses = PeerAddresses(given.allow)
    except ValueError as error:
        return _complain(f"--allow: {error}", ExitCode.REFUSED)
    try:
        tls = _tls(given.config, accepts=True)
    except (TlsError, SettingError, OSError) as error:
        return _complain(str(error), ExitCode.REFUSED)
    options = Options(setup, given.store, given.file_bytes, addresses, tls)
    return run(PROGRAM, partial(serve, options), stop_deadline_seconds=STOP_DEADLINE_SECONDS)


# -- a group that runs ---------------------------------------------------------------------------------------------

Command = Callable[[RemotingClient, argparse.Namespace, dict[str, str]], Awaitable[None]]


def _tls(config: str | None, *, accepts: bool = False) -> LinkTls:
    """Return how the members are called: with TLS if the configuration of a member says so."""
    values = _properties(config)
    settings, _ = bind(MemberTlsSettings, values, source=config or "")
    return settings.made(TlsSettings.from_values(values), accepts=accepts)


async def _with_client(
    command: Command, given: argparse.Namespace, members: dict[str, str], tls: LinkTls
) -> str | None:
    """Run a command. Return why it failed, None if it did not."""
    async with open_client(tls_context=tls.dialing.current if tls.dialing is not None else None) as client:
        try:
            await command(client, given, members)
        except GroupFailed as error:
            return str(error)
        return None


async def _append(client: RemotingClient, given: argparse.Namespace, members: dict[str, str]) -> None:
    group = GroupClient(client, given.group, members)
    await group.find_leader(FIND_SECONDS)
    for text in given.texts:
        _say(str(await group.append(text.encode())))


async def _get(client: RemotingClient, given: argparse.Namespace, members: dict[str, str]) -> None:
    group = GroupClient(client, given.group, members)
    await group.find_leader(FIND_SECONDS)
    for index in given.indexes:
        entry = await group.get(index)
        _say(f"{entry.index} {entry.term} {entry.body.decode(errors='replace')}")


async def _transfer(client: RemotingClient, given: argparse.Namespace, members: dict[str, str]) -> None:
    if given.to not in members:
        raise GroupFailed(f"{given.to} is not in --peers: there are {', '.join(members)}")
    group = GroupClient(client, given.group, members)
    if await group.find_leader(FIND_SECONDS) != given.to:
        await group.transfer(given.to)
    _say(f"{await group.find_leader(FIND_SECONDS)} leads {given.group}")


async def _members(client: RemotingClient, given: argparse.Namespace, members: dict[str, str]) -> None:
    tls = TlsSettings.from_values(_properties(given.config))
    async with open_client(tls_context=client_context(tls) if tls.use_for_clients() else None) as calling:
        brokers = items_in(given.brokers) or await watching.brokers_at(calling, items_in(given.name_servers))
        found = await watching.statuses(client, given.group, members, brokers, calling)
    rows = [list(status.COLUMNS.values()), *([_cell(value) for value in one.values().values()] for one in found)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        _say("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if not any(one.reachable for one in found):
        raise GroupFailed(f"no member of {given.group} responds")


def _cell(value: str | int | bool | None) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)


_COMMANDS: dict[str, Command] = {"append": _append, "get": _get, "members": _members, "transfer": _transfer}


# -- stores of stopped brokers -------------------------------------------------------------------------------------


def _convert(given: argparse.Namespace) -> int:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    to = to_ledger if given.command == "convert-to-ledger" else to_plain
    try:
        source = _settings(given.source, given.config)
        report = trio.run(to, source, given.target.rstrip("/"), given.self, Bar(sys.stderr))
    except (StoreError, ValueError, OSError) as error:
        return _complain(reason(error), ExitCode.REFUSED)
    _say(f"{report.records} records converted, {report.queues} queues made, in {given.target}")
    for text in report.left_out:
        _say(f"LEFT OUT {text}")
    if to is to_ledger:
        _say(
            f"Copy {given.target} to at least half of the other members before the first start, and name dledger-"
            f"{given.self} there as their dLegerSelfId: members without it could elect each other, and remove it."
        )
    return LEFT_OUT if report.left_out else ExitCode.STOPPED


def _settings(root: str, config: str | None) -> StoreSettings:
    settings, _ = bind(
        StoreSettings, {**_properties(config), "storePathRootDir": root.rstrip("/")}, source=config or ""
    )
    return settings


def _properties(config: str | None) -> dict[str, str]:
    return java_properties.parse(Path(config).read_text("iso-8859-1")) if config else {}


# -- the command line ----------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(PROGRAM, description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    members = commands.add_parser("members", help="show each member: role, term, entries, what it lacks")
    members.add_argument("--brokers", metavar="HOST:PORT;...", help="the brokers, which tell term and entries")
    members.add_argument("-n", dest="name_servers", metavar="HOST:PORT;...", help="NameServers that know the brokers")
    transfer = commands.add_parser("transfer", help="hand the leadership to a member, and print who leads then")
    transfer.add_argument("--to", required=True, metavar="ID", help="the member to hand it to")
    member = commands.add_parser("member", help="run one member without a broker until a signal")
    member.add_argument("--self", required=True, metavar="ID", help="dLegerSelfId")
    member.add_argument("--store", required=True, metavar="DIR", help="storePathRootDir")
    member.add_argument("--flush", choices=("ASYNC_FLUSH", "SYNC_FLUSH"), default="ASYNC_FLUSH", help="flushDiskType")
    member.add_argument("--fast-election", action="store_true", help="dLegerFastElection, at all members or at none")
    member.add_argument("--file-bytes", type=int, default=1 << 30, metavar="N", help="mappedFileSizeCommitLog")
    member.add_argument(
        "--allow", default="", metavar="IP,...", help="dLegerPeerAddresses: who else may connect; * = all"
    )
    append = commands.add_parser("append", help="append texts to members without a broker, and print their indexes")
    append.add_argument("texts", nargs="+", metavar="TEXT")
    get = commands.add_parser("get", help="print entries: index, term, body")
    get.add_argument("indexes", nargs="+", type=int, metavar="INDEX")
    for command in (members, transfer, member, append, get):
        command.add_argument("--group", required=True, help="dLegerGroup")
        text = "the configuration of a member, for TLS between members (tls.dleger.*, tls.*)"
        command.add_argument("-c", dest="config", metavar="FILE", help=text)
        command.add_argument("--peers", required=True, help="dLegerPeers: id-host:port;id-host:port;...")
    for name, text in (
        ("convert-to-ledger", "make the store of a member from that of a stopped broker without a group"),
        ("convert-to-plain", "make the store of a broker without a group from that of a stopped member"),
    ):
        convert = commands.add_parser(name, help=text)
        convert.add_argument("source", metavar="SOURCE_ROOT", help="storePathRootDir of the stopped broker")
        convert.add_argument("target", metavar="TARGET_ROOT", help="a directory that is empty, or is made")
        convert.add_argument("--self", required=True, metavar="ID", help="dLegerSelfId of the member")
        convert.add_argument("-c", dest="config", metavar="FILE", help="the source's configuration: file sizes, paths")
    return parser


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def _complain(text: str, code: int) -> int:
    print(f"{PROGRAM}: {text}", file=sys.stderr, flush=True)  # noqa: T201
    return code


if __name__ == "__main__":
    sys.exit(main())
