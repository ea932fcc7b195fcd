"""Tables that keep the last message of each key: a commit replaces the rows of the keys that it has.

Of two messages of one queue the later one counts. Of messages of several queues the one that was stored later counts,
by the clocks of the brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from triomq.pipeline.tables.target import About, Target
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.jobs.session import JobFailed
from triomq.spark.positions import Positions

QUEUE_COLUMNS: Final = ("brokerName", "queueId")
ORDER_COLUMN: Final = "storeTimestamp"
KINDS: Final = frozenset({"string", "bigint", "int"})
"""Types that a key can have."""


def last_of_keys(rows: Any, key: str) -> Any:
    """Return the last row of each key; rows of one queue are in its order. Rows without a key are left out."""
    rows = _with_key(rows, key)
    rows = rows.take(_last(rows, [key, *QUEUE_COLUMNS]))
    rows = rows.take(pc.sort_indices(rows[ORDER_COLUMN]))
    return rows.take(_last(rows, [key]))


def _with_key(rows: Any, key: str) -> Any:
    kept = pc.is_valid(rows[key])
    if pa.types.is_string(rows.schema.field(key).type):
        kept = pc.and_(kept, pc.not_equal(rows[key], ""))
    return rows.filter(kept)


def without_earlier(rows: Any, present: Any, key: str) -> Any:
    """Return the rows but for those of which `present` has one of another queue that was stored later. Both have each
    key once."""
    present = present.cast(pa.schema([rows.schema.field(name) for name in present.column_names]))  # widths differ
    before = present.rename_columns([name if name == key else f"_{name}" for name in present.column_names])
    numbered = rows.select([key, *QUEUE_COLUMNS, ORDER_COLUMN]).append_column(
        "_number", pa.array(range(len(rows)), pa.int64())
    )
    joined = numbered.join(before, key, join_type="inner")
    same = pc.and_(*[pc.equal(joined[name], joined[f"_{name}"]) for name in QUEUE_COLUMNS])
    is_earlier = pc.and_(pc.less(joined[ORDER_COLUMN], joined[f"_{ORDER_COLUMN}"]), pc.invert(same))
    earlier = joined["_number"].filter(is_earlier)
    return rows.filter(pc.invert(pc.is_in(numbered["_number"], earlier.combine_chunks())))


def _last(rows: Any, columns: list[str]) -> Any:
    """Return the numbers of the last rows that have the same values in these columns, ascending."""
    numbered = rows.select(columns).append_column("_number", pa.array(range(len(rows)), pa.int64()))
    last = numbered.group_by(columns).aggregate([("_number", "max")])["_number_max"]
    return last.take(pc.sort_indices(last))


class KeyedTarget:
    """A table of the last messages, over one that can replace rows. `unkeyed` counts messages without a key, which are
    in no table."""

    def __init__(self, target: Target, key: str) -> None:
        self._target = target
        self._key = key
        self.unkeyed = 0

    def about(self) -> About | None:
        return self._target.about()

    def kinds(self) -> dict[str, str]:
        return self._target.kinds()

    def positions(self, queues: Sequence[MessageQueue]) -> Positions:
        return self._target.positions(queues)

    def create(self, about: About, schema: Any, positions: Positions) -> None:
        self._target.create(about, schema, positions)

    def add_columns(self, columns: dict[str, Any]) -> None:
        self._target.add_columns(columns)

    def commit(self, rows: Any, positions: Positions) -> None:
        kind = self.kinds().get(self._key)
        if kind not in KINDS:
            why = f"it is {kind}, not {' or '.join(sorted(KINDS))}" if kind else "there is no such column"
            raise JobFailed(f"--key {self._key}: {why}")
        chosen = last_of_keys(rows, self._key)
        if len(chosen):
            self._target.replace(chosen, self._key, positions)
        else:
            self._target.commit(rows.schema.empty_table(), positions)
        self.unkeyed += len(rows) - len(_with_key(rows, self._key))

    def replace(self, rows: Any, key: str, positions: Positions) -> None:
        self._target.replace(rows, key, positions)

    def compact(self) -> None:
        self._target.compact()

    def remove_before(self, day: date) -> None:
        self._target.remove_before(day)

    def close(self) -> None:
        self._target.close()
