"""How many messages a streaming query has not read yet.

Spark has no way for a Python source to add metrics to the progress of a query. The progress has the positions, though,
and the brokers know the ends of their queues.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from triomq.spark import positions
from triomq.spark.cluster import Cluster
from triomq.spark.errors import OptionError
from triomq.spark.options import SOURCE_OPTIONS, OptionTable, connection_options
from triomq.spark.positions import Positions


def lag(progress: Mapping[str, Any] | None, **options: Any) -> dict[str, dict[str, dict[str, int]]]:
    """Return the messages behind the position of a query, by topic, broker name and queue id, as in its checkpoint.

    `progress` is `query.lastProgress`, of a query with a source `rocketmq`; `options` are those of the source, of which
    only the ones of the connection are used. A queue that several sources of the query read counts with the position
    that is furthest behind; queues that are newer than the progress are missing.

    Raises OptionError for a progress without such a position, and BrokerError when a broker does not respond within
    retryTimeoutMs.
    """
    reached = positions_of(progress)
    with Cluster(connection_options(OptionTable(options, SOURCE_OPTIONS))) as cluster:
        ends = cluster.max_offsets(sorted(reached))
    return positions.to_tree({queue: max(ends[queue] - offset, 0) for queue, offset in reached.items()})


def positions_of(progress: Mapping[str, Any] | None) -> Positions:
    """Return up to where a query has read its queues. Raises OptionError."""
    if progress is None:
        raise OptionError("progress: None; lastProgress has a value when the first trigger of the query has ended")
    reached: Positions = {}
    for source in progress["sources"]:
        for queue, offset in _positions(source["endOffset"]).items():
            reached[queue] = min(offset, reached.get(queue, offset))
    if not reached:
        raise OptionError("progress: no source of the query has positions of RocketMQ's queues")
    return reached


def _positions(offset: Any) -> Positions:
    """Return the positions in one offset, which is JSON or its value; none when it is of another kind of source."""
    try:
        return positions.from_tree(json.loads(offset) if isinstance(offset, str) else offset)
    except (OptionError, ValueError):
        return {}
