"""python -m triomq.store verify|dump|rebuild DIR [-c broker.conf]: inspect or repair a store that no broker has open.
A member of a DLedger group has its log in DIR/dledger-<id>, behind a plain one if it was a plain broker before.
python -m triomq.store selftest DIR: test whether the disk of a directory keeps what a store promises.

Progress is shown on standard error.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog
import trio

from triomq.protocol import java_properties
from triomq.protocol.settings import bind
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.ledgers import members_in
from triomq.store.disk.listing import reason
from triomq.store.errors import StoreError
from triomq.store.message_store import DefaultMessageStore
from triomq.store.selftest import run as selftest
from triomq.store.selftest.run import Limits
from triomq.store.upkeep import offline
from triomq.store.upkeep.offline_sizes import sizes_in
from triomq.store.upkeep.progress import Bar, Progress, StartProgress, unseen


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Return the exit code: 0 no problems, 1 problems were found, 2 the directory cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m triomq.store", description=__doc__)
    parser.add_argument("command", choices=["verify", "dump", "rebuild", "selftest"])
    parser.add_argument("directory", help="storePathRootDir; selftest: any directory")
    parser.add_argument(
        "-c",
        "--configFile",
        help="broker configuration (DIR/broker.conf); sizes it does not name are those of the files",
    )
    parser.add_argument("--start", type=int, default=None, help="dump: physical offset of the first record")
    parser.add_argument("--seconds", type=float, default=30.0, help="selftest: seconds it takes, about (30)")
    parser.add_argument("--mib", type=int, default=256, help="selftest: space it may use, in MiB (256)")
    arguments = parser.parse_args(argv)
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    try:
        if arguments.command == "selftest":
            return _selftest(Path(arguments.directory), Limits(arguments.seconds, arguments.mib))
        settings = _settings(arguments.directory, arguments.configFile)
        if not Path(arguments.directory).is_dir():
            raise StoreError(f"{arguments.directory} is not a directory")
        self_id = _member_in(settings)
        if arguments.command == "verify":
            return _verify(settings, self_id)
        if arguments.command == "dump":
            log = _open_member(settings, self_id, unseen) if self_id else None
            for line in offline.dump(settings, arguments.start, _progress_beside_lines(), log):
                sys.stdout.write(line + "\n")
            return 0
        if self_id:
            raise StoreError(
                f"{arguments.directory} is the store of a member of a group: move its consumequeue and index away, and "
                "its next start makes them again"
            )
        return trio.run(_rebuild, settings)
    except BrokenPipeError:
        return 0
    except (StoreError, ValueError, OSError) as error:
        sys.stderr.write(f"{reason(error)}\n")
        return 2


def _settings(directory: str, config_file: str | None) -> StoreSettings:
    path = Path(config_file) if config_file else Path(directory) / "broker.conf"
    values = java_properties.parse(path.read_text("iso-8859-1")) if config_file or path.exists() else {}
    values["storePathRootDir"] = directory
    settings, _ = bind(StoreSettings, values, source=str(path))
    sizes = sizes_in(Files(), Layout(settings))
    stated, _ = bind(StoreSettings, {**sizes, **values}, source=str(path))
    return stated


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _member_in(settings: StoreSettings) -> str:
    """Return dLegerSelfId of the member whose store this is, "" for that of a plain broker. Raises StoreError."""
    if settings.enable_dleger_commit_log and settings.dleger_self_id:
        return settings.dleger_self_id
    found = members_in(Files(), settings.store_path_root_dir)
    if len(found) > 1:
        raise StoreError(f"there are ledgers of {', '.join(sorted(found))}: give the member's configuration with -c")
    return found[0] if found else ""


def _open_member(settings: StoreSettings, self_id: str, start_progress: StartProgress) -> offline.OfflineLog:
    from triomq.dledger.offline import open_member

    return open_member(settings, self_id, start_progress)


def _verify(settings: StoreSettings, self_id: str) -> int:
    start_progress = partial(Progress, Bar(sys.stderr), _now_ms)
    log = _open_member(settings, self_id, start_progress) if self_id else offline.OfflineLog.plain(settings)
    for text in log.about:
        _say(text)
    findings = offline.verify(settings, start_progress, log)
    _say(f"log: {findings.records} records from {findings.log_begin} to {findings.log_end}")
    _say(f"{findings.queues} queues, {findings.queue_entries} entries")
    for problem in findings.problems:
        _say(f"PROBLEM {problem}")
    _say("no problems" if not findings.problems else f"{len(findings.problems)} problems")
    return 1 if findings.problems else 0


def _selftest(directory: Path, limits: Limits) -> int:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    report = selftest.run(directory, limits, lambda step: sys.stderr.write(f"{step}\n"))
    for line in report.lines():
        _say(line)
    return 0 if report.is_ok else 1


async def _rebuild(settings: StoreSettings) -> int:
    store = DefaultMessageStore(settings, now_ms=_now_ms)
    store.lock()  # raises StoreLocked if a broker has the store open
    store.unlock()
    for path in offline.clear_derived(settings):
        _say(f"the old files are in {path}")
    await store.load(Bar(sys.stderr))
    report = store.recovery_report
    if report is not None:
        _say(f"{report.records} records read, {report.added_entries} queue entries made")
        for damage in report.damages:
            _say(f"damaged from {damage.begin} to {damage.end}: {damage.reason}; saved under {store.paths.salvage}")
    await store.close()
    return 0


def _progress_beside_lines() -> StartProgress:
    """Return the progress for a command that prints lines: none if output and progress would share a terminal."""
    return unseen if sys.stdout.isatty() and sys.stderr.isatty() else partial(Progress, Bar(sys.stderr), _now_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
