"""The topics and groups of one broker, which another one adds up: QUERY_BROKER_TOTALS (TrioMQ only).

The response is one JSON document a line. Each has some rows, so both sides make and read it in steps of a document.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import ClientId, EnumName, GroupName, Int32, Int64, TopicName

MOST_PER_SECOND: Final = 1e15
"""Beyond any rate: sums of it stay numbers."""
Rate = Annotated[float, Meta(ge=0, le=MOST_PER_SECOND)]


class TopicTotals(Body, frozen=True, kw_only=True):
    """A topic at one broker. `messages` are those that are still stored; rates are those of the last minute."""

    bytes_per_second: Rate = 0.0
    kind: EnumName = ""
    messages: Int64 = 0
    name: TopicName = ""
    per_second: Rate = 0.0
    read_queues: Int32 = 0
    write_queues: Int32 = 0


class GroupTotals(Body, frozen=True, kw_only=True):
    """A group at one broker. `lag` is what it lacks, `in_flight` a part of that, `age_ms` how long the oldest of it has
    been stored. `client_ids` are the members, each once, or empty where these are too many: `members` is their number.
    """

    age_ms: Int64 = 0
    client_ids: list[ClientId] = []
    dead_letters: Int64 = 0
    in_flight: Int64 = 0
    lag: Int64 = 0
    members: Int32 = 0
    name: GroupName = ""
    per_second: Rate = 0.0


class BrokerTotals(Body, frozen=True, kw_only=True):
    """One document. The first one also has what concerns the broker: its rates, messages a second, the rows that it
    left out, and the keys of its dashboard's address as GET_BROKER_CONFIG has them."""

    dashboard: dict[str, str] = {}
    groups: list[GroupTotals] = []
    groups_left_out: Int32 = 0
    read_per_second: Rate = 0.0
    stored_per_second: Rate = 0.0
    topics: list[TopicTotals] = []
    topics_left_out: Int32 = 0

    def line(self) -> bytes:
        """Return the document as JSON without line breaks."""
        return msgspec.json.encode(self)


def documents(body: bytes) -> Iterator[BrokerTotals]:
    """Yield the documents of a response, each when it is asked for. Raises BodyError."""
    begin = 0
    while begin < len(body):
        end = body.find(b"\n", begin)
        end = end if end >= 0 else len(body)
        yield BrokerTotals.decode_request(body[begin:end])
        begin = end + 1
