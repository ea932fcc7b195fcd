"""What a copy would make and copy, as text. Changes nothing."""

from __future__ import annotations

from triomq.pipeline.copying.groups import missing_groups
from triomq.pipeline.copying.plan import Plan
from triomq.pipeline.copying.selection import FewerQueues, placed
from triomq.pipeline.copying.sides import choose, named
from triomq.pipeline.copying.targets import planned, queues_of, readable_queues
from triomq.spark.cluster import Cluster
from triomq.spark.jobs.session import JobFailed


def preview(plan: Plan, source: Cluster, target: Cluster) -> str:
    """Return a line for each topic and group. Raises JobFailed for what would fail."""
    chosen = choose(plan, source, target)
    lines = []
    for topic in chosen.topics:
        with named("--from"):
            route = source.find_route(topic)
            sources = readable_queues(route) if route is not None else []
            ends, begins = source.max_offsets(sources), source.min_offsets(sources)
        if route is None:
            continue
        new_name = plan.target_of(topic)
        with named("--to"):
            there = target.find_route(new_name)
        count = sum(ends[queue] - begins[queue] for queue in sources)
        if there is None:
            brokers = ", ".join(sorted(planned(route, chosen.target_masters)))
            how = f"would be made at {brokers}"
        else:
            how = "exists"
            try:
                placed(sources, queues_of(there), {})
            except FewerQueues as error:
                raise JobFailed(f"--to: {error}; give it more (mqadmin updateTopic -r -w)") from None
        lines.append(f"topic {topic} -> {new_name}: {len(sources)} queues, {count:,} messages; the target {how}")
    with named("--to"):
        lacking = {config.group_name for config, _ in missing_groups(target, chosen.target_masters, chosen.groups)}
    for config in chosen.groups:
        how = "would be made" if config.group_name in lacking else "exists"
        lines.append(f"group {config.group_name}: {how}")
    return "".join(f"{line}\n" for line in lines) or "nothing matches\n"
