"""What the rows of a table are: messages as they are, or messages with their bodies as columns.

A table of values has a second table beside it, of dead rows, and each has its own positions. The order makes a kill at
any moment harmless: first the new columns, then the dead rows with the positions behind the range, then the rows with
the same positions. Killed between the last two, the next run reads the range again, finds the same dead rows, since the
columns are pinned, and leaves out those that are before the position of the table of dead rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

import pyarrow as pa

from triomq.pipeline.tables.rows import RAW_SCHEMA, TYPES, difference, kinds_of, with_date
from triomq.pipeline.tables.target import About, Conflict, Target
from triomq.pipeline.tables.values import VALUE_KINDS, Kinds, Unfit, arrow_columns, fitted, new_columns
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.jobs.session import JobFailed
from triomq.spark.positions import Positions

BODY: Final = "body"
VALUE_SCHEMA: Final = pa.schema([field for field in RAW_SCHEMA if field.name != BODY])
"""The columns of a table of values that are no fields of the body."""
DEAD_SCHEMA: Final = RAW_SCHEMA.append(pa.field("reason", pa.string()))


class Shape(Protocol):
    dead_rows: int

    def open(self, about: About, begins: Positions) -> None:
        """Check or make what a table of this shape has beside it. Raises JobFailed."""

    def beside(self) -> list[Target]:
        """The tables that this shape has beside the first."""

    def schema(self) -> Any:
        """The Arrow schema of a new table."""

    def different(self, found: Kinds) -> str:
        """What is different in the columns of a table, or an empty text."""

    def commit(self, target: Target, messages: Any, positions: Positions, ends: Positions) -> None:
        """Commit a table of MESSAGE_SCHEMA. `ends`: where the queues end. Raises Conflict."""


class RawRows:
    """Messages as they are."""

    def __init__(self) -> None:
        self.dead_rows = 0

    def open(self, about: About, begins: Positions) -> None:
        """Nothing is beside it."""

    def beside(self) -> list[Target]:
        return []

    def schema(self) -> Any:
        return RAW_SCHEMA

    def different(self, found: Kinds) -> str:
        return difference(found, kinds_of(RAW_SCHEMA))

    def commit(self, target: Target, messages: Any, positions: Positions, ends: Positions) -> None:
        target.commit(with_date(messages), positions)


class ValueRows:
    """Bodies as columns. `decode`: body -> fields, raises Unfit; `given`: columns that the table must have."""

    def __init__(self, decode: Callable[[bytes], dict[str, Any]], given: Kinds, dead: Target) -> None:
        self._decode = decode
        self._given = given
        self._dead = dead
        self.dead_rows = 0

    def open(self, about: About, begins: Positions) -> None:
        found = self._dead.about()
        if found is None:
            try:
                self._dead.create(about, DEAD_SCHEMA, begins)
            except Conflict:
                raise JobFailed("--to: another run has just made the table of dead rows") from None
            self._dead.about()
        elif found != about:
            raise JobFailed(f"--dead: it is a table of topic {found.topic!r} of cluster {found.cluster!r}")
        different = difference(self._dead.kinds(), kinds_of(DEAD_SCHEMA))
        if different:
            raise JobFailed(f"--dead: it is a table of another schema: {different}")

    def beside(self) -> list[Target]:
        return [self._dead]

    def schema(self) -> Any:
        return pa.schema([*VALUE_SCHEMA, *(pa.field(name, TYPES[kind]) for name, kind in self._given.items())])

    def different(self, found: Kinds) -> str:
        if BODY in found:
            return "it has whole bodies (it was made without --value)"
        own = {name: kind for name, kind in found.items() if name in VALUE_SCHEMA.names}
        different = difference(own, kinds_of(VALUE_SCHEMA))
        for name, kind in self._columns(found).items():
            wanted = self._given.get(name, kind)
            if kind != wanted or kind not in VALUE_KINDS:
                different = different or f"its column {name!r} is {kind}, not {wanted}"
        return different

    def commit(self, target: Target, messages: Any, positions: Positions, ends: Positions) -> None:
        decoded = [self._decoded(body) for body in messages.column(BODY).to_pylist()]
        pinned = self._columns(target.kinds())
        more = {name: kind for name, kind in self._given.items() if name not in pinned}
        more |= new_columns([each for each in decoded if not isinstance(each, Unfit)], pinned | more)
        if more:
            target.add_columns({name: TYPES[kind] for name, kind in more.items()})
            target.about()
            pinned = self._columns(target.kinds())
        rows: list[dict[str, Any]] = []
        reasons: list[str | None] = []
        for each in decoded:
            try:
                if isinstance(each, Unfit):
                    raise each
                rows.append(fitted(each, pinned))
                reasons.append(None)
            except Unfit as error:
                reasons.append(str(error))
        self._bury(messages, reasons, positions, ends)
        kept = with_date(messages.filter(pa.array([reason is None for reason in reasons], pa.bool_())))
        kept = kept.drop_columns([BODY])
        for name, column in zip(pinned, arrow_columns(rows, pinned), strict=True):
            kept = kept.append_column(name, column)
        target.commit(kept.select(list(target.kinds())), positions)

    def _decoded(self, body: bytes) -> dict[str, Any] | Unfit:
        try:
            return self._decode(body)
        except Unfit as error:
            return error

    @staticmethod
    def _columns(kinds: Kinds) -> Kinds:
        return {name: kind for name, kind in kinds.items() if name not in VALUE_SCHEMA.names}

    def _bury(self, messages: Any, reasons: list[str | None], positions: Positions, ends: Positions) -> None:
        """Commit the dead rows that the table of dead rows does not have yet."""
        known = self._dead.positions(list(ends))
        # A position behind the end is of an earlier queue of that name, and says nothing of these messages.
        known = {queue: offset for queue, offset in known.items() if offset <= ends[queue]}
        places = zip(*(messages.column(name).to_pylist() for name in _PLACE), reasons, strict=True)
        fresh = [
            reason is not None and offset >= known.get(MessageQueue(topic, broker, queue_id), 0)
            for topic, broker, queue_id, offset, reason in places
        ]
        if not any(fresh) and len(known) == len(self._dead.positions(list(ends))):
            return
        dead = with_date(messages.filter(pa.array(fresh, pa.bool_())))
        texts = [reason for reason, is_fresh in zip(reasons, fresh, strict=True) if is_fresh]
        behind = {queue: max(offset, known.get(queue, 0)) for queue, offset in positions.items()}
        self._dead.commit(dead.append_column(DEAD_SCHEMA.field("reason"), pa.array(texts, pa.string())), behind)
        self._dead.about()
        self.dead_rows += len(texts)


_PLACE: Final = ("topic", "brokerName", "queueId", "queueOffset")
