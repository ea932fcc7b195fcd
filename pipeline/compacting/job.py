"""Keep the last message of each key, in a Delta or Iceberg table or in another topic. Needs no Spark and no JVM.

Of the messages with one key (KEYS, or with --value another column of --key) only the last one is kept: a commit
replaces the rows of the keys that it has. Messages of one queue are in its order; between queues the store time
decides. Messages without a key are left out, and counted.

To a table (--to, --format) each message counts once: positions are committed with the rows, as `table` does it, and all
its options are there. To a topic (--to-topic) the last message of each key of a commit is sent, all of one key to one
queue; positions are offsets of a consumer group at the source, and a kill sends the messages of one commit again.

With --once the job ends when it has what was in the topic at the start. Without, it runs until SIGTERM or Ctrl-C.

Exit codes: 0 done; 2 not done, with one line that says why.
"""

from __future__ import annotations

import argparse

from triomq.pipeline.tables import job as tables
from triomq.spark.jobs.session import JobFailed

SUMMARY = "keep the last message of each key, in a table or a topic"
NEEDS_SPARK = False
FORMATS = ("delta", "iceberg")
KEY = "keys"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    tables.add_source_arguments(parser)
    parser.add_argument("--to", metavar="DIR", help="folder of the table; for delta also a URL")
    parser.add_argument("--format", choices=FORMATS, help="format of the table")
    parser.add_argument("--to-topic", metavar="TOPIC", help="send to this topic instead")
    parser.add_argument("--to-name-server", metavar="HOST:PORT", help="the name servers of --to-topic (the same)")
    parser.add_argument("--key", default=KEY, metavar="COLUMN", help="column that is the key (keys)")
    tables.add_table_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    if (arguments.to_topic is None) == (arguments.to is None):
        raise JobFailed("give either --to or --to-topic")
    if (arguments.format is None) != (arguments.to is None):
        raise JobFailed("--to and --format need each other")
    if not arguments.key:
        raise JobFailed("--key: no column is given")
    if arguments.to_topic is not None:
        _check_topic(arguments)
    return tables.run(arguments)


def _check_topic(arguments: argparse.Namespace) -> None:
    if arguments.store is not None:
        raise JobFailed("--to-topic needs --name-server: positions are offsets of a group at the brokers")
    if arguments.key != KEY or arguments.value != "raw":
        raise JobFailed("--to-topic: messages are sent as they are, by their KEYS: --key and --value are for --to")
    if arguments.to_topic == arguments.topic and arguments.to_name_server in (None, arguments.name_server):
        raise JobFailed("--to-topic: a topic cannot be compacted into itself")
    if arguments.compact or arguments.retention_days is not None:
        raise JobFailed("--compact and --retention-days are for --to")
