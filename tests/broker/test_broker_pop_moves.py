"""Groups that come to POP from elsewhere: from other brokers and queues, from pulling, and back to it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import trio
from broker_pop_lab import INVISIBLE_MS, PopLab, open_pop
from trio.testing import MockClock

from triomq.broker.processors.offsets import Recency
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.errors import RequestRefused
from triomq.protocol.record import decode_records

FROM_LAST = 1


def use_recency(lab: PopLab, memory_bytes: int | None = None) -> None:
    lab.deliveries._is_recent = Recency(lab.configuration, lab.store, memory_bytes).is_recent


async def drained(lab: PopLab, **changes: object) -> list[bytes]:
    """Receive and acknowledge all that there is, also what is in flight by now."""
    bodies: list[bytes] = []
    for _ in range(2):
        await trio.sleep(INVISIBLE_MS / 1000 + 1)
        while (received := await lab.receive(**changes)).messages:
            bodies += received.bodies
            for message in received.messages:
                assert await lab.ack(received, message) == 0
    return bodies


# -- new brokers, new queues -------------------------------------------------------------------------------------------


async def test_a_group_that_begins_at_the_end_has_what_came_to_a_new_broker_before_its_first_receive(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path / "old") as old, open_pop(tmp_path / "new", queues=2) as new:
        for lab in (old, new):
            use_recency(lab)
        await old.send(3)
        await drained(old, initMode=FROM_LAST)
        wanted = [await new.send(5, queue_id=queue_id) for queue_id in (0, 1)]
        assert sorted(await drained(new, initMode=FROM_LAST)) == sorted(wanted[0] + wanted[1])


async def test_a_group_that_begins_at_the_end_has_what_came_to_a_new_queue_before_its_first_receive(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        use_recency(lab)
        await lab.send(3)
        await drained(lab, initMode=FROM_LAST)
        lab.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2, perm=6))
        wanted = await lab.send(5, queue_id=1)
        assert await drained(lab, initMode=FROM_LAST) == wanted


async def test_a_new_group_begins_at_the_end_of_a_long_queue(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Its first message is not in memory any more. What comes behind its first receive is not passed over."""
    async with open_pop(tmp_path) as lab:
        use_recency(lab, memory_bytes=1000)
        await lab.send(100)
        assert (await lab.receive(initMode=FROM_LAST)).bodies == [b"99"]
        assert (await lab.receive(initMode=0, group="first", maxMsgNums=1)).bodies == [b"0"]
        wanted = await lab.send(3)
        assert (await lab.receive(initMode=FROM_LAST)).bodies == wanted


# -- pulling and back --------------------------------------------------------------------------------------------------


def pulled(lab: PopLab, begin: int, most: int = 32) -> list[bytes]:
    """Return what a client pulls that begins at an offset."""
    return [message.body for message in decode_records(lab.store.reading.get_messages("T", 0, begin, most).body)]


@pytest.mark.parametrize("in_order", [False, True])
async def test_a_group_that_pulls_receives_and_pulls_again_repeats_only_what_was_open(
    tmp_path: Path, autojump_clock: MockClock, in_order: bool
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(10)
        assert pulled(lab, 0, 6) == [b"0", b"1", b"2", b"3", b"4", b"5"]
        lab.offsets.commit("G", "T", 0, 4)
        received = await lab.receive(order=in_order, maxMsgNums=4)
        assert received.bodies == [b"4", b"5", b"6", b"7"], "4 and 5 were pulled, but not committed"
        lab.offsets.commit("G", "T", 0, 6)  # the last one of the client that pulled
        assert await lab.ack(received, received.messages[2]) == 0
        assert lab.committed() == 7

        assert pulled(lab, lab.committed()) == [b"7", b"8", b"9"], "7 is open"
        lab.offsets.commit("G", "T", 0, 10)
        assert await lab.ack(received, received.messages[3]) == 0, "it is done"
        await trio.sleep(2 * INVISIBLE_MS / 1000)
        wanted = await lab.send(2)
        assert (await lab.receive(order=in_order)).bodies == wanted


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("seed", range(20))
async def test_a_group_that_changes_its_mode_at_any_time_loses_nothing(
    tmp_path: Path, autojump_clock: MockClock, seed: int, in_order: bool
) -> None:
    """A client that pulls has positions only. So what lies behind a message that was open when it began may come again,
    and nothing else."""
    rng = random.Random(seed)
    sent: list[bytes] = []
    done: list[bytes] = []
    may_repeat: set[bytes] = set()
    pulls = True
    async with open_pop(tmp_path) as lab:
        for _ in range(40):
            sent += await lab.send(rng.randrange(4))
            most = rng.randint(1, 5)
            if pulls:
                begin = max(0, lab.committed())
                bodies = pulled(lab, begin, most)
                kept = rng.randint(0, len(bodies))
                if kept:
                    lab.offsets.commit("G", "T", 0, begin + kept)
                may_repeat.update(bodies[kept:])
            else:
                received = await lab.receive(order=in_order, maxMsgNums=most)
                bodies = received.bodies
                for message in received.messages:
                    if rng.random() < 0.5:
                        assert await lab.ack(received, message) == 0
                    else:
                        may_repeat.add(message.body)
            done += bodies
            if rng.random() < 0.3:
                pulls = not pulls
                may_repeat.update(sent[max(0, lab.committed()) : lab.deliveries.next_offset("T", "G", 0)])
            await trio.sleep(rng.choice([0, 1, INVISIBLE_MS / 1000 + 1]))
        done += await drained(lab, order=in_order)
        assert set(done) == set(sent)
        assert {body for body, times in Counter(done).items() if times > 1} <= may_repeat
        assert lab.committed() == len(sent)


# -- resets ------------------------------------------------------------------------------------------------------------


async def test_a_reset_delivers_again_what_is_in_flight_and_what_is_done_behind_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab, trio.open_nursery() as nursery:
        await lab.send(6)
        received = await lab.receive()
        for message in received.messages[2:5]:
            await lab.ack(received, message)
        found: list[bytes] = []

        async def wait() -> None:
            found.extend((await lab.receive(pollTime=100_000)).bodies)

        nursery.start_soon(wait)
        await trio.sleep(0.1)
        lab.deliveries.reset("T", "G", 0, 3)
        await trio.sleep(0.1)
        assert found == [b"3", b"4", b"5"]
        assert lab.committed() == 3
        assert await lab.ack(received, received.messages[0]) == 0  # before the offset: done
        with pytest.raises(RequestRefused, match="not valid any more"):
            await lab.ack(received, received.messages[5])
    async with open_pop(tmp_path, offsets_file=lab.offsets._file) as again:
        assert (again.deliveries.count(), (await again.receive()).bodies) == (3, [])
        again.deliveries.reset("T", "G", 0, 3)
        assert (await again.receive()).bodies == [b"3", b"4", b"5"]
