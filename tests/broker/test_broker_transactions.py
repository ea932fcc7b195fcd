"""Transactions over a real store: half messages, how they end, and the checks of those that did not end."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from broker_fakes import MemoryFile
from broker_store_lab import STORE_HOST, WallClock, open_lab
from broker_transaction_lab import COMMIT, ROLLBACK, UNKNOWN, Transactions, open_transactions
from fake_clock import FakeClock
from golden_data import copy_golden_store, golden_frames
from structlog.testing import capture_logs

from triomq.broker.delay import DelayedDelivery
from triomq.broker.message_writer import AwaitedPut, PendingPut
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.end_transaction import ResumeCheckProcessor
from triomq.broker.put_responses import UNSTORABLE
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.transactions.check import HalfMessage, HalfRead
from triomq.broker.transactions.producer_checks import ProducerChecks, TransactionChecks
from triomq.broker.transactions.records import UNDECIDED_FLAG
from triomq.broker.transactions.transactions import TransactionLog
from triomq.protocol import stored_properties
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.errors import HeaderFieldError, RecordError, RequestRefused
from triomq.protocol.frame import decode_frame
from triomq.protocol.headers.base import encode_header
from triomq.protocol.headers.transaction import (
    CheckTransactionStateRequestHeader,
    ResumeCheckHalfMessageRequestHeader,
)
from triomq.protocol.message_id import offset_message_id
from triomq.protocol.record import decode_record
from triomq.protocol.speedups import running_build
from triomq.protocol.system_topics import (
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    UNDELIVERABLE_TOPIC,
)
from triomq.store.config import BrokerRole
from triomq.store.results import MessageToStore, PutResult, PutStatus


async def test_a_commit_stores_the_message_and_an_op_that_ends_its_half_message(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        await lab.put_half("Other", b"another half message, so that neither offset is 0")
        half = await lab.put_half("T", b"pay", 3, TAGS="A", KEYS="k", UNIQ_KEY="U", WAIT="true", color="red")
        assert lab.bodies("T", 3) == []
        response = transactions.end(half, COMMIT)
        assert response is not None
        assert (response.code, response.remark) == (0, None)
        message = lab.messages("T", 3)[0]
        assert (message.body, message.sys_flag, message.prepared_transaction_offset) == (
            b"pay",
            8,
            half.physical_offset,
        )
        stored = lab.messages(TRANS_HALF_TOPIC)[1]
        assert message.properties == stored.properties
        assert message.properties["REAL_TOPIC"] == "T"
        assert message.properties["TRAN_MSG"] == "true"
        assert (message.flag, message.born_timestamp, message.born_host) == (7, stored.born_timestamp, stored.born_host)
        op = lab.messages(TRANS_OP_HALF_TOPIC)[0]
        assert (op.body, op.properties, op.sys_flag) == (b"1", {"TAGS": "d", "WAIT": "true"}, 0)
        assert (op.born_host, op.store_host) == (STORE_HOST, STORE_HOST)
        assert lab.store.reading.queue_entries(TRANS_OP_HALF_TOPIC, 0, 0, 1)[0][2] == 100
        assert transactions.pool.in_flight == 0


async def test_a_rollback_ends_its_half_message_and_stores_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        await transactions.lab.put_half("T", b"first")
        half = await transactions.lab.put_half("T", b"second")
        response = transactions.end(half, ROLLBACK)
        assert response is not None
        assert (response.code, response.remark) == (0, "not set any response code")
        assert transactions.lab.bodies("T") == []
        assert transactions.lab.bodies(TRANS_OP_HALF_TOPIC) == [b"1"]


async def test_unknown_is_not_answered(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_transactions(tmp_path) as transactions:
        half = await transactions.lab.put_half("T")
        assert transactions.end(half, UNKNOWN) is None
        assert transactions.lab.bodies(TRANS_OP_HALF_TOPIC) == []


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"commit_log_offset": 1}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commit_log_offset": 0}, "Find prepared transaction message failed"),  # a message, but not a half message
        ({"producer_group": "other"}, "The producer group wrong"),
        ({"tran_state_table_offset": 7}, "The transaction state table offset wrong"),
    ],
)
async def test_the_wrong_half_message_is_refused(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, how: int, changes: dict[str, Any], remark: str
) -> None:
    async with open_transactions(tmp_path) as transactions:
        await transactions.lab.put("Other", PGROUP="PID")
        half = await transactions.lab.put_half("T")
        with pytest.raises(RequestRefused) as refused:
            transactions.end(half, how, **changes)
        assert (refused.value.code, refused.value.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert transactions.lab.bodies("T") == transactions.lab.bodies(TRANS_OP_HALF_TOPIC) == []
        assert transactions.pool.in_flight == 0


async def test_a_request_that_says_neither_commit_nor_rollback_is_refused(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        half = await transactions.lab.put_half("T")
        with pytest.raises(RequestRefused, match="commitOrRollback field wrong"):
            transactions.end(half, 4)
        with pytest.raises(HeaderFieldError, match="producerGroup"):
            transactions.end_processor(cast(Any, transactions.producer), new_request(RequestCode.END_TRANSACTION))


async def test_slaves_end_nothing(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_transactions(tmp_path, store={"broker_role": BrokerRole.SLAVE}) as transactions:
        with pytest.raises(RequestRefused) as refused:
            transactions.end(PutResult(PutStatus.PUT_OK, physical_offset=0, queue_offset=0), COMMIT)
        assert (refused.value.code, refused.value.remark) == (11, "not set any response code")


@pytest.mark.parametrize(
    ("status", "code", "remark"),
    [
        (PutStatus.MESSAGE_ILLEGAL, 13, "msg body length limit 4194304B, msg properties length limit 32KB."),
        (PutStatus.SERVICE_NOT_AVAILABLE, 14, "Service not available now."),
        (PutStatus.OS_PAGECACHE_BUSY, 1, "OS page cache busy, please try another machine"),
        (PutStatus.CREATE_MAPEDFILE_FAILED, 1, "Create mapped file failed."),
        (PutStatus.UNKNOWN_ERROR, 1, "UNKNOWN_ERROR"),
        (PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED, 1, "UNKNOWN_ERROR DEFAULT"),
    ],
)
async def test_a_commit_that_the_store_refuses_leaves_the_half_message_undecided(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, status: PutStatus, code: int, remark: str
) -> None:
    async with open_transactions(tmp_path) as transactions:
        half = await transactions.lab.put_half("T")
        append = transactions.lab.store.append

        def refuse(message: MessageToStore) -> PutResult:
            return PutResult(status) if message.topic == "T" else append(message)

        transactions.lab.store.append = refuse  # type: ignore[method-assign]
        response = transactions.end(half, COMMIT)
        assert response is not None
        assert response.code == code
        assert response.remark is not None
        assert response.remark.endswith(remark)
        is_dead = status in UNSTORABLE
        assert len(transactions.lab.messages(UNDELIVERABLE_TOPIC)) == is_dead
        assert [op.flag for op in transactions.lab.messages(TRANS_OP_HALF_TOPIC)] == [UNDECIDED_FLAG] * is_dead
        assert transactions.pool.in_flight == 0
        transactions.lab.store.append = append  # type: ignore[method-assign]
        response = transactions.end(half, COMMIT)
        assert response is not None
        assert response.code == 0
        assert len(transactions.lab.messages("T")) == 1


async def test_a_commit_goes_to_a_queue_that_is_read(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_transactions(tmp_path) as transactions:
        half = await transactions.lab.put_half("T", b"pay", 3)
        transactions.lab.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
        transactions.end(half, COMMIT)
        assert transactions.lab.bodies("T", 1) == [b"pay"]


async def test_message_and_op_leave_in_one_commit_the_op_last(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        half = await lab.put_half("T")
        lab.is_committing = False
        assert transactions.end(half, COMMIT) is None, "nothing is answered before it is written"
        lab.store.commit()
        assert transactions.producer.answers[-1][1].code == 0
        message, op = lab.messages("T")[0], lab.messages(TRANS_OP_HALF_TOPIC)[0]
        assert op.physical_offset == message.physical_offset + message.store_size_bytes


async def test_a_delayed_commit_waits_for_its_time(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        delivery = DelayedDelivery(
            lab.configuration, lab.store, lab.writer, DelayOffsets(), lab.topics, lab.undeliverable, now_ms=lab.now_ms
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(delivery.run)
            transactions.end(await lab.put_half("T", queue_id=2, DELAY="2"), COMMIT)
            assert lab.bodies("T", 2) == []
            await trio.sleep(5.1)
            message = lab.messages("T", 2)[0]
            assert message.sys_flag == 8
            assert "TRAN_MSG" not in message.properties
            nursery.cancel_scope.cancel()


async def test_an_open_half_message_is_checked_and_put_back(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        half = await lab.put_half("T", b"pay", 3, UNIQ_KEY="U", TAGS="A", WAIT="true")
        ended = await lab.put_half("T", b"ended", 3)
        transactions.end(ended, COMMIT)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transactions.checks.run)
            await trio.sleep(59)
            assert transactions.asked() == [], "the first check comes after one interval"
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        [request] = transactions.producer.oneways
        assert request.code == RequestCode.CHECK_TRANSACTION_STATE
        assert request.is_oneway
        copy = lab.messages(TRANS_HALF_TOPIC)[2]
        assert copy.properties == {
            **lab.messages(TRANS_HALF_TOPIC)[0].properties,
            "TRANSACTION_CHECK_TIMES": "1",
            "TRAN_REPLACES_OFFSET": str(half.physical_offset),
        }
        header = transactions.asked()[0]
        assert (header.commit_log_offset, header.tran_state_table_offset) == (copy.physical_offset, 2)
        assert (header.msg_id, header.transaction_id, header.offset_msg_id) == ("U", "U", copy.offset_msg_id)
        body = decode_record(request.body)
        assert (body.topic, body.queue_id, body.body) == ("T", 3, b"pay")
        own = {name: text for name, text in copy.properties.items() if name != "TRAN_REPLACES_OFFSET"}
        assert body.properties == {**own, "WAIT": "false"}
        assert (body.born_timestamp, body.physical_offset) == (copy.born_timestamp, copy.physical_offset)
        assert half.physical_offset != copy.physical_offset
        assert transactions.consumed() == (2, 1)
        put = PutResult(PutStatus.PUT_OK, physical_offset=copy.physical_offset, queue_offset=2)
        answer = transactions.end(put, COMMIT)
        assert answer is not None
        assert answer.code == 0
        assert lab.bodies("T", 3) == [b"ended", b"pay"]


async def test_half_messages_in_queues_that_the_topic_has_lost_are_checked(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        lab = transactions.lab
        assert list(transactions.log.queue_ids()) == [0]
        half = lab.message(TRANS_HALF_TOPIC, b"pay", 2, {"REAL_TOPIC": "T", "REAL_QID": "0", "PGROUP": "PID"})
        assert lab.store.append(half).is_ok
        lab.store.commit()
        assert list(transactions.log.queue_ids()) == [0, 2]
        await trio.sleep(60)
        await transactions.checks.check()
        [copy] = transactions.asked()
        put = PutResult(PutStatus.PUT_OK, physical_offset=copy.commit_log_offset, queue_offset=1)
        answer = transactions.end(put, COMMIT)
        assert answer is not None and answer.code == 0
        assert lab.bodies("T") == [b"pay"]


async def test_given_up_after_the_last_check_and_resumed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    options = {"broker": {"transaction_check_max": 3, "transaction_check_interval_ms": 10_000}}
    async with open_transactions(tmp_path, **options) as transactions:
        lab = transactions.lab
        await lab.put_half("T", b"never", TAGS="never", UNIQ_KEY="U", WAIT="true")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transactions.checks.run)
            await trio.sleep(65)
            assert len(transactions.asked()) == 3
            assert [m.properties.get("TRANSACTION_CHECK_TIMES") for m in lab.messages(TRANS_HALF_TOPIC)] == [
                *(None, "1", "2", "3"),
            ]
            given_up = lab.messages(TRANS_CHECK_MAX_TIME_TOPIC)[0]
            assert given_up.properties["TRANSACTION_CHECK_TIMES"] == "3"
            assert lab.topics.get(TRANS_CHECK_MAX_TIME_TOPIC) is not None
            assert transactions.consumed()[0] == 4

            resume = ResumeCheckProcessor(transactions.log)
            header = ResumeCheckHalfMessageRequestHeader(msg_id=given_up.offset_msg_id)
            resume(cast(Any, transactions.producer), new_request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header))
            response = transactions.producer.answers[-1][1]
            assert (response.code, response.remark) == (0, None)
            assert lab.messages(TRANS_HALF_TOPIC)[-1].properties["TRANSACTION_CHECK_TIMES"] == "0"
            await trio.sleep(10)
            assert len(transactions.asked()) == 4
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("message_id", [None, "", "xyz", offset_message_id(STORE_HOST.packed, 1 << 40)])
async def test_what_cannot_be_resumed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, message_id: str | None
) -> None:
    async with open_transactions(tmp_path) as transactions:
        resume = ResumeCheckProcessor(transactions.log)
        header = ResumeCheckHalfMessageRequestHeader(msg_id=message_id)
        request = new_request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header)
        remark = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
        with pytest.raises(RequestRefused) as refused:
            resume(cast(Any, transactions.producer), request)
        assert (refused.value.code, refused.value.remark) == (1, remark)


async def test_a_crash_before_the_end_is_found_by_the_next_check(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        await transactions.lab.put_half("T", b"lost")
        transactions.end(await transactions.lab.put_half("T", b"ended"), ROLLBACK)
    await trio.sleep(100)
    async with open_transactions(tmp_path, now_ms=clock) as transactions:
        await transactions.checks.check()
        assert len(transactions.asked()) == 1
        assert transactions.lab.bodies(TRANS_HALF_TOPIC) == [b"lost", b"ended", b"lost"]
        assert transactions.consumed() == (2, 1)
        await transactions.checks.check()
        assert len(transactions.asked()) == 1, "the copy is younger than that run"


async def test_nobody_to_ask_and_messages_without_a_group(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_transactions(tmp_path) as transactions:
        await transactions.lab.put_half("T", PGROUP="gone")
        await transactions.lab.put(TRANS_HALF_TOPIC, b"no half message at all")
        await trio.sleep(100)
        await transactions.checks.check()
        assert transactions.asked() == []
        assert len(transactions.lab.messages(TRANS_HALF_TOPIC)) == 4


@pytest.mark.skipif(running_build() == "compiled", reason="replaces a function of TransactionLog")
async def test_a_run_that_fails_is_followed_by_the_next(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_transactions(tmp_path) as transactions:
        await transactions.lab.put_half("T")
        failures = [OSError("once")]
        read_half = transactions.log.read_half

        def once(queue_id: int, queue_offset: int) -> Any:
            if failures:
                raise failures.pop()
            return read_half(queue_id, queue_offset)

        transactions.log.read_half = once  # type: ignore[method-assign]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(transactions.checks.run)
            await trio.sleep(131)
            nursery.cancel_scope.cancel()
        assert len(transactions.asked()) == 1


async def test_store_and_listener_may_be_replaced(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    class Listener:
        def __init__(self) -> None:
            self.checked: list[HalfMessage] = []

        def check(self, half: HalfMessage) -> None:
            self.checked.append(half)

        def discard(self, half: HalfMessage) -> bool:
            return True

    async with open_transactions(tmp_path) as transactions:
        await transactions.lab.put_half("T", b"mine")
        await trio.sleep(100)
        listener = Listener()
        checks = TransactionChecks(
            transactions.lab.configuration, transactions.log, listener, now_ms=transactions.lab.now_ms
        )
        await checks.check()
        assert [half.body for half in listener.checked] == [b"mine"]
        assert transactions.asked() == []


async def test_the_check_of_the_real_broker(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Build the recorded CHECK_TRANSACTION_STATE again from the half message inside it."""
    frame = golden_frames("clients_json", code_name="CHECK_TRANSACTION_STATE")[0]
    recorded = decode_frame(bytes.fromhex(frame["frame_hex"]))
    theirs = decode_record(recorded.body)
    async with open_transactions(tmp_path) as transactions:
        group = theirs.properties["PGROUP"]
        transactions.lab.producers.register(group, cast(Any, transactions.producer), "c", 0, 407)
        half = HalfMessage(
            queue_id=0,
            queue_offset=theirs.queue_offset,
            physical_offset=theirs.physical_offset,
            store_timestamp=theirs.store_timestamp,
            born_timestamp=theirs.born_timestamp,
            born_host=theirs.born_host.packed,
            store_host=theirs.store_host.packed,
            flag=theirs.flag,
            sys_flag=theirs.sys_flag,
            reconsume_times=0,
            body=theirs.body,
            properties=stored_properties.of({**theirs.properties, "WAIT": "true"}),
        )
        transactions.listener.check(half)
        [request] = transactions.producer.oneways
        assert encode_header(request.header(CheckTransactionStateRequestHeader)) == recorded.ext_fields
        ours = decode_record(request.body)
        assert len(request.body) == len(recorded.body)
        assert request.body[: 88 + 4] == recorded.body[: 88 + 4]
        assert (ours.topic, ours.queue_id, ours.properties) == (theirs.topic, theirs.queue_id, theirs.properties)


