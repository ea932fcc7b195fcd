"""Report on the messages of topics: counts, gaps, repeats, sizes, latencies, dead letters. Needs no Spark and no JVM.

Each message is read once, from the brokers or with --store from the files of one broker. The report has, for each topic
and hour of the store time (UTC): messages and bytes, messages with a key or a producer's id (UNIQ_KEY) that an earlier
one had, and percentiles of the milliseconds from born to stored. From stored to consumed is known where consumers
write message traces. For each topic: offsets without a message. For each group: its dead letters by reason, and with
brokers its backlog now and how long the oldest message of it waits. What is not known is shown as "-".

--thresholds names limits in a YAML file; a broken one is shown, and the exit code is 1:

    topics:
      "orders*": {max_missing_messages: 0, max_born_to_stored_p99_ms: 500, min_messages_per_hour: 100}
    groups:
      "*": {max_dead_letters: 0, max_backlog: 10000}

Exit codes: 0 done; 1 done, but a limit is broken; 2 not done, with one line that says why.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from triomq.protocol.extras import install_hint
from triomq.spark.jobs.progress import Progress
from triomq.spark.jobs.session import JobFailed, add_connection_options

if TYPE_CHECKING:
    from triomq.pipeline.quality.scan import Window

SUMMARY = "report on messages of topics: counts, gaps, repeats, latencies, dead letters"
NEEDS_SPARK = False
MOST_IDS = 5_000_000
UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection_options(parser, is_required=False)
    parser.add_argument("--store", metavar="DIR", help="read this store directory instead of asking brokers")
    parser.add_argument(
        "--topics", default="*", metavar="NAMES", help="names separated by commas, with * ? [...] (all)"
    )
    parser.add_argument("--from", dest="since", metavar="TIME", help="stored since: 2026-11-30T08:00 (UTC), 24h, 7d")
    parser.add_argument("--to", dest="until", metavar="TIME", help="stored before")
    parser.add_argument("--thresholds", metavar="FILE", help="YAML file of limits; a broken one is exit code 1")
    parser.add_argument("--html", metavar="FILE", help="write a page with tables and plots")
    parser.add_argument("--output", choices=("table", "json"), default="table", help="what is printed (table)")
    parser.add_argument(
        "--most-ids",
        type=int,
        default=MOST_IDS,
        metavar="N",
        help=f"ids, and keys, of a topic that are compared, at 16 bytes of memory each ({MOST_IDS})",
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    if (arguments.store is None) == (arguments.name_server is None):
        raise JobFailed("give either --name-server or --store")
    if arguments.most_ids < 1:
        raise JobFailed("--most-ids must be more than 0")
    now_ms = time.time_ns() // 1_000_000
    since, until = _moment(arguments.since, now_ms, "--from"), _moment(arguments.until, now_ms, "--to")
    if since is not None and until is not None and since >= until:
        raise JobFailed("--from must be before --to")
    if arguments.html:
        _check_file(arguments.html)
    from triomq.pipeline.quality.limits import broken, read

    limits = read(arguments.thresholds) if arguments.thresholds else []
    try:
        from triomq.pipeline.quality.scan import Window

        report = _report(arguments, Window(since or 0, until if until is not None else Window().end), now_ms)
    except ImportError as error:
        if not (error.name or "").startswith("pyarrow"):
            raise
        raise JobFailed(f"{error.name} is not installed: {install_hint('tables')}") from error
    report["broken"] = [one.item() for one in broken(limits, report)]
    _show(arguments, report)
    return 1 if report["broken"] else 0


def _report(arguments: argparse.Namespace, window: Window, now_ms: int) -> dict[str, Any]:
    from triomq.pipeline.copying.selection import names_of
    from triomq.pipeline.quality.reading import BrokerTopics, StoreTopics
    from triomq.pipeline.quality.report import report_of

    names = names_of(arguments.topics)
    if not names:
        raise JobFailed("--topics: no name is given")
    progress = Progress("quality", unit=" messages", quiet=arguments.quiet)
    with ExitStack() as opened:
        source: BrokerTopics | StoreTopics
        if arguments.store is not None:
            source = StoreTopics(arguments)
        else:
            source = opened.enter_context(BrokerTopics.opened(arguments))
        found = report_of(source, names, window, arguments.most_ids, now_ms, progress)
    progress.finish()
    return found


def _moment(text: str | None, now_ms: int, option: str) -> int | None:
    """Return the ms since 1970 of an age or of a date, which is UTC if it names no zone."""
    if text is None:
        return None
    if text[-1:] in UNITS_MS and text[:-1].isdecimal() and len(text) < 10:
        return now_ms - int(text[:-1]) * UNITS_MS[text[-1]]
    try:
        moment = datetime.fromisoformat(text)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise JobFailed(f"{option}: {text!r} is no time: write 2026-11-30T08:00, or an age as 90m, 24h, 7d") from None


def _check_file(path: str) -> None:
    """Raise JobFailed for a file that cannot be written, before anything is read."""
    try:
        with Path(path).open("a"):
            pass
    except OSError as error:
        raise JobFailed(f"--html: {path} cannot be written: {error.strerror}") from error


def _show(arguments: argparse.Namespace, report: dict[str, Any]) -> None:
    from triomq.pipeline.quality.report import as_html, as_text

    if arguments.output == "json":
        sys.stdout.write(json.dumps(report, indent=1) + "\n")
    else:
        sys.stdout.write(as_text(report))
    if arguments.html:
        try:
            Path(arguments.html).write_text(as_html(report), "utf-8")
        except OSError as error:
            raise JobFailed(f"--html: {arguments.html} cannot be written: {error.strerror}") from error
