"""The two clusters of a copy, and what one of them has that the other lacks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from triomq.client.core import cluster_requests
from triomq.pipeline.copying.groups import known_groups
from triomq.pipeline.copying.plan import Plan
from triomq.pipeline.copying.selection import chosen_groups, chosen_topics, topics_of_groups
from triomq.pipeline.copying.targets import common_brokers, masters_of
from triomq.protocol.bodies.route import ClusterInfo
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.spark.cluster import Cluster
from triomq.spark.errors import MQSparkError
from triomq.spark.jobs.session import JobFailed


@dataclass(frozen=True, slots=True)
class Chosen:
    """Topics and groups of the source at one moment."""

    topics: list[str]
    groups: list[SubscriptionGroupConfig]
    source_masters: dict[str, str]
    target_masters: dict[str, str]
    cluster: str
    target_cluster: str


@contextmanager
def named(option: str) -> Iterator[None]:
    """Name the side in what goes wrong inside."""
    try:
        yield
    except ValueError as error:  # an address that is none, options that are not ones
        raise JobFailed(f"{option}: {error}") from None
    except MQSparkError as error:
        raise JobFailed(f"{option}: {error}") from None


def choose(plan: Plan, source: Cluster, target: Cluster, *, is_first: bool = True) -> Chosen:
    """Look which topics and groups there are. Raises JobFailed, which names the side, for a name server that does not
    respond, for a copy into itself, and the first time for a topic or group that is not there."""
    with named("--from"):
        ours = _brokers(source)
        known = source.ask_name_servers(cluster_requests.topic_names)
        groups = known_groups(source, masters_of(ours)) if plan.groups.wanted else {}
    with named("--to"):
        theirs = _brokers(target)
    reserved = {*ours.broker_addr_table, *ours.cluster_addr_table}
    topics = chosen_topics(plan.topics, known, reserved)
    missing = sorted({*plan.topics.exact()} - {*topics})
    if missing and is_first:
        why = "is a topic of the system" if missing[0] in known else "does not exist"
        raise JobFailed(f"--from: topic {missing[0]!r} {why}")
    wanted = chosen_groups(plan.groups, groups)
    lacking = sorted({*plan.groups.exact()} - {*wanted})
    if lacking and is_first:
        raise JobFailed(f"--from: group {lacking[0]!r} does not exist")
    _check_no_loop(plan, topics, common_brokers(ours, theirs))
    return Chosen(
        [*topics, *topics_of_groups(wanted, frozenset(known))],
        [groups[name] for name in wanted],
        masters_of(ours),
        masters_of(theirs),
        min(ours.cluster_addr_table, default=""),
        min(theirs.cluster_addr_table, default=""),
    )


def _brokers(cluster: Cluster) -> ClusterInfo:
    info = cluster.ask_name_servers(cluster_requests.cluster_info)
    if not masters_of(info):
        raise JobFailed(f"the name server {';'.join(cluster.options.name_servers)} knows no broker that is a master")
    return info


def _check_no_loop(plan: Plan, topics: list[str], common: list[str]) -> None:
    targets = {topic: plan.target_of(topic) for topic in topics}
    twice = [topic for topic, new in targets.items() if sum(other == new for other in targets.values()) > 1]
    if twice:
        raise JobFailed(f"--rename: topic {targets[twice[0]]!r} would get the messages of several topics")
    if not common:
        return
    if plan.groups.wanted:
        raise JobFailed(
            f"--from and --to are one cluster (broker {common[0]!r}): groups cannot be copied to themselves"
        )
    loops = sorted(new for new in targets.values() if plan.topics.matches(new))
    if loops:
        raise JobFailed(
            f"--from and --to are one cluster (broker {common[0]!r}): topic {loops[0]!r} would be copied into itself; "
            "rename it, and exclude the new name"
        )
