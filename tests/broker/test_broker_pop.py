"""POP: each message goes to one receive at a time, comes again unless it is acknowledged, and is never lost."""

from __future__ import annotations

import base64
import json
import zlib
from functools import partial
from itertools import chain
from pathlib import Path

import pytest
import trio
from broker_pop_lab import INVISIBLE_MS, PopLab, ack_fields, all_bodies, open_pop
from broker_store_lab import WallClock, settle
from file_faults import BROKEN, FULL, FaultyFiles
from trio.testing import MockClock

from triomq.broker.message_writer import AwaitedPut
from triomq.broker.pop.deliveries import HOLDS_AFTER_START_MS
from triomq.broker.pop.in_flight import HELD_MS
from triomq.broker.pop.waiting import STUCK_MS
from triomq.broker.processors.pop import MAX_INVISIBLE_MS, MAX_MESSAGES, MAX_WAIT_MS, MIN_INVISIBLE_MS
from triomq.protocol import sys_flag
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import INVALID_PARAMETER, POLLING_FULL, POLLING_TIMEOUT, RequestCode, ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.record import decode_record
from triomq.store.config import BrokerRole, FlushDiskType

NOT_FOUND = int(ResponseCode.PULL_NOT_FOUND)


# -- receiving and acknowledging ---------------------------------------------------------------------------------------


