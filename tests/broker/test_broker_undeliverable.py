"""Messages that cannot be stored when their time comes hold up nothing: dead letters of delays and transactions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from broker_fakes import MemoryFile
from broker_store_lab import Lab, WallClock, inline, open_lab, settle
from broker_transaction_lab import COMMIT, ROLLBACK, Transactions
from broker_whole import whole_broker

from triomq.broker.delay import DelayedDelivery
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.transactions.check import HalfMessage
from triomq.broker.transactions.producer_checks import TransactionChecks
from triomq.broker.undeliverable import Undeliverable
from triomq.protocol.codes import ResponseCode
from triomq.protocol.message import MessageExt
from triomq.protocol.message_id import parse_offset_message_id
from triomq.protocol.system_topics import (
    SCHEDULE_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    UNDELIVERABLE_TOPIC,
)
from triomq.store.results import MessageToStore, PutResult, PutStatus

LONG = "%RETRY%" + "g" * 121
LOWERED = {"max_message_size_bytes": 1000}


@asynccontextmanager
async def delivering(lab: Lab, file: MemoryFile) -> AsyncIterator[DelayOffsets]:
    offsets = DelayOffsets(file, offload=inline)
    offsets.load()
    delivery = DelayedDelivery(
        lab.configuration, lab.store, lab.writer, offsets, lab.topics, lab.undeliverable, now_ms=lab.now_ms
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(delivery.run)
        await settle()
        yield offsets
        nursery.cancel_scope.cancel()
    await offsets.persist()


def append(lab: Lab, topic: str, body: bytes, properties: dict[str, str], **members: Any) -> int:
    """Store a record as an earlier broker may have left it. Return its physical offset."""
    message = lab.message(topic, body, 0, properties)
    for name, value in members.items():
        setattr(message, name, value)
    result = lab.store.append(message)
    assert result.is_ok, result
    lab.store.commit()
    return result.physical_offset


def delayed(lab: Lab, topic: str, body: bytes, **properties: str) -> int:
    """Store a message that waits a second for this topic, whatever its name is."""
    properties = {"DELAY": "1", "REAL_TOPIC": topic, "REAL_QID": "0", **properties}
    return append(lab, SCHEDULE_TOPIC, body, properties, deliver_after_ms=1000)


def dead(lab: Lab) -> list[MessageExt]:
    return lab.messages(UNDELIVERABLE_TOPIC)


# -- delays ------------------------------------------------------------------------------------------------------------


async def test_a_delayed_message_for_a_topic_that_cannot_be_is_a_dead_letter_and_its_level_goes_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock, file = WallClock(), MemoryFile()
    async with open_lab(tmp_path, now_ms=clock) as lab, delivering(lab, file) as offsets:
        await lab.put("T", b"before", DELAY="1")
        at = delayed(lab, LONG, b"bad", TAGS="A", UNIQ_KEY="U")
        await lab.put("T", b"behind", DELAY="1")
        await trio.sleep(1.1)
        assert lab.bodies("T") == [b"before", b"behind"]
        assert offsets.get(1) == 3
        (letter,) = dead(lab)
        assert (letter.body, letter.properties["TAGS"], letter.properties["UNIQ_KEY"]) == (b"bad", "A", "U")
        assert letter.properties["REAL_TOPIC"] == LONG
        assert letter.properties["UNDELIVERABLE_REASON"] == "the topic has 128 bytes, the limit is 127"
        assert parse_offset_message_id(letter.properties["UNDELIVERABLE_MESSAGE_ID"])[1] == at
        assert lab.undeliverable.counts == {"delay": 1, "transaction": 0}
        assert lab.topics.get(UNDELIVERABLE_TOPIC) is not None
    async with open_lab(tmp_path, now_ms=clock) as lab, delivering(lab, file):
        await lab.put("T", b"after the restart", DELAY="1")
        await trio.sleep(1.1)
        assert lab.bodies("T") == [b"before", b"behind", b"after the restart"]
        assert len(dead(lab)) == 1


async def test_a_delayed_message_that_became_too_large_leaves_the_facts_and_its_level_goes_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock, file = WallClock(), MemoryFile()
    async with open_lab(tmp_path, now_ms=clock) as lab:
        large = await lab.put("Large", b"x" * 2000, 2, DELAY="1", UNIQ_KEY="U")
        await lab.put("T", b"behind", DELAY="1")
    for _ in range(2):
        async with open_lab(tmp_path, now_ms=clock, store=LOWERED) as lab, delivering(lab, file):
            await trio.sleep(1.1)
            assert lab.bodies("T") == [b"behind"]
            (letter,) = dead(lab)
            properties = letter.properties
            assert (letter.body, properties["UNIQ_KEY"]) == (b"", "U")
            assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("Large", "2")
            assert properties["UNDELIVERABLE_REASON"] == "body of 2000 bytes exceeds maxMessageSize 1000"
            _, at = parse_offset_message_id(properties["UNDELIVERABLE_MESSAGE_ID"])
            assert at == large.physical_offset


async def test_properties_without_room_for_the_reason_are_left_out(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab, MemoryFile()) as offsets:
        delayed(lab, LONG, b"bad", UNIQ_KEY="u" * 300, long="x" * 32_250)
        await trio.sleep(1.1)
        assert offsets.get(1) == 1
        (letter,) = dead(lab)
        assert letter.properties["UNIQ_KEY"] == "u" * 255
        assert "long" not in letter.properties


@pytest.mark.parametrize(("status", "is_dead"), [(status, status.value in (6, 7, 10)) for status in PutStatus][4:])
async def test_only_what_the_message_itself_causes_makes_it_a_dead_letter(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, status: PutStatus, is_dead: bool
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab, MemoryFile()) as offsets:
        await lab.put("T", b"refused", DELAY="1")
        lab.deliver_one_by_one()
        inside = lab.store.append

        def refusing(message: MessageToStore) -> PutResult:
            return PutResult(status) if message.topic == "T" else inside(message)

        lab.store.append = refusing  # type: ignore[method-assign]
        await trio.sleep(10)
        assert (len(dead(lab)), offsets.get(1)) == ((1, 1) if is_dead else (0, 0))


async def test_a_dead_letter_waits_for_a_store_that_takes_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab, MemoryFile()) as offsets:
        delayed(lab, LONG, b"bad")
        inside = lab.store.append

        def full(message: MessageToStore) -> PutResult:
            if message.topic == UNDELIVERABLE_TOPIC and trio.current_time() < 5:
                return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="full")
            return inside(message)

        lab.store.append = full  # type: ignore[method-assign]
        await trio.sleep(4)
        assert (offsets.get(1), lab.undeliverable.counts["delay"]) == (0, 0)
        await trio.sleep(2)
        assert (offsets.get(1), lab.undeliverable.counts["delay"], len(dead(lab))) == (1, 1, 1)


async def test_a_record_that_names_no_queue_is_counted_and_passed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab, MemoryFile()):
        delayed(lab, "T", b"bad", REAL_QID="9" * 5000)
        await lab.put("T", b"behind", DELAY="1")
        await trio.sleep(1.1)
        assert lab.bodies("T") == [b"behind"]
        assert lab.undeliverable.counts["delay"] == 1


async def test_a_compressed_message_whose_body_is_left_out_is_not_called_compressed(tmp_path: Path) -> None:
    async with open_lab(tmp_path, store=LOWERED) as lab:
        message = lab.message("T", b"x" * 2000, 0, {})
        message.sys_flag = 0x301 | 0x8
        Undeliverable(lab.writer, lab.topics).put("delay", message, 0, "too large")
        assert [(letter.body, letter.sys_flag) for letter in dead(lab)] == [(b"", 0)]


# -- what would be refused later is refused at once --------------------------------------------------------------------


@pytest.mark.parametrize("topic", [LONG, "a/b", ""])
@pytest.mark.parametrize("half", [False, True])
async def test_what_could_not_be_stored_later_is_refused_at_once(tmp_path: Path, topic: str, half: bool) -> None:
    async with open_lab(tmp_path) as lab:
        put = await (lab.put_half(topic) if half else lab.put(topic, DELAY="3"))
        assert put.status is PutStatus.MESSAGE_ILLEGAL
        assert (lab.messages(SCHEDULE_TOPIC, 2), lab.messages(TRANS_HALF_TOPIC)) == ([], [])


# -- transactions ------------------------------------------------------------------------------------------------------


async def large_half(transactions: Transactions) -> PutResult:
    """Store a half message of 2000 bytes, and one of 4 behind it."""
    half = await transactions.lab.put_half("T", b"x" * 2000, UNIQ_KEY="U")
    await transactions.lab.put_half("T", b"good")
    return half


@asynccontextmanager
async def lowered(root: Path, clock: WallClock, offsets: Any = None) -> AsyncIterator[Transactions]:
    async with open_lab(root, now_ms=clock, store=LOWERED) as lab:
        if offsets is not None:
            lab.offsets = offsets
        transactions = Transactions(lab)
        await transactions.log.load()
        yield transactions


async def test_a_commit_that_cannot_be_stored_is_a_dead_letter_and_is_not_checked_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_lab(tmp_path, now_ms=clock) as lab:
        half = await large_half(Transactions(lab))
    async with lowered(tmp_path, clock) as transactions:
        for _ in range(2):
            response = transactions.end(half, COMMIT)
            assert response is not None and response.code == ResponseCode.MESSAGE_ILLEGAL
        lab = transactions.lab
        assert [letter.properties["UNIQ_KEY"] for letter in dead(lab)] == ["U"]
        assert lab.undeliverable.counts["transaction"] == 1
        await trio.sleep(100)
        await transactions.checks.check()
        assert [header.msg_id for header in transactions.asked()] == [None], "only the good one"
        offsets = lab.offsets
    async with lowered(tmp_path, clock, offsets) as transactions:
        await trio.sleep(100)
        await transactions.checks.check()
        assert [header.msg_id for header in transactions.asked()] == [None]
        assert len(dead(transactions.lab)) == 1


async def test_a_producer_may_still_roll_back_what_could_not_be_committed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_lab(tmp_path, now_ms=clock) as lab:
        half = await large_half(Transactions(lab))
    async with lowered(tmp_path, clock) as transactions:
        transactions.end(half, COMMIT)
        response = transactions.end(half, ROLLBACK)
        assert response is not None and response.code == 0


async def test_a_half_message_that_cannot_be_put_back_does_not_stop_the_checks(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_lab(tmp_path, now_ms=clock) as lab:
        half = await large_half(Transactions(lab))
    offsets = None
    for _ in range(2):
        async with lowered(tmp_path, clock, offsets) as transactions:
            await trio.sleep(100)
            await transactions.checks.check()
            asked = [header.commit_log_offset for header in transactions.asked()]
            assert len(asked) == (2 if offsets is None else 1), "the one that is set aside is asked once"
            assert (half.physical_offset in asked) == (offsets is None)
            assert len(dead(transactions.lab)) == 1
            offsets = transactions.lab.offsets


async def test_a_half_message_that_cannot_be_discarded_does_not_stop_the_checks(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_lab(tmp_path, now_ms=clock) as lab:
        await lab.put_half("T", b"x" * 2000, TRANSACTION_CHECK_TIMES="15")
        await lab.put_half("T", b"good")
    async with lowered(tmp_path, clock) as transactions:
        await trio.sleep(100)
        await transactions.checks.check()
        assert len(transactions.asked()) == 1
        assert transactions.lab.messages(TRANS_CHECK_MAX_TIME_TOPIC) == []
        assert len(dead(transactions.lab)) == 1


async def test_a_crash_between_a_dead_letter_and_its_op_message_makes_no_second_one(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_lab(tmp_path, now_ms=clock) as lab:
        half = await lab.put_half("T", b"x" * 2000, UNIQ_KEY="U")
        message = lab.message("T", b"x" * 2000, 0, {"UNIQ_KEY": "U"})
        lab.undeliverable.put("transaction", message, half.physical_offset, "too large", replaces=True)
    async with lowered(tmp_path, clock) as transactions:
        await trio.sleep(100)
        await transactions.checks.check()
        assert transactions.asked() == []
        assert len(dead(transactions.lab)) == 1


async def test_a_listener_that_fails_for_one_half_message_is_asked_about_the_others(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    class Fails:
        def __init__(self) -> None:
            self.bodies: list[bytes] = []

        def check(self, half: HalfMessage) -> None:
            self.bodies.append(half.body)
            raise ValueError(half.body)

        def discard(self, half: HalfMessage) -> bool:
            raise AssertionError("nothing is old")

    async with open_lab(tmp_path) as lab:
        listener = Fails()
        checks = TransactionChecks(lab.configuration, Transactions(lab).log, listener, now_ms=lab.now_ms)
        await lab.put_half("T", b"a")
        await lab.put_half("T", b"b")
        await trio.sleep(100)
        await checks.check()
        assert listener.bodies == [b"a", b"b"]


async def test_a_half_message_for_a_topic_that_cannot_be_is_checked_and_holds_up_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Its question cannot be encoded."""
    async with open_lab(tmp_path) as lab:
        transactions = Transactions(lab)
        bad = {"TRAN_MSG": "true", "PGROUP": "PID", "REAL_TOPIC": "t" * 200, "REAL_QID": "9" * 5000}
        append(lab, TRANS_HALF_TOPIC, b"bad", bad)
        await lab.put_half("T", b"good")
        await trio.sleep(100)
        await transactions.checks.check()
        assert len(transactions.asked()) == 1


# -- the whole broker --------------------------------------------------------------------------------------------------


async def test_a_send_back_whose_retry_topic_is_too_long_is_refused(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        sent = await broker.send("T")
        assert sent.code == 0
        _, at = parse_offset_message_id(sent.ext_fields["msgId"])
        for length, code in ((120, 0), (121, ResponseCode.SYSTEM_ERROR)):
            fields = {"group": "g" * length, "offset": at, "delayLevel": 0, "originTopic": "T", "unitMode": False}
            response = await broker.ask(36, fields)
            assert response.code == code
            assert response.remark == (None if code == 0 else "MESSAGE_ILLEGAL")
