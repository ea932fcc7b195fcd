"""Messages received one by one (POP) from a DLedger group, across its leaders: whole brokers in virtual time."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from broker_group_lab import GROUP, INVISIBLE_MS, BrokerGroup, Received, run_group

from triomq.protocol.codes import RequestCode, ResponseCode

TEN = [str(number).encode() for number in range(10)]


def in_flight(group: BrokerGroup, name: str) -> int | None:
    """Return how many messages are in flight at a broker; None if it was never asked for any."""
    parts = group.serving(name).pop.parts
    return parts.deliveries.count() if parts is not None else None


def committed(group: BrokerGroup, name: str) -> int:
    return group.serving(name).tables.metadata.offsets.query(GROUP, "T", 0)


@pytest.mark.parametrize("how", ["kill", "cut off", "hand over"])
def test_a_new_leader_delivers_what_is_not_done_and_only_that(tmp_path: Path, how: str) -> None:
    async def scenario(group: BrokerGroup) -> None:
        await group.send(*TEN)
        received = await group.receive(maxMsgNums=6)
        assert received.bodies == TEN[:6]
        for body in (b"0", b"1", b"2", b"4"):  # the last one out of order: 3 is still in flight
            assert (await group.ack(received, body)).code == 0
        await group.end_leader(how)
        early = await group.ack(received, b"3")
        assert (early.code, "not valid" in (early.remark or "")) == (ResponseCode.NO_MESSAGE, True)
        again = await group.receive()
        assert again.bodies == TEN[3:]
        assert [message.reconsume_times for message in again.messages] == [0] * 7
        assert (await group.ack(received, b"3")).code == ResponseCode.NO_MESSAGE  # it has another handle by now
        assert (await group.ack(received, b"1")).code == 0  # repeated: the response may have been lost
        for body in again.bodies:
            if body != b"3":
                assert (await group.ack(again, body)).code == 0
        await trio.sleep(INVISIBLE_MS / 1000)
        last = await group.receive()
        assert last.bodies == [b"3"]
        assert (await group.ack(last, b"3")).code == 0
        await group.end_leader("hand over")
        assert (await group.receive()).bodies == []

    run_group(tmp_path, scenario)


def test_an_acknowledgement_is_answered_when_a_quorum_has_its_offset(tmp_path: Path) -> None:
    async def scenario(group: BrokerGroup) -> None:
        await group.send(*TEN)
        name = await group.leader()
        received = await group.receive()
        group.cut_off(name)
        answered = await group.ack(received, b"0", at=name)
        assert answered.code != 0
        assert (await group.receive(at=await group.leader(name))).bodies == TEN

    run_group(tmp_path, scenario)


def test_a_receive_that_waits_at_a_deposed_leader_is_sent_to_the_master(tmp_path: Path) -> None:
    async def scenario(group: BrokerGroup) -> None:
        name = await group.leader()
        answers: list[tuple[Received, float]] = []

        async def wait() -> None:
            received = await group.receive(at=name, pollTime=20_000)
            answers.append((received, trio.current_time()))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.sleep(2)
            await group.end_leader("hand over")
            deposed_at = trio.current_time()
        [(received, at)] = answers
        assert received.response.code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert "only the master" in (received.response.remark or "")
        assert at < deposed_at + 1

    run_group(tmp_path, scenario)


def test_a_leader_that_leads_again_knows_only_what_the_group_has_committed(tmp_path: Path) -> None:
    """What it remembers may be of a topic that was deleted meanwhile."""

    async def scenario(group: BrokerGroup) -> None:
        first = await group.leader()
        await group.send(*TEN)
        received = await group.receive()
        for body in TEN[1:]:
            assert (await group.ack(received, body)).code == 0
        second = await group.end_leader("hand over")
        assert in_flight(group, first) == 0
        assert (await group.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        await group.make_topic()
        new = [b"new %d" % number for number in range(10)]
        await group.send(*new)
        assert (await group.receive()).bodies == new
        assert committed(group, second) == 0
        await group.hand_over(second, first)
        assert await group.leader() == first
        assert (await group.receive()).bodies == new

    run_group(tmp_path, scenario)


def test_nobody_receives_what_no_quorum_has(tmp_path: Path) -> None:
    async def scenario(group: BrokerGroup) -> None:
        await group.send(b"known")
        name = await group.leader()
        assert (await group.receive()).bodies == [b"known"]
        group.cut_off(name)
        bodies: list[list[bytes]] = []

        async def receive() -> None:
            bodies.append((await group.receive(at=name, pollTime=3000)).bodies)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            assert await group.send(b"alone", at=name) != [0]
        assert bodies == [[]]
        group.brokers.network.heal_all()
        await group.send(b"later")
        found = (await group.receive()).bodies
        assert set(found) >= {b"known", b"later"}

    run_group(tmp_path, scenario)


def test_a_group_that_begins_at_the_end_has_begun_for_a_quorum_before_it_receives(tmp_path: Path) -> None:
    """A new leader that did not know it would let the group begin at its own end, behind what was received."""

    async def scenario(group: BrokerGroup) -> None:
        await group.send(*TEN)
        name = await group.leader()
        group.cut_off(name)
        assert (await group.receive(at=name, initMode=1)).bodies == []
        other = await group.leader(name)
        received = await group.receive(at=other, initMode=1)
        assert received.bodies == [b"9"]
        await group.send(b"10", b"11", at=other)
        group.brokers.network.heal_all()
        await group.hand_over(other)
        assert (await group.receive(initMode=1)).bodies == [b"9", b"10", b"11"]

    run_group(tmp_path, scenario, accessMessageInMemoryMaxRatio="0")


@pytest.mark.parametrize("how", ["kill", "hand over"])
def test_order_is_kept_at_a_new_leader(tmp_path: Path, how: str) -> None:
    async def scenario(group: BrokerGroup) -> None:
        await group.send(*TEN)
        batch = await group.receive(order="true", maxMsgNums=4, attemptId="a")
        assert batch.bodies == TEN[:4]
        assert (await group.ack(batch, b"0")).code == 0
        assert (await group.ack(batch, b"2")).code == 0
        await group.end_leader(how)
        again = await group.receive(order="true", maxMsgNums=4, attemptId="b")
        assert again.bodies == TEN[1:5]
        assert (await group.receive(order="true", attemptId="c")).bodies == []

    run_group(tmp_path, scenario)


def test_a_follower_refuses_what_only_the_leader_can_do(tmp_path: Path) -> None:
    async def scenario(group: BrokerGroup) -> None:
        await group.send(b"0")
        received = await group.receive()
        leader = await group.leader()
        follower = next(name for name in group.brokers.brokers if name != leader)
        refused = (await group.receive(at=follower)).response
        assert refused.code == (await group.ack(received, b"0", at=follower)).code == ResponseCode.SLAVE_NOT_AVAILABLE
        assert f"{leader} leads the group" in (refused.remark or "")
        assert in_flight(group, follower) is None

    run_group(tmp_path, scenario)