async def test_what_is_acknowledged_is_done_and_committed(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        bodies = await lab.send(3)
        received = await lab.receive()
        assert received.bodies == bodies
        assert lab.committed() == 0
        for message, committed in zip(received.messages, (1, 2, 3), strict=True):
            assert await lab.ack(received, message) == 0
            assert lab.committed() == committed
        await trio.sleep(3600)
        assert (await lab.receive()).code == NOT_FOUND


async def test_a_message_goes_to_one_receive_of_a_group_and_to_each_group(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path, queues=4) as lab:
        sent = [await lab.send(3, queue_id=queue) for queue in range(4)]
        for group in ("G", "Other"):
            responses = [await lab.receive(group=group, maxMsgNums=1) for _ in range(12)]
            assert sorted(all_bodies(responses)) == sorted(chain.from_iterable(sent))
            assert (await lab.receive(group=group)).code == NOT_FOUND


async def test_the_offset_waits_for_the_oldest_message_in_flight(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(5)
        received = await lab.receive()
        for message in received.messages[1:]:
            await lab.ack(received, message)
        assert lab.committed() == 0
        await lab.ack(received, received.messages[0])
        assert lab.committed() == 5


async def test_what_is_not_acknowledged_comes_again_at_its_time_and_counts_the_attempts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(2)
        received = await lab.receive()
        first = received.messages[0]
        await lab.ack(received, received.messages[1])
        for attempt in (1, 2, 3):
            began = trio.current_time()
            received = await lab.receive(pollTime=60_000)
            assert received.bodies == [b"0"]
            assert received.at_seconds - began == pytest.approx(INVISIBLE_MS / 1000, abs=0.005)
            again = received.messages[0]
            assert again.reconsume_times == attempt
            names = "flag", "born_timestamp", "born_host", "store_timestamp", "properties", "queue_offset"
            assert [getattr(again, name) for name in names] == [getattr(first, name) for name in names]
        assert lab.committed() == 0


async def test_what_comes_again_does_not_move_back_what_the_group_was_handed(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """mqadmin of RocketMQ 5 shows the distance from there to the committed offset as messages in flight."""
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        assert (await lab.receive()).bodies == [b"0", b"1", b"2"]
        await trio.sleep(INVISIBLE_MS / 1000)
        assert (await lab.receive(maxMsgNums=1)).bodies == [b"0"]
        assert (lab.committed(), lab.stats.next_offset("G", "T", 0)) == (0, 3)


async def test_a_message_that_comes_again_has_every_byte_of_the_first_time_but_the_attempts(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """Flag, born time, priority, tags and the rest, whatever the message has."""
    async with open_pop(tmp_path) as lab:
        properties = {"TAGS": "a", "KEYS": "k", "PRIORITY": "7", "__SHARDINGKEY": "s", "own": "\u00fc"}
        message = lab.message("T", zlib.compress(b"body"), 0, properties)
        message.flag, message.sys_flag = 0x7F, sys_flag.COMPRESSED | sys_flag.BORN_HOST_V6
        message.born_host, message.born_timestamp = bytes(range(16)) + b"\0\0\x2a\xf8", 1_600_000_000_123
        pending = AwaitedPut()
        lab.writer.put(message, False, pending)
        await pending.wait()
        fields = {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 32, "invisibleTime": INVISIBLE_MS}
        asked = {**fields, "pollTime": 60_000, "bornTime": 0, "initMode": 0, "expType": "TAG", "exp": "a"}
        first = (await lab.ask(RequestCode.POP_MESSAGE, asked)).body
        assert first is not None
        for attempt in (1, 2):
            again = (await lab.ask(RequestCode.POP_MESSAGE, asked)).body
            assert again is not None
            assert len(again) == len(first)
            assert sum(before != after for before, after in zip(first, again, strict=True)) == 1
            assert decode_record(again).reconsume_times == attempt


async def test_acknowledging_all_but_one_and_that_one_late_repeats_only_it(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(32)
        received = await lab.receive()
        for message in received.messages[:-1]:
            await lab.ack(received, message)
        await trio.sleep(INVISIBLE_MS / 1000 - 0.1)
        assert await lab.ack(received, received.messages[-1]) == 0
        await trio.sleep(INVISIBLE_MS / 1000)
        assert (await lab.receive()).code == NOT_FOUND
        assert lab.committed() == 32


async def test_an_acknowledgement_may_be_repeated(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(2)
        received = await lab.receive()
        for _ in range(2):
            assert await lab.ack(received, received.messages[0]) == 0
        assert lab.committed() == 1


async def test_the_handle_of_an_earlier_receive_is_void(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(1)
        former = await lab.receive()
        received = await lab.receive(pollTime=60_000)
        with pytest.raises(RequestRefused, match="not valid any more") as refused:
            await lab.ack(former, former.messages[0])
        assert refused.value.code == ResponseCode.NO_MESSAGE
        assert lab.committed() == 0
        assert await lab.ack(received, received.messages[0]) == 0
        assert lab.committed() == 1


async def test_a_handle_without_a_time_is_not_that_of_a_message_that_nobody_has_received(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        received = await lab.receive(maxMsgNums=1)
        bits = base64.b64encode(b"\6").decode()
        ack = {"c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "it": INVISIBLE_MS, "b": bits, "pt": 0}
        body = json.dumps({"brokerName": "broker-a", "acks": [ack]}).encode()
        assert (await lab.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)).code == 0
        assert lab.deliveries.count() == lab.deliveries.count(group="G") == len(received.messages)
        assert (await lab.receive()).bodies == [b"1", b"2"]


async def test_a_batch_acknowledges_what_its_bits_say(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(20)
        received = await lab.receive()
        bits = base64.b64encode(bytes([0b1111_1110, 0b1111_1111, 0b0000_0001])).decode()
        ack = {"c": "G", "t": "T", "r": "0", "so": 0, "q": 0, "rq": 0, "it": INVISIBLE_MS, "b": bits}
        ack["pt"] = received.popped_ms
        body = {"brokerName": "broker-a", "acks": [ack]}
        assert (await lab.ask(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps(body).encode())).code == 0
        again = await lab.receive(pollTime=60_000)
        assert again.bodies == [b"0", b"17", b"18", b"19"]
        with pytest.raises(RequestRefused, match="4097 acknowledgements"):
            body["acks"] = [ack] * 4097
            await lab.ask(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps(body).encode())
        with pytest.raises(RequestRefused, match="no base64"):
            body["acks"] = [{**ack, "b": "?"}]
            await lab.ask(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps(body).encode())


# -- invisible times ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("invisible_ms", [1000, 60_000])
async def test_a_changed_invisible_time_counts_from_now_and_voids_the_handle(
    tmp_path: Path, autojump_clock: MockClock, invisible_ms: int
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(1)
        received = await lab.receive()
        await trio.sleep(2)
        response = await lab.change_time(received, received.messages[0], invisible_ms)
        assert int((response.ext_fields or {})["popTime"]) > received.popped_ms
        with pytest.raises(RequestRefused, match="not valid any more"):
            await lab.ack(received, received.messages[0])
        changed = trio.current_time()
        again = await lab.receive(pollTime=100_000)
        assert again.bodies == [b"0"]
        assert again.at_seconds - changed == pytest.approx(invisible_ms / 1000, abs=0.005)


async def test_a_change_in_the_same_instant_and_to_the_same_end_keeps_the_message(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(1)
        received = await lab.receive()
        response = await lab.change_time(received, received.messages[0], INVISIBLE_MS)
        assert int((response.ext_fields or {})["popTime"]) == received.popped_ms + 1
        with pytest.raises(RequestRefused, match="not valid any more"):
            await lab.change_time(received, received.messages[0], INVISIBLE_MS)
        assert (await lab.receive(pollTime=60_000)).bodies == [b"0"]


# -- dead letters ------------------------------------------------------------------------------------------------------


async def test_what_was_received_too_often_becomes_a_dead_letter_as_it_was(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        lab.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=2))
        await lab.send(1, KEYS="k", PRIORITY="7", own="x")
        [first] = (await lab.receive()).messages
        for attempt in (1, 2):
            [again] = (await lab.receive(pollTime=60_000)).messages
            assert again.reconsume_times == attempt
        await trio.sleep(INVISIBLE_MS / 1000)
        assert (await lab.receive(pollTime=60_000)).messages == []
        assert (lab.committed(), lab.deliveries.count()) == (1, 0)
        [dead] = lab.messages("%DLQ%G")
        for name in ("body", "flag", "born_timestamp", "born_host"):
            assert getattr(dead, name) == getattr(first, name)
        assert dead.reconsume_times == 3
        added = {"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": first.offset_msg_id}
        assert dead.properties == {**first.properties, **added}


async def test_a_dead_letter_that_is_not_stored_is_tried_again_and_the_message_is_not_lost(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        lab.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=0))
        await lab.send(1)
        await lab.receive()
        await trio.sleep(INVISIBLE_MS / 1000)
        lab.store.refusals.set("closed", "the store is closed")
        assert (await lab.receive()).messages == []
        assert (lab.deliveries.count(), lab.messages("%DLQ%G")) == (1, [])
        lab.store.refusals.set("closed", None)
        await trio.sleep(INVISIBLE_MS / 1000)
        assert (await lab.receive()).messages == []
        assert (len(lab.messages("%DLQ%G")), lab.deliveries.count()) == (1, 0)


# -- waiting -----------------------------------------------------------------------------------------------------------


async def test_a_waiting_receive_gets_the_next_message_at_once(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path, queues=3) as lab, trio.open_nursery() as nursery:
        found: list[tuple[list[bytes], float]] = []

        async def wait() -> None:
            received = await lab.receive(pollTime=20_000)
            found.append((received.bodies, received.at_seconds))

        nursery.start_soon(wait)
        await trio.sleep(7)
        await lab.send(1, queue_id=2)
        sent = trio.current_time()
        await trio.sleep(1)
        assert found == [([b"0"], pytest.approx(sent, abs=0.005))]


async def test_a_receive_waits_as_long_as_its_client_lets_it(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        began = trio.current_time()
        received = await lab.receive(pollTime=5000)
        assert (received.code, received.messages) == (POLLING_TIMEOUT, [])
        assert received.at_seconds - began == pytest.approx(5, abs=0.005)
        assert len(lab.polling) == lab.waiting.count("T", "G", -1) == 0


async def test_no_receive_is_held_longer_than_the_longest_hold(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        began = trio.current_time()
        assert (await lab.receive(pollTime=10 * MAX_WAIT_MS)).code == POLLING_TIMEOUT
        assert trio.current_time() - began == pytest.approx(MAX_WAIT_MS / 1000, abs=0.005)


async def test_each_message_wakes_a_receive_and_none_is_woken_in_vain(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path, queues=2) as lab, trio.open_nursery() as nursery:
        found: list[bytes] = []

        async def wait(queue_id: int) -> None:
            received = await lab.receive(pollTime=100_000, maxMsgNums=1, queueId=queue_id)
            found.extend(received.bodies)

        for queue_id in (0, 1, -1, -1):
            nursery.start_soon(wait, queue_id)
            await settle()
        assert lab.waiting.count("T", "G", -1) == 4
        await lab.put("T", b"a", 1)  # the first in the line wants the other queue
        await trio.sleep(0.1)
        assert found == [b"a"]
        for body in (b"b", b"c"):
            await lab.put("T", body, 1)
        await trio.sleep(0.1)
        assert (sorted(found), lab.waiting.count("T", "G", -1)) == ([b"a", b"b", b"c"], 1)
        await lab.put("T", b"d", 0)
        await trio.sleep(0.1)
        assert sorted(found) == [b"a", b"b", b"c", b"d"]


async def test_a_message_that_is_ready_again_wakes_whoever_waits_since_before(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The receive waits for longer than the message that another one takes meanwhile."""
    async with open_pop(tmp_path) as lab, trio.open_nursery() as nursery:
        found: list[tuple[list[bytes], float]] = []

        async def wait(queue_id: int) -> None:
            received = await lab.receive(pollTime=100_000, maxMsgNums=1)
            found.append((received.bodies, received.at_seconds))

        nursery.start_soon(wait, -1)
        await settle()
        nursery.start_soon(wait, -1)
        await settle()
        await lab.send(1)
        await trio.sleep(0.1)
        assert [bodies for bodies, _ in found] == [[b"0"]]
        taken = found[0][1]
        await trio.sleep(60)
        assert found[1] == ([b"0"], pytest.approx(taken + INVISIBLE_MS / 1000, abs=0.005))


async def test_a_shorter_invisible_time_wakes_a_waiting_receive(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab, trio.open_nursery() as nursery:
        await lab.send(1)
        received = await lab.receive(invisibleTime=MAX_INVISIBLE_MS)
        found: list[float] = []

        async def wait() -> None:
            found.append((await lab.receive(pollTime=100_000)).at_seconds)

        nursery.start_soon(wait)
        await settle()
        began = trio.current_time()
        await lab.change_time(received, received.messages[0], 3000)
        await trio.sleep(50)
        assert found == [pytest.approx(began + 3, abs=0.005)]


@pytest.mark.parametrize("queues", [1, 2])
async def test_each_message_comes_again_at_its_own_time_whatever_those_of_others(
    tmp_path: Path, autojump_clock: MockClock, queues: int
) -> None:
    async with open_pop(tmp_path, queues) as lab:
        await lab.send(4 // queues)
        if queues == 2:
            await lab.send(2, queue_id=1)
        seconds = 20, 5, 60, 10
        due: dict[tuple[int, int], float] = {}
        for each in seconds:
            received = await lab.receive(maxMsgNums=1, invisibleTime=each * 1000)
            [message] = received.messages
            due[message.queue_id, message.queue_offset] = trio.current_time() + each
        # The one of 10 seconds: the times of the others are not its own.
        assert (await lab.change_time(received, message, 30_000)).code == 0
        due[message.queue_id, message.queue_offset] = trio.current_time() + 30
        for place, at_seconds in sorted(due.items(), key=lambda item: item[1]):
            again = await lab.receive(pollTime=100_000, invisibleTime=3600 * 1000)
            assert [(each.queue_id, each.queue_offset) for each in again.messages] == [place]
            assert again.at_seconds == pytest.approx(at_seconds, abs=0.005)


async def test_a_client_that_leaves_leaves_its_place(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab, trio.open_nursery() as nursery:
        nursery.start_soon(lambda: lab.receive(pollTime=100_000, maxMsgNums=1))
        await settle()
        connection = next(iter(lab.polling._by_connection))
        connection.close("gone")
        lab.polling.connection_closed(connection)
        await settle()
        assert lab.waiting.count("T", "G", -1) == 0
        await lab.send(1)
        assert (await lab.receive()).bodies == [b"0"]
        nursery.cancel_scope.cancel()


async def test_polling_info_and_notification_tell_without_taking(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab, trio.open_nursery() as nursery:
        fields = {"consumerGroup": "G", "topic": "T", "queueId": -1, "pollTime": 20_000, "bornTime": 0}
        told: list[str] = []

        async def wait() -> None:
            response = await lab.ask(RequestCode.NOTIFICATION, fields)
            told.append((response.ext_fields or {})["hasMsg"])

        nursery.start_soon(wait)
        await settle()
        info = await lab.ask(RequestCode.POLLING_INFO, {"consumerGroup": "G", "topic": "T", "queueId": 0})
        assert (info.ext_fields or {})["pollingNum"] == "1"
        await lab.send(1)
        await trio.sleep(0.1)
        assert told == ["true"]
        peeked = await lab.ask(
            RequestCode.PEEK_MESSAGE, {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 32}
        )
        assert peeked.body
        assert (await lab.receive()).bodies == [b"0"]
        nursery.start_soon(wait)
        await trio.sleep(INVISIBLE_MS / 1000 + 0.1)
        assert told == ["true", "true"]


# -- order -------------------------------------------------------------------------------------------------------------


async def test_one_batch_of_a_queue_is_out_at_a_time(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path, queues=2) as lab:
        for queue_id in (0, 1):
            await lab.send(4, queue_id=queue_id)
        first = await lab.receive(order="true", queueId=0, maxMsgNums=2)
        assert first.bodies == [b"0", b"1"]
        assert first.fields["reviveQid"] == "999"
        assert (await lab.receive(order="true", queueId=0)).code == NOT_FOUND
        assert len((await lab.receive(order="true", queueId=1)).messages) == 4
        await lab.ack(first, first.messages[0])
        assert (await lab.receive(order="true", queueId=0)).code == NOT_FOUND
        await lab.ack(first, first.messages[1])
        assert (await lab.receive(order="true", queueId=0)).bodies == [b"2", b"3"]


async def test_the_end_of_a_batch_wakes_who_waits_for_the_next(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab, trio.open_nursery() as nursery:
        await lab.send(2)
        first = await lab.receive(order="true", maxMsgNums=1)
        found: list[tuple[list[bytes], float]] = []

        async def wait() -> None:
            received = await lab.receive(order="true", pollTime=60_000)
            found.append((received.bodies, received.at_seconds))

        nursery.start_soon(wait)
        await trio.sleep(5)
        assert found == []
        await lab.ack(first, first.messages[0])
        acknowledged = trio.current_time()
        await trio.sleep(1)
        assert found == [([b"1"], pytest.approx(acknowledged, abs=0.005))]


async def test_a_batch_that_failed_comes_again_first_and_in_order(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(6)
        first = await lab.receive(order="true", maxMsgNums=4)
        await lab.ack(first, first.messages[1])
        await lab.change_time(first, first.messages[2], 2000)  # the third is ready before the first
        began = trio.current_time()
        again = await lab.receive(order="true", pollTime=60_000)
        assert again.at_seconds - began == pytest.approx(INVISIBLE_MS / 1000, abs=0.005)
        assert again.bodies == [b"0", b"2", b"3", b"4", b"5"]
        assert [message.reconsume_times for message in again.messages] == [1, 1, 1, 0, 0]
        assert again.fields["orderCountInfo"] == "0 0 0;0 qo0%0 1;0 qo0%2 1;0 qo0%3 1"


async def test_the_handles_of_a_batch_end_when_others_receive_its_first_message(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        late = await lab.receive(order="true")
        await trio.sleep(INVISIBLE_MS / 1000)
        first = await lab.receive(order="true", maxMsgNums=1, attemptId="a")
        assert first.bodies == [b"0"]
        with pytest.raises(RequestRefused, match="not valid any more"):
            await lab.change_time(late, late.messages[1], INVISIBLE_MS)
        with pytest.raises(RequestRefused, match="not valid any more"):
            await lab.ack(late, late.messages[2])
        assert (await lab.receive(order="true", maxMsgNums=1, attemptId="a")).bodies == [b"0"]
        await trio.sleep(INVISIBLE_MS / 1000)
        rest = await lab.receive(order="true")
        assert rest.bodies == [b"0", b"1", b"2"]
        assert [message.reconsume_times for message in rest.messages] == [2, 1, 1]
        assert await lab.ack(rest, rest.messages[1]) == 0


async def test_the_same_attempt_gets_the_same_batch_without_counting(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(6)
        lost = await lab.receive(order="true", maxMsgNums=3, attemptId="a")
        await trio.sleep(3)
        assert (await lab.receive(order="true", attemptId="b")).code == NOT_FOUND
        again = await lab.receive(order="true", attemptId="a")
        assert again.bodies == lost.bodies == [b"0", b"1", b"2"]
        assert {message.reconsume_times for message in again.messages} == {0}
        with pytest.raises(RequestRefused, match="not valid any more"):
            await lab.ack(lost, lost.messages[0])
        await trio.sleep(INVISIBLE_MS / 1000 - 1)
        assert (await lab.receive(order="true", attemptId="b")).code == NOT_FOUND
        await trio.sleep(1)
        assert (await lab.receive(order="true", attemptId="b")).bodies[:3] == lost.bodies


async def test_the_first_of_a_batch_comes_first_whatever_their_times(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(4)
        first = await lab.receive(order="true", maxMsgNums=3)
        await lab.change_time(first, first.messages[0], 2 * INVISIBLE_MS)
        await trio.sleep(3 * INVISIBLE_MS / 1000)
        assert (await lab.receive(order="true", maxMsgNums=2)).bodies == [b"0", b"1"]
        await trio.sleep(INVISIBLE_MS / 1000)
        assert (await lab.receive(order="true")).bodies == [b"0", b"1", b"2", b"3"]


async def test_what_the_same_attempt_had_not_received_yet_counts(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        await lab.receive(order="true", attemptId="a")
        await trio.sleep(INVISIBLE_MS / 1000)
        assert (await lab.receive(order="true", attemptId="b", maxMsgNums=1)).bodies == [b"0"]
        again = await lab.receive(order="true", attemptId="b")
        assert [message.reconsume_times for message in again.messages] == [1, 1, 1]
        await trio.sleep(INVISIBLE_MS / 1000)
        again = await lab.receive(order="true", attemptId="c")
        assert [message.reconsume_times for message in again.messages] == [2, 2, 2]


async def test_a_dead_letter_lets_nothing_pass_what_is_left_of_its_batch(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        lab.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=0))
        await lab.send(1)
        await lab.receive(order="true")
        lab.groups.update(SubscriptionGroupConfig(group_name="G", retry_max_times=1))
        await trio.sleep(INVISIBLE_MS / 1000)
        await lab.send(2)
        assert (await lab.receive(order="true", maxMsgNums=2)).bodies == [b"0", b"1"]
        await trio.sleep(INVISIBLE_MS / 1000)
        assert (await lab.receive(order="true", maxMsgNums=1)).bodies == [b"1"]


async def test_order_is_kept_across_a_restart(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(4)
        received = await lab.receive(order="true", maxMsgNums=2)
        await lab.ack(received, received.messages[0])
        former = lab
    lab = await reopen(former, tmp_path)
    await lab.load()
    assert (await lab.receive(order="true")).code == NOT_FOUND
    await trio.sleep(INVISIBLE_MS / 1000)
    assert (await lab.receive(order="true")).bodies == [b"1", b"2", b"3"]
    await lab.log.close()
    await lab.store.close()


# -- filters -----------------------------------------------------------------------------------------------------------


async def test_a_receive_passes_over_what_its_filter_does_not_want(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab, trio.open_nursery() as nursery:
        found: list[bytes] = []

        async def wait() -> None:
            found.extend((await lab.receive(pollTime=100_000, exp="A")).bodies)

        nursery.start_soon(wait)
        await settle()
        await lab.send(999, TAGS="B")
        await trio.sleep(1)
        assert (found, lab.committed()) == ([], 999)
        await lab.send(1, TAGS="A")
        await trio.sleep(0.1)
        assert found == [b"999"]


async def test_an_sql_expression_decides(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path, broker={"enable_property_filter": True}) as lab:
        for number in range(4):
            await lab.send(1, a=str(number))
        assert (await lab.receive(expType="SQL92", exp="a > 1")).bodies == [b"2", b"3"]
        with pytest.raises(RequestRefused, match="parse"):
            await lab.receive(expType="SQL92", exp="a >")


# -- refusals and bounds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"maxMsgNums": MAX_MESSAGES + 1}, INVALID_PARAMETER),
        ({"maxMsgNums": 0}, INVALID_PARAMETER),
        ({"invisibleTime": MIN_INVISIBLE_MS - 1}, INVALID_PARAMETER),
        ({"invisibleTime": MAX_INVISIBLE_MS + 1}, INVALID_PARAMETER),
        ({"queueId": 1}, INVALID_PARAMETER),
        ({"topic": "Unknown"}, ResponseCode.TOPIC_NOT_EXIST),
    ],
)
async def test_a_receive_that_asks_for_what_it_may_not_is_refused(
    tmp_path: Path, autojump_clock: MockClock, changes: dict[str, object], code: int
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(1)
        with pytest.raises(RequestRefused) as refused:
            await lab.receive(**changes)
        assert refused.value.code == code
        assert (await lab.receive()).bodies == [b"0"]


async def test_too_much_in_flight_is_refused_with_the_key_until_some_is_acknowledged(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    bounds = {"pop_max_in_flight_of_group": 40, "pop_max_in_flight": 64}
    async with open_pop(tmp_path, broker=bounds) as lab:
        await lab.send(100)
        received = await lab.receive()
        refused = await lab.receive()
        assert (refused.code, "popMaxInFlightOfGroup" in refused.remark) == (POLLING_FULL, True)
        assert len((await lab.receive(group="Other")).messages) == 32
        assert "popMaxInFlight)" in (await lab.receive(group="Third")).remark
        for message in received.messages:
            await lab.ack(received, message)
        assert len((await lab.receive()).messages) == 32


@pytest.mark.parametrize("text", ["", "a b c d e f g", "0 1 2 3 0 broker-a", "0 -1 2 3 0 broker-a 0"])
async def test_a_handle_that_is_none_is_refused(tmp_path: Path, autojump_clock: MockClock, text: str) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(1)
        received = await lab.receive()
        fields = {**ack_fields(received, received.messages[0], "G"), "extraInfo": text}
        with pytest.raises(RequestRefused, match="receipt handle") as refused:
            await lab.ask(RequestCode.ACK_MESSAGE, fields)
        assert refused.value.code == INVALID_PARAMETER


async def test_a_slave_serves_no_receives(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(1)
        received = await lab.receive()
        lab.configuration.role.take(BrokerRole.SLAVE, 1)
        for ask in (lab.receive(), lab.ack(received, received.messages[0])):
            with pytest.raises(RequestRefused, match="this broker is a slave") as refused:
                await ask
            assert refused.value.code == ResponseCode.SLAVE_NOT_AVAILABLE


# -- where a group begins, resets, deletions ---------------------------------------------------------------------------


@pytest.mark.parametrize(("init_mode", "is_recent", "first"), [(0, False, b"0"), (1, True, b"0"), (1, False, b"9")])
async def test_where_a_group_without_an_offset_begins(
    tmp_path: Path, autojump_clock: MockClock, init_mode: int, is_recent: bool, first: bytes
) -> None:
    async with open_pop(tmp_path) as lab:
        lab.deliveries._is_recent = lambda topic, queue_id: is_recent
        await lab.send(10)
        assert (await lab.receive(initMode=init_mode, maxMsgNums=1)).bodies == [first]


async def test_a_group_that_pulled_goes_on_where_it_was(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(10)
        lab.offsets.commit("G", "T", 0, 7)
        assert (await lab.receive()).bodies == [b"7", b"8", b"9"]


async def test_a_reset_counts_for_what_is_in_flight(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(10)
        received = await lab.receive()
        lab.offsets.commit("G", "T", 0, 4)  # as an administrator does
        for message in received.messages[:4]:
            await lab.ack(received, message)
        again = await lab.receive(pollTime=60_000)
        assert again.bodies == [b"4", b"5", b"6", b"7", b"8", b"9"]
        lab.offsets.commit("G", "T", 0, 2)
        await trio.sleep(0.001)  # a reset forgets the times of receives, which tell handles apart
        begun = await lab.receive()
        assert begun.bodies == [str(number).encode() for number in range(2, 10)]
        with pytest.raises(RequestRefused, match="not valid any more"):
            await lab.ack(again, again.messages[0])
        assert lab.committed() == 2


async def test_a_reset_wakes_a_waiting_receive(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab, trio.open_nursery() as nursery:
        await lab.send(3)
        received = await lab.receive()
        for message in received.messages:
            await lab.ack(received, message)
        found: list[bytes] = []

        async def wait() -> None:
            found.extend((await lab.receive(pollTime=100_000)).bodies)

        nursery.start_soon(wait)
        await settle()
        lab.offsets.commit("G", "T", 0, 1)
        await lab.deliveries.clean(lambda topic: True, lambda group: True)
        await trio.sleep(0.1)
        assert found == [b"1", b"2"]


async def test_a_topic_that_was_made_again_begins_anew(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        await lab.receive()
        lab.offsets.remove_topic("T")
        lab.deliveries.end_topic("T")
        assert lab.deliveries.count() == 0
        assert (await lab.receive()).bodies == [b"0", b"1", b"2"]


async def test_what_belongs_to_no_topic_or_group_is_forgotten(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        for group in ("G", "H"):
            await lab.receive(group=group)
        await lab.deliveries.clean(lambda topic: True, lambda group: group == "G")
        assert (lab.deliveries.count(group="G"), lab.deliveries.count(group="H")) == (3, 0)
        await lab.deliveries.clean(lambda topic: False, lambda group: True)
        assert lab.deliveries.count() == 0


async def test_messages_whose_files_are_gone_end_and_the_right_ones_come_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    sizes = {"mapped_file_size_commit_log_bytes": 4096, "max_store_bytes": 4096}
    async with open_pop(tmp_path, store=sizes) as lab:
        await lab.send(60)
        first, second = await lab.receive(), await lab.receive()
        assert len(first.messages + second.messages) == 60
        assert await lab.store.retention.clean() > 0
        gone = lab.store.reading.min_physical_offset
        assert gone > 0
        expected = [m.body for m in (*first.messages, *second.messages) if m.physical_offset >= gone]
        await trio.sleep(INVISIBLE_MS / 1000)
        found: list[bytes] = []
        for _ in range(4):
            found += (await lab.receive(invisibleTime=MAX_INVISIBLE_MS)).bodies
        assert sorted(found) == sorted(expected)
        assert lab.committed() == 60 - len(expected)


# -- the log -----------------------------------------------------------------------------------------------------------


async def reopen(former: PopLab, root: Path, **given: object) -> PopLab:
    """Return a lab with the tables and the disk of another, as a start after a kill finds them."""
    given.setdefault("offsets_file", former.offsets._file)
    return PopLab(root, {"T": 1}, now_ms=former.now_ms, **given)  # type: ignore[arg-type]


def file_of(lab: PopLab) -> Path:
    return max((Path(lab.log.directory)).iterdir())


def content(path: Path) -> bytes:
    return path.read_bytes()


def only(path: Path, data: bytes) -> None:
    """Leave this file of the log only, with this content."""
    for file in path.parent.iterdir():
        file.unlink()
    path.write_bytes(data)


async def test_after_a_start_a_client_that_is_gone_holds_its_messages_for_a_minute(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(2)
        received = await lab.receive(invisibleTime=HELD_MS)
        former = lab
    lab = await reopen(former, tmp_path)
    await lab.load()
    lab.log.begin()
    assert (await lab.receive()).code == NOT_FOUND
    assert await lab.ack(received, received.messages[0]) == 0  # its handle is still valid
    await trio.sleep(HOLDS_AFTER_START_MS / 1000)
    assert (await lab.receive()).bodies == [b"1"]
    await lab.log.close()
    await lab.store.close()


async def test_a_start_knows_what_is_in_flight(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(4)
        received = await lab.receive()
        await lab.ack(received, received.messages[0])
        await lab.ack(received, received.messages[2])
        await lab.change_time(received, received.messages[3], 60_000)
        former = lab
    # The table of offsets was not written since.
    lab = await reopen(former, tmp_path)
    await lab.load()
    assert (lab.committed(), lab.deliveries.count()) == (1, 2)
    assert (await lab.receive()).code == NOT_FOUND
    assert await lab.ack(received, received.messages[2]) == 0
    await trio.sleep(INVISIBLE_MS / 1000)
    again = await lab.receive()
    assert [(message.body, message.reconsume_times) for message in again.messages] == [(b"1", 1)]
    await trio.sleep(50)
    assert sorted((await lab.receive()).bodies) == [b"1", b"3"]
    await lab.log.close()
    await lab.store.close()


async def after_a_power_failure(root: Path) -> PopLab:
    """Return a lab whose six messages were acknowledged. The store in `root / "b"` has three of them only, and its log
    of messages in flight knows of all."""
    async with open_pop(root / "a") as former:
        await former.send(6)
        received = await former.receive()
        for message in received.messages:
            await former.ack(received, message)
    async with open_pop(root / "b") as shorter:
        await shorter.send(3)
    (root / "a" / "pop").rename(root / "b" / "pop")
    return former


async def test_what_the_store_lost_is_dropped_before_its_offsets_mean_other_messages(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    former = await after_a_power_failure(tmp_path)
    files = FaultyFiles()
    for _ in range(2):  # the second start finds that it was dropped
        lab = await reopen(former, tmp_path / "b", files=files)
        await lab.load()
        assert lab.committed() == 3
        assert [call.name for call in files.calls].count("datasync") >= 1
        await lab.store.close()
    lab = await reopen(former, tmp_path / "b")
    await lab.load()
    sent = await lab.send(2)
    assert (await lab.receive()).bodies == sent
    await lab.store.close()


async def test_a_group_whose_offset_lies_beyond_what_the_store_lost_receives_what_comes_there(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    former = await after_a_power_failure(tmp_path)
    lab = await reopen(former, tmp_path / "b")
    lab.offsets.commit("G", "T", 0, 6)
    await lab.load()
    assert lab.committed() == 3
    sent = await lab.send(3)
    assert (await lab.receive()).bodies == sent
    await lab.store.close()


async def test_a_log_that_ends_anywhere_loses_no_message(tmp_path: Path, autojump_clock: MockClock) -> None:
    """Cut at each byte: what was not acknowledged comes again, and what is known as acknowledged does not."""
    async with open_pop(tmp_path) as lab:
        bodies = await lab.send(6)
        first = await lab.receive(maxMsgNums=3)
        await lab.ack(first, first.messages[1])
        second = await lab.receive(maxMsgNums=2)
        await lab.ack(second, second.messages[0])
        await lab.change_time(first, first.messages[0], 30_000)
        former, path = lab, file_of(lab)
    whole = content(path)
    acknowledged = {b"1", b"3"}
    repeated = set()
    for end in range(len(whole) + 1):
        only(path, whole[:end])
        lab = await reopen(former, tmp_path)
        await lab.load()
        await trio.sleep(40)
        found = set((await lab.receive()).bodies)
        assert found >= set(bodies) - acknowledged
        repeated.add(frozenset(found & acknowledged))
        await lab.log.close()
        await lab.store.close()
    assert repeated == {frozenset(acknowledged), frozenset([b"3"]), frozenset()}


async def test_a_damaged_record_ends_the_log(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(2)
        received = await lab.receive(maxMsgNums=1)
        begin = lab.log._end
        await lab.receive(maxMsgNums=1)
        await lab.ack(received, received.messages[0])
        former, path = lab, file_of(lab)
    data = bytearray(content(path))
    data[begin + 10] ^= 1
    only(path, bytes(data))
    lab = await reopen(former, tmp_path)
    await lab.load()
    assert lab.deliveries.count() == 1
    assert (await lab.receive()).bodies == [b"1"]
    await lab.store.close()


async def test_a_new_file_has_what_is_in_flight_and_the_former_goes_when_it_is_on_the_disk(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        received = await lab.receive()
        await lab.ack(received, received.messages[0])
        lab.log.begin()
        await lab.ack(received, received.messages[1])
        names = sorted(file.name for file in (tmp_path / "pop").iterdir())
        assert [int(name) for name in names] == [1, 2]
        await trio.sleep(1)
        assert [int(file.name) for file in (tmp_path / "pop").iterdir()] == [2]
        former = lab
    lab = await reopen(former, tmp_path)
    await lab.load()
    assert (lab.committed(), lab.deliveries.count()) == (2, 1)
    await lab.store.close()


async def test_an_incomplete_new_file_is_left_out(tmp_path: Path, autojump_clock: MockClock) -> None:
    async with open_pop(tmp_path) as lab:
        await lab.send(3)
        received = await lab.receive()
        await lab.ack(received, received.messages[0])
        former = lab
    (tmp_path / "pop" / f"{2:020d}").write_bytes(content(file_of(lab))[:20])
    lab = await reopen(former, tmp_path)
    await lab.load()
    assert (lab.committed(), lab.deliveries.count()) == (1, 2)
    lab.log.begin()
    await lab.log.sync()
    assert [int(file.name) for file in (tmp_path / "pop").iterdir()] == [3]
    await lab.store.close()


async def test_a_log_that_cannot_be_written_changes_nothing(tmp_path: Path, autojump_clock: MockClock) -> None:
    files = FaultyFiles()
    async with open_pop(tmp_path, files=files) as lab:
        await lab.send(3)
        received = await lab.receive(maxMsgNums=1)
        message = received.messages[0]
        _fail_writes(files, 3)
        with pytest.raises(OSError, match="No space"):
            await lab.receive()
        with pytest.raises(OSError, match="No space"):
            await lab.ack(received, message)
        with pytest.raises(OSError, match="No space"):
            await lab.change_time(received, message, 2000)
        assert (lab.committed(), lab.deliveries.count()) == (0, 1)
        assert await lab.ack(received, message) == 0
        assert (await lab.receive()).bodies == [b"1", b"2"]
        former = lab
    lab = await reopen(former, tmp_path)
    await lab.load()
    assert (lab.committed(), lab.deliveries.count()) == (1, 2)
    await lab.store.close()


async def test_a_new_file_that_cannot_be_begun_leaves_the_former_in_use(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    files = FaultyFiles()
    async with open_pop(tmp_path, queues=3, files=files) as lab:
        for queue_id in (2, 0, 1):
            await lab.send(2, queue_id=queue_id)
        kept = [await lab.receive(queueId=queue_id, maxMsgNums=1) for queue_id in (2, 0)]
        await lab.receive(group="Empty", queueId=1, topic="T", exp="Z")
        _fail_writes(files, 1)
        with pytest.raises(OSError, match="No space"):
            lab.log.begin()
        more = await lab.receive(queueId=1)
        for received in (*kept, more):
            await lab.ack(received, received.messages[0])
        former = lab
    lab = PopLab(tmp_path, {"T": 3}, now_ms=former.now_ms, offsets_file=former.offsets._file)  # type: ignore[arg-type]
    await lab.load()
    assert [lab.committed(queue_id=queue_id) for queue_id in (0, 1, 2)] == [1, 1, 1]
    assert lab.deliveries.count() == 1
    await lab.store.close()


async def test_after_a_failed_sync_a_new_file_begins(tmp_path: Path, autojump_clock: MockClock) -> None:
    files = FaultyFiles()
    async with open_pop(tmp_path, files=files) as lab:
        await lab.send(1)
        _fail_syncs(files, 1)
        received = await lab.receive()
        await trio.sleep(5)
        assert [int(file.name) for file in (tmp_path / "pop").iterdir()] == [2]
        assert lab.log.synced.value == lab.log.appended
        assert await lab.ack(received, received.messages[0]) == 0


async def test_with_sync_flush_an_acknowledgement_is_answered_when_it_is_on_the_disk(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with open_pop(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}) as lab:
        await lab.send(1)
        received = await lab.receive()
        began = trio.current_time()
        assert await lab.ack(received, received.messages[0]) == 0
        assert lab.log.synced.value == lab.log.appended
        assert trio.current_time() > began


async def test_a_message_that_is_ready_where_nobody_waits_any_more_wakes_nobody(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A receive of another queue waits in the same line: the line does not run in circles."""
    clock = WallClock()
    looks = 0

    def now_ms() -> int:
        nonlocal looks
        looks += 1
        assert looks < 10_000, "the event loop is blocked"
        return clock()

    async with open_pop(tmp_path, queues=2, now_ms=now_ms) as lab:
        await lab.send(1, queue_id=1)
        await lab.receive(queueId=1, invisibleTime=MIN_INVISIBLE_MS)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(lab.receive, queueId=0, pollTime=30_000))
            nursery.start_soon(partial(lab.receive, queueId=1, pollTime=MIN_INVISIBLE_MS // 2))
        assert looks < 100
        assert (await lab.receive(queueId=1)).bodies == [b"0"]


async def test_nobody_can_take_what_seems_to_be_ready(tmp_path: Path, autojump_clock: MockClock) -> None:
    """The log cannot be written: a held receive gets the error, and the line does not run in circles."""
    files = FaultyFiles()
    async with open_pop(tmp_path, files=files) as lab:
        await lab.send(1)
        received = await lab.receive()
        await lab.ack(received, received.messages[0])
        waiting = [trio.current_time()]

        async def wait() -> None:
            waiting.append((await lab.receive(pollTime=60_000)).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await settle()
            _fail_writes(files, 1)
            await lab.send(1)
            await trio.sleep(STUCK_MS / 1000)
        assert waiting[1] == ResponseCode.SYSTEM_ERROR
        assert (await lab.receive()).bodies == [b"1"]


def _fail_writes(files: FaultyFiles, times: int) -> None:
    files.fail(FULL, "pwrite", where="/pop/", times=times)


def _fail_syncs(files: FaultyFiles, times: int) -> None:
    files.fail(BROKEN, "datasync", where="/pop/", times=times)
