"""What a copy is asked to do, from the command line."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from triomq.pipeline.copying.selection import Names, names_of
from triomq.protocol import system_topics
from triomq.protocol.errors import RequestRefused
from triomq.spark.jobs.session import JobFailed, pairs
from triomq.spark.options import ConnectionOptions, OptionTable, connection_options

RETRY_TIMEOUT_MS = "5000"
"""How long one request is repeated, unless an option says otherwise. The loop of the job is more patient."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`name`, `target_name`: of the two sides in state and properties, empty for those of their clusters. `rate`:
    messages a second, 0 for no limit. `settle_seconds`: how long a broker may still store what a closed connection has
    sent."""

    topics: Names
    groups: Names
    renames: dict[str, str]
    name: str
    target_name: str
    is_once: bool
    exactly_once: bool
    starts_latest: bool
    force: bool
    rate: int
    born_within_ms: int
    offsets_seconds: float
    refresh_seconds: float
    settle_seconds: float

    def target_of(self, topic: str) -> str:
        return self.renames.get(topic, topic)


def plan_of(arguments: argparse.Namespace) -> Plan:
    """Return what the arguments ask for. Raises JobFailed."""
    excluded = names_of(arguments.exclude)
    renames = pairs(list(names_of(arguments.rename)), "--rename")
    for new in renames.values():
        try:
            system_topics.check_topic_name(new)
            system_topics.check_not_system_topic(new)
        except RequestRefused as error:
            raise JobFailed(f"--rename: {new!r}: {error.remark}") from None
    topics = Names(names_of(arguments.topics), excluded)
    if not topics.wanted:
        raise JobFailed("--topics: name at least one topic")
    if arguments.rate < 0 or arguments.born_within_ms < 0:
        raise JobFailed("--rate and --born-within-ms must not be negative")
    if min(arguments.offsets_seconds, arguments.refresh_seconds) <= 0:
        raise JobFailed("--offsets-seconds and --refresh-seconds must be more than 0")
    if any(set(",/") & set(name or "") for name in (arguments.source_name, arguments.target_name)):
        raise JobFailed("--source-name and --target-name must not have , or / in them")
    return Plan(
        topics=topics,
        groups=Names(names_of(arguments.groups), excluded),
        renames=renames,
        name=arguments.source_name or "",
        target_name=arguments.target_name or "",
        is_once=arguments.once,
        exactly_once=arguments.exactly_once,
        starts_latest=arguments.start == "latest",
        force=arguments.force,
        rate=arguments.rate,
        born_within_ms=arguments.born_within_ms,
        offsets_seconds=arguments.offsets_seconds,
        refresh_seconds=arguments.refresh_seconds,
        settle_seconds=arguments.settle_seconds,
    )


def options_of(name_server: str, given: list[str], option: str) -> ConnectionOptions:
    """Return how to reach one side. Raises JobFailed, OptionError."""
    table = {"retryTimeoutMs": RETRY_TIMEOUT_MS, **pairs(given, option), "nameServer": name_server}
    return connection_options(OptionTable(table, ()))