async def test_the_store_of_rocketmq_goes_on(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Half messages that the real broker resolved count as resolved here: no producer is asked again."""
    copy_golden_store("1a_clean", tmp_path)
    files = {"mapped_file_size_consume_queue_bytes": 4000, "max_hash_slot_num": 500, "max_index_num": 2000}
    async with open_lab(tmp_path / "store", now_ms=WallClock(1_795_238_500_000), store=files) as lab:
        lab.offsets = OffsetTable(MemoryFile((tmp_path / "store/config/consumerOffset.json").read_text()))
        lab.offsets.load()
        transactions = Transactions(lab)
        lab.producers.register("PID_Gold_tx", cast(Any, transactions.producer), "c", 0, 407)
        begin = transactions.consumed()
        halves, ops = (
            lab.store.reading.max_offset(TRANS_HALF_TOPIC, 0),
            lab.store.reading.max_offset(TRANS_OP_HALF_TOPIC, 0),
        )
        ended = {int(body) for body in lab.bodies(TRANS_OP_HALF_TOPIC)}
        still_open = sorted(set(range(begin[0], halves)) - ended)
        open_keys = [lab.messages(TRANS_HALF_TOPIC)[queue_offset].keys for queue_offset in still_open]
        await transactions.checks.check()
        assert transactions.asked() == [], "their producers wanted an hour"
        copies = lab.messages(TRANS_HALF_TOPIC)[halves:]
        assert [copy.keys for copy in copies] == open_keys
        assert [copy.properties["TRAN_PREPARED_QUEUE_OFFSET"] for copy in copies] == [str(n) for n in still_open]
        assert transactions.consumed() == (halves, ops)
        await trio.sleep(3601)
        await transactions.checks.check()
        assert [header.tran_state_table_offset for header in transactions.asked()] == [
            halves + len(copies) + n for n in range(len(copies))
        ]
        assert transactions.consumed() == (halves + len(copies), ops + len(copies)), "those of the first copies"


def half_of(group: str | None) -> HalfMessage:
    properties = {} if group is None else {"PGROUP": group}
    host = STORE_HOST.packed
    return HalfMessage(0, 0, 0, 0, 0, host, host, 0, 0, 0, b"", stored_properties.of(properties))


def test_half_messages_of_groups_that_are_gone_are_one_line_that_counts_them() -> None:
    checks = ProducerChecks(ProducerTable(FakeClock()), cast(Any, None))
    with capture_logs() as captured:
        for _ in range(2000):
            checks.check(half_of("Gone"))
        checks.check(half_of("Other"))
        checks.check(half_of(None))
        assert captured == []
        checks.log_unasked()
        checks.log_unasked()
    (line,) = captured
    assert line["log_level"] == "warning"
    assert (line["half_messages"], line["groups"]) == (2002, 3)
    assert line["most"] == "Gone: 2000, Other: 1, no group: 1"


def test_groups_that_are_gone_are_counted_by_name_up_to_a_bound() -> None:
    checks = ProducerChecks(ProducerTable(FakeClock()), cast(Any, None))
    for number in range(5000):
        checks.check(half_of(f"G{number}"))
    with capture_logs() as captured:
        checks.log_unasked()
    (line,) = captured
    assert (line["half_messages"], line["groups"]) == (5000, 1001)
    assert line["most"].startswith("other groups: 4000, ")
    assert line["most"].count(":") == 10


async def test_what_the_checks_read_counts_as_read_by_the_broker_and_not_by_clients(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """RocketMQ's msgGetTotalTodayNow is a counter of its store, so it grows even when no client pulls."""
    async with open_lab(tmp_path) as lab:
        stats = BrokerStats("C", now_ms=lab.now_ms)
        log = TransactionLog(
            lab.store,
            lab.writer,
            lab.topics,
            lab.offsets,
            lab.undeliverable,
            store_host=STORE_HOST.packed,
            now_ms=lab.now_ms,
            stats=stats,
        )
        await lab.put_half("T", b"open")
        assert log.read_half(0, 0).message is not None
        assert log.pull_ops(0, 0).messages == []
        assert (stats.read_total, stats.get_total) == (1, 0)
        assert (stats.get_found_times, stats.get_missed_times) == (1, 1)
        stats.group_get("G", "T", 0, 3, 100, 0)
        assert (stats.read_total, stats.get_total) == (4, 3)


async def test_a_copy_that_was_put_back_can_be_read_at_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """The run continues in the queue without waiting for the end of a turn."""
    async with open_transactions(tmp_path) as transactions:
        await transactions.lab.put_half("T", b"open")
        half = transactions.log.read_half(0, 0).message
        assert half is not None
        transactions.lab.is_committing = False  # no turn ends here
        assert transactions.log.put_back(half, PendingPut())
        assert half.queue_offset == 1
        copy = transactions.log.read_half(0, 1).message
        assert copy is not None
        assert (copy.body, copy.physical_offset) == (b"open", half.physical_offset)


async def test_behind_the_last_half_message_is_the_end(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_transactions(tmp_path) as transactions:
        assert transactions.log.read_half(0, 0) == HalfRead(None, is_end=True, next_offset=0)
        await transactions.lab.put_half("T", b"open")
        assert transactions.log.read_half(0, 1) == HalfRead(None, is_end=True, next_offset=1)


@pytest.mark.parametrize(
    "properties", [{"REAL_QID": "x"}, {"REAL_QID": ""}, {"REAL_QID": "-1"}, {"REAL_QID": "\u0663"}, {"REAL_TOPIC": ""}]
)
async def test_a_half_message_that_names_no_queue_is_not_committed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, properties: dict[str, str]
) -> None:
    async with open_transactions(tmp_path) as transactions:
        half = await transactions.lab.put_half("T", b"lost")
        found = transactions.log.read_half(0, 0).message
        assert found is not None
        found.properties = found.properties.with_(properties)
        with pytest.raises(RecordError, match="do not name a queue"):
            transactions.log.commit(found, AwaitedPut())
        assert transactions.lab.bodies(TRANS_OP_HALF_TOPIC) == []
        assert half.queue_offset == 0


async def test_others_run_between_the_steps_of_a_check(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    clock = WallClock()
    async with open_transactions(tmp_path, now_ms=clock) as transactions, trio.open_nursery() as nursery:
        for _ in range(3):
            await transactions.lab.put_half("T", b"open")
        await trio.sleep(100)
        others: list[int] = []

        async def other() -> None:
            others.append(len(transactions.asked()))

        nursery.start_soon(other)
        await transactions.checks.check()
        assert others, "the check kept the event loop to itself"
