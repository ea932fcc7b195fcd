"""Copy topics, groups and their offsets from one cluster to another, continuously. Neither needs to be TrioMQ's.

Topics are made at the target with the same queues and permissions. Messages go from queue to queue in order, with body,
tags, keys, properties, UNIQ_KEY and born time. With --groups the groups are made as well, and their offsets follow, so
that consumers move over and continue where they were; retry and dead letter topics of these groups are copied, too.
Half messages and delayed messages are copied when they become visible, topics of the system never.

Positions are kept in the directory --state: killed and started again, the copy repeats at most what was in flight, 256
messages of a queue. With --exactly-once each message has the property COPY_SOURCE, its position at the source, and the
target is read back before anything is sent again: nothing is there twice. SIGTERM ends the copy after what is in hand.

The property COPY_CLUSTERS names the clusters in which a message was. What comes from the target is not copied back, so
two clusters may be copied into each other if their names differ; --source-name and --target-name give them others.

Exit codes: 0 done; 1 done, but messages had been deleted at the source before they were copied; 2 not done.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from triomq.pipeline.copying.copier import Copier
from triomq.pipeline.copying.dry_run import preview
from triomq.pipeline.copying.figures import Figures, FiguresServer
from triomq.pipeline.copying.plan import Plan, options_of, plan_of
from triomq.pipeline.copying.queue_table import QueueTable
from triomq.pipeline.copying.records import Marks
from triomq.pipeline.copying.sides import choose, named
from triomq.pipeline.copying.state import StateDirectory
from triomq.spark.cluster import Cluster
from triomq.spark.jobs.progress import Progress

SUMMARY = "copy topics, groups and offsets to another cluster, continuously"
NEEDS_SPARK = False
PROGRESS_SECONDS = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("what is copied")
    which.add_argument("--topics", required=True, metavar="NAMES", help="names separated by commas, with * ? [...]")
    which.add_argument("--groups", metavar="NAMES", help="groups whose settings and offsets follow")
    which.add_argument("--exclude", metavar="NAMES", help="topics and groups that stay")
    which.add_argument("--rename", metavar="OLD=NEW", help="topics with another name there, separated by commas")
    which.add_argument("--start", choices=("earliest", "latest"), default="earliest", help="where new queues begin")
    where = parser.add_argument_group("from where to where")
    for side, dest in (("from", "source"), ("to", "target")):
        where.add_argument(
            f"--{side}", dest=dest, required=True, metavar="HOST:PORT", help="name servers, with ; between"
        )
        where.add_argument(
            f"--{side}-option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help="connection option, like accessKey=... (docs/spark.md); may be repeated",
        )
    for side in ("source", "target"):
        where.add_argument(
            f"--{side}-name", metavar="NAME", help=f"what properties and positions call the {side} (its cluster's name)"
        )
    how = parser.add_argument_group("how")
    how.add_argument("--state", required=True, metavar="DIR", help="directory for the positions, one for each copy")
    how.add_argument("--exactly-once", action="store_true", help="nothing twice at the target, whatever happens")
    how.add_argument("--once", action="store_true", help="end when all that is there now is copied")
    how.add_argument("--dry-run", action="store_true", help="say what would be made and copied, and end")
    how.add_argument("--rate", type=int, default=0, metavar="N", help="at most N messages a second (0: no limit)")
    how.add_argument(
        "--born-within-ms",
        type=int,
        default=0,
        metavar="MS",
        help="send messages born within MS of each other as one batch, with the born time of the first: faster",
    )
    how.add_argument("--offsets-seconds", type=float, default=10.0, metavar="S", help="how often offsets follow (10)")
    how.add_argument(
        "--refresh-seconds", type=float, default=10.0, metavar="S", help="how often topics are listed (10)"
    )
    how.add_argument("--force", action="store_true", help="move offsets of groups that have members at the target")
    how.add_argument(
        "--settle-seconds",
        type=float,
        default=1.0,
        metavar="S",
        help="wait before the target is read back (1)",
    )
    how.add_argument("--metrics-port", type=int, default=0, metavar="PORT", help="Prometheus text on 127.0.0.1")
    how.add_argument("--quiet", action="store_true", help="no progress line")


def run(arguments: argparse.Namespace) -> int:
    plan = plan_of(arguments)
    with named("--from"):
        source = Cluster(options_of(arguments.source, arguments.from_option, "--from-option"))
    with named("--to"):
        target = Cluster(options_of(arguments.target, arguments.to_option, "--to-option"))
    with source, target:
        if arguments.dry_run:
            sys.stdout.write(preview(plan, source, target))
            return 0
        return _copy(arguments, plan, source, target)


def _copy(arguments: argparse.Namespace, plan: Plan, source: Cluster, target: Cluster) -> int:
    stop = threading.Event()
    figures = Figures()
    chosen = choose(plan, source, target)
    marks = Marks(plan.name or chosen.cluster, plan.target_name or chosen.target_cluster, plan.exactly_once)
    with StateDirectory(arguments.state, marks.source) as state, FiguresServer(figures, arguments.metrics_port):
        copier = Copier(plan, QueueTable(plan, (source, target), state, marks), (source, target), marks, figures, stop)
        previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        over = threading.Event()
        watcher = threading.Thread(target=_show, args=(figures, over, arguments.quiet), name="progress", daemon=True)
        watcher.start()
        try:
            for number in previous:
                signal.signal(number, lambda _number, _frame: stop.set())
            copier.run()
        finally:
            over.set()
            watcher.join()
            for number, handler in previous.items():
                signal.signal(number, handler)
    groups = f", offsets of {figures.translated_groups} groups" if plan.groups.wanted else ""
    copied, lost, returned = (sum(table.values()) for table in (figures.copied, figures.lost, figures.returned))
    sys.stdout.write(f"{copied:,} messages of {len(figures.copied)} topics copied{groups}\n")
    if returned:
        sys.stdout.write(f"{returned:,} messages came from cluster {marks.target!r} and were not copied back\n")
    if lost:
        sys.stdout.write(f"{lost:,} messages had been deleted at the source before they were copied\n")
    return 1 if lost else 0


def _show(figures: Figures, over: threading.Event, quiet: bool) -> None:
    """Draw the progress line; the tables of another thread need not be of one moment."""
    progress = Progress("copy", unit=" messages", quiet=quiet)
    while not over.wait(PROGRESS_SECONDS):
        progress.set(sum(figures.copied.values()), note=f"lag {sum(figures.lag.values()):,}")
    progress.finish()
