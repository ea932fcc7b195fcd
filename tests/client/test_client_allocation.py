"""Every strategy divides all queues without overlap, as the Java classes do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.client.core.allocation import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    MachineRoomNearby,
    Strategy,
    md5_ring_position,
)
from triomq.protocol.message_queue import MessageQueue


def queues_of(count: int, broker: str = "broker-a") -> list[MessageQueue]:
    return [MessageQueue("T", broker, number) for number in range(count)]


def shares(strategy: Strategy, queues: list[MessageQueue], members: list[str]) -> list[list[int]]:
    return [[queue.queue_id for queue in strategy("g", member, queues, members)] for member in members]


@pytest.mark.parametrize(
    ("queue_count", "member_count", "expected"),
    [
        (8, 3, [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (4, 2, [[0, 1], [2, 3]]),
        (3, 5, [[0], [1], [2], [], []]),
        (1, 1, [[0]]),
        (10, 4, [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]),
    ],
)
def test_averagely_as_in_java(queue_count: int, member_count: int, expected: list[list[int]]) -> None:
    members = [f"c{number}" for number in range(member_count)]
    assert shares(Averagely(), queues_of(queue_count), members) == expected


def test_circle_deals_like_cards() -> None:
    assert shares(AveragelyByCircle(), queues_of(5), ["a", "b"]) == [[0, 2, 4], [1, 3]]


def test_machine_room_takes_only_its_rooms() -> None:
    near = [MessageQueue("T", "room1@b", number) for number in range(5)]
    far = [MessageQueue("T", "room2@b", number) for number in range(5)]
    odd = [MessageQueue("T", "plain", 0), MessageQueue("T", "a@b@c", 0)]
    strategy = ByMachineRoom({"room1", "a"})
    got = [strategy("g", member, sorted(near + far + odd), ["x", "y"]) for member in ("x", "y")]
    assert got == [[near[0], near[1], near[4]], [near[2], near[3]]]


def test_nearby_keeps_rooms_together_and_shares_rooms_without_members() -> None:
    strategy = MachineRoomNearby(Averagely(), lambda queue: queue.broker_name, lambda member: member[0])
    queues = sorted(queues_of(2, "r") + queues_of(2, "s") + queues_of(2, "t"))
    members = ["r1", "r2", "s1"]
    got = {member: strategy("g", member, queues, members) for member in members}
    assert got["s1"] == queues_of(2, "s")
    assert got["r1"] == [MessageQueue("T", "r", 0), MessageQueue("T", "t", 0)]
    assert got["r2"] == [MessageQueue("T", "r", 1), MessageQueue("T", "t", 1)]


def test_config_gives_what_is_configured_and_exists() -> None:
    strategy = ByConfig({"T": [MessageQueue("T", "broker-a", 1), MessageQueue("T", "gone", 0)]})
    assert strategy("g", "anyone", queues_of(3), ["a"]) == [MessageQueue("T", "broker-a", 1)]
    assert strategy("g", "anyone", [], ["a"]) == []


def test_ring_positions_are_those_of_java() -> None:
    # First four bytes of MD5("") = d41d8cd9, big endian and unsigned.
    assert md5_ring_position("") == 0xD41D8CD9
    assert str(MessageQueue("T", "b", 3)) == "MessageQueue [topic=T, brokerName=b, queueId=3]"


@given(
    queue_count=st.integers(0, 40),
    members=st.sets(st.text("abcdef@#0123", min_size=1, max_size=6), min_size=1, max_size=9),
    strategy=st.sampled_from([Averagely(), AveragelyByCircle(), ConsistentHash(), ConsistentHash(3)]),
)
def test_every_queue_has_exactly_one_member(queue_count: int, members: set[str], strategy: Strategy) -> None:
    queues = queues_of(queue_count)
    given_out = sorted(queue for member in members for queue in strategy("g", member, queues, sorted(members)))
    assert given_out == queues
    assert strategy("g", "not a member", queues, sorted(members)) == []


@given(
    members=st.sets(st.text("abcdef", min_size=1, max_size=6), min_size=2, max_size=6),
    queue_count=st.integers(1, 30),
)
def test_consistent_hash_moves_only_the_queues_of_who_left(members: set[str], queue_count: int) -> None:
    queues, everyone = queues_of(queue_count), sorted(members)
    left, rest = everyone[0], everyone[1:]
    strategy = ConsistentHash()
    for member in rest:
        before = set(strategy("g", member, queues, everyone))
        after = set(strategy("g", member, queues, rest))
        # Positions are unique for these few names, so members that stay lose no queue.
        assert before <= after
    assert left not in rest


def test_a_member_that_is_not_listed_has_no_share_of_its_rooms() -> None:
    queues = [MessageQueue("T", "room1@a", number) for number in range(4)]
    assert ByMachineRoom({"room1"})("G", "unlisted", queues, ["one", "other"]) == []
