"""Delayed delivery over a real store, with a clock that jumps: hours pass in milliseconds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from broker_fakes import MemoryFile
from broker_store_lab import START_MS, Lab, WallClock, inline, open_lab, settle
from golden_data import copy_golden_store, golden_expectation
from hypothesis import given
from hypothesis import strategies as st
from stored_records import encoded
from structlog.testing import capture_logs

from triomq.broker.delay import DelayedDelivery, real_message
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.protocol import stored_properties
from triomq.protocol.bodies.offset import DelayOffsetSerializeWrapper
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.errors import RecordError
from triomq.protocol.message_to_store import Place
from triomq.protocol.record import decode_record, encode_into
from triomq.protocol.speedups import running_build
from triomq.protocol.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from triomq.store.results import MessageToStore, PutResult, PutStatus

LEVEL_MS = [1_000, 5_000, 10_000, 30_000, *(minutes * 60_000 for minutes in (*range(1, 11), 20, 30, 60, 120))]


class Clients:
    """What delivery learns of clients, and how it serves them."""

    def __init__(self, is_waiting: Callable[[], bool], serve: Callable[[], None]) -> None:
        self.is_interactive_waiting = is_waiting
        self.catch_up = serve


@asynccontextmanager
async def delivering(
    lab: Lab,
    file: MemoryFile | None = None,
    is_client_waiting: Callable[[], bool] | None = None,
    serve_clients: Callable[[], None] = lambda: None,
) -> AsyncIterator[DelayOffsets]:
    offsets = DelayOffsets(file if file is not None else MemoryFile(), offload=inline)
    offsets.load()
    delivery = DelayedDelivery(
        lab.configuration, lab.store, lab.writer, offsets, lab.topics, lab.undeliverable, now_ms=lab.now_ms
    )
    clients = Clients(is_client_waiting, serve_clients) if is_client_waiting is not None else None
    async with trio.open_nursery() as nursery:
        await nursery.start(delivery.run, clients)
        await settle()
        yield offsets
        nursery.cancel_scope.cancel()
    await offsets.persist()


async def test_every_level_delivers_at_its_time_and_never_early(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab) as offsets:
        for level in range(1, 19):
            await lab.put("T", b"%d" % level, DELAY=str(level), TAGS="A")
        assert lab.bodies("T") == []
        await trio.sleep(2 * 3600 + 1)
        messages = lab.messages("T")
        assert [int(message.body) for message in messages] == list(range(1, 19))
        lateness = [
            message.store_timestamp - START_MS - delay_ms for message, delay_ms in zip(messages, LEVEL_MS, strict=True)
        ]
        assert all(0 <= late <= 2 for late in lateness), lateness
        assert dict(offsets.items()) == dict.fromkeys(range(1, 19), 1)


async def test_the_delivered_message_is_the_one_that_was_sent(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab):
        sent = await lab.put("T", b"body", 3, DELAY="1", TAGS="A", KEYS="k1", UNIQ_KEY="U1", WAIT="true", color="red")
        scheduled = lab.messages(SCHEDULE_TOPIC)[0]
        assert sent.physical_offset == scheduled.physical_offset
        await trio.sleep(1.1)
        message = lab.messages("T", 3)[0]
        sent_properties = {"DELAY": "1", "TAGS": "A", "KEYS": "k1", "UNIQ_KEY": "U1", "WAIT": "true", "color": "red"}
        assert message.properties == {**sent_properties, "REAL_TOPIC": "T", "REAL_QID": "3"}
        assert (message.flag, message.born_timestamp, message.born_host) == (7, START_MS, scheduled.born_host)
        assert message.prepared_transaction_offset == 0
        assert lab.store.reading.queue_entries("T", 3, 0, 1)[0][2] == ord("A")
        assert len(lab.store.reading.query_by_key("T", "k1", 10, 0, 2**62).records) == 1


async def test_a_level_above_the_last_is_the_last(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_lab(tmp_path, store={"message_delay_level": "1s 2s"}) as lab, delivering(lab):
        await lab.put("T", DELAY="99")
        await trio.sleep(1.9)
        assert lab.bodies("T") == []
        await trio.sleep(0.2)
        assert lab.messages("T")[0].properties["DELAY"] == "2"


async def test_levels_that_the_table_has_lost_deliver_what_waits_there_when_it_is_due(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path, store={"message_delay_level": "1s 3s 5s 15s"}) as lab:
        await lab.put("T", b"waits", DELAY="4")
    async with open_lab(tmp_path, store={"message_delay_level": "1s 3s"}) as lab:
        offsets = DelayOffsets(MemoryFile(), offload=inline)
        delivery = DelayedDelivery(
            lab.configuration, lab.store, lab.writer, offsets, lab.topics, lab.undeliverable, now_ms=lab.now_ms
        )
        assert delivery.every_level() == {1: (0, 0), 2: (0, 0), 4: (0, 1)}
        due_ms = delivery.next_due_ms()
        assert due_ms is not None
        with capture_logs() as lines:
            async with trio.open_nursery() as nursery:
                await nursery.start(delivery.run)
                await trio.sleep((due_ms - lab.now_ms()) / 1000 - 0.5)
                assert lab.bodies("T") == [], "its due time is in its entry"
                await trio.sleep(2)
                assert lab.bodies("T") == [b"waits"]
                nursery.cancel_scope.cancel()
        assert [(line["level"], line["messages_waiting"]) for line in lines if line["log_level"] == "warning"] == [
            (4, 1)
        ]
        assert delivery.every_level() == {1: (0, 0), 2: (0, 0)}
        assert delivery.progress() == {4: (1, 1)}


async def test_due_together_is_written_together(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab):
        for number in range(100):
            await lab.put("T", b"%d" % number, DELAY="1")
        lab.is_committing = False  # from here on only the delivery commits
        commit = lab.store.commit
        commits: list[int] = []

        def counted() -> None:
            commits.append(lab.store.reading.max_offset("T", 0))
            commit()

        lab.store.commit = counted  # type: ignore[method-assign]
        await trio.sleep(1.05)
        assert commits == [0], "one write for all of them"
        messages = lab.messages("T")
        assert [int(message.body) for message in messages] == list(range(100))
        assert len({message.store_timestamp for message in messages}) == 1


def ends_at_commits(lab: Lab) -> list[int]:
    """Return a list that gets the end of queue 0 of T at each commit from now on."""
    ends: list[int] = []
    commit = lab.store.commit

    def counted() -> None:
        commit()
        ends.append(lab.store.reading.max_offset("T", 0))

    lab.store.commit = counted  # type: ignore[method-assign]
    return ends


async def seen_beside(lab: Lab, seconds: float, count: Callable[[], int]) -> list[int]:
    """Return what `count` was whenever a task ran that waits for messages of queue 0 of T, for some seconds."""
    seen: list[int] = []
    mark = lab.store.reading.queue_end("T", 0)
    with trio.move_on_after(seconds):
        while True:
            await mark.wait_beyond(seen[-1] if seen else 0)
            seen.append(count())
    return seen


async def test_others_run_between_the_batches_of_a_level(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab) as offsets:
        for number in range(600):
            await lab.put("T", b"%d" % number, DELAY="1")
        ends = ends_at_commits(lab)
        seen = await seen_beside(lab, 1.1, lambda: lab.store.reading.max_offset("T", 0))
        assert ends == [256, 512, 600]
        assert seen[0] < 600, "a task that the first batch woke runs before the last one"
        assert [int(message.body) for message in lab.messages("T")] == list(range(600))
        assert offsets.get(1) == 600


async def test_a_batch_ends_for_a_client_that_waits(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    waits = [False, True, True, False]
    async with open_lab(tmp_path) as lab, delivering(lab, is_client_waiting=lambda: waits.pop(0)) as offsets:
        for number in range(150):
            await lab.put("T", b"%d" % number, DELAY="1")
        lab.is_committing = False
        ends = ends_at_commits(lab)
        await trio.sleep(1.1)
        assert ends == [64, 96, 150], "it has 32 messages more each time that somebody is looked for"
        assert waits == []
        assert [int(message.body) for message in lab.messages("T")] == list(range(150))
        assert offsets.get(1) == 150


async def test_clients_are_served_between_batches_and_other_tasks_run_behind_some(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    ends: list[int] = []
    served: list[int] = []

    def serve() -> None:
        served.append(ends[-1])

    async with open_lab(tmp_path) as lab, delivering(lab, None, lambda: True, serve):
        for number in range(600):
            await lab.put("T", b"%d" % number, DELAY="1")
        ends = ends_at_commits(lab)
        seen = await seen_beside(lab, 1.1, lambda: ends[-1])
        assert ends == [*range(32, 600, 32), 600]
        assert served == [end for end in ends if end % 256]
        assert seen[0] < 600, "a task that the first batch woke runs before the last one"
        assert [int(message.body) for message in lab.messages("T")] == list(range(600))


async def test_other_tasks_run_behind_each_whole_batch_also_where_clients_are_served(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    ends: list[int] = []
    served: list[int] = []
    async with open_lab(tmp_path) as lab, delivering(lab, None, lambda: False, lambda: served.append(ends[-1])):
        for number in range(600):
            await lab.put("T", b"%d" % number, DELAY="1")
        ends = ends_at_commits(lab)
        await trio.sleep(1.1)
        assert ends == [256, 512, 600]
        assert served == [600]


async def test_a_batch_begins_where_those_who_were_served_before_it_left_its_level(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab:
        offsets: list[DelayOffsets] = []

        def skip() -> None:
            if offsets[0].get(1) == 32:
                offsets[0].set(1, 50)

        async with delivering(lab, None, lambda: True, skip) as own:
            offsets.append(own)
            for number in range(60):
                await lab.put("T", b"%d" % number, DELAY="1")
            await trio.sleep(1.1)
            assert [int(message.body) for message in lab.messages("T")] == [*range(32), *range(50, 60)]
            assert own.get(1) == 60


async def test_what_rocketmq_stored_is_delivered_as_rocketmq_would_encode_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Its clients end properties with a separator, and a later property replaces an earlier one."""
    async with open_lab(tmp_path) as lab, delivering(lab):
        message = lab.message(SCHEDULE_TOPIC, b"body", 0, {})
        message.properties = stored_properties.read(
            b"KEYS\x01a\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02DELAY\x011\x02KEYS\x01b\x02empty\x01\x02"
        )
        message.deliver_after_ms = 1000
        assert lab.store.append(message).is_ok
        lab.store.commit()
        await trio.sleep(1.1)
        delivered = lab.store.reading.get_messages("T", 0, 0, 1).records[0]
        assert delivered.endswith(b"KEYS\x01b\x02REAL_TOPIC\x01T\x02REAL_QID\x010\x02DELAY\x011")
        assert len(lab.store.reading.query_by_key("T", "b", 10, 0, 2**62).records) == 1


# The compiled broker accepts only the store's own Reading.
needs_plain_python = pytest.mark.skipif(running_build() == "compiled", reason="replaces a part of the store")


class ReadingBut:
    """A store's reading with some functions replaced by the test."""

    def __init__(self, reading: Any, **own: Any) -> None:
        self._reading = reading
        vars(self).update(own)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reading, name)


@needs_plain_python
async def test_thousands_pending_cost_nothing_until_they_are_due(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lab(tmp_path, store={"mapped_file_size_commit_log_bytes": 1 << 22}) as lab, delivering(lab):
        for number in range(3000):
            await lab.put("T", b"%d" % number, number % 4, DELAY="18")
        await settle()
        looks: list[int] = []
        entries = lab.store.reading.queue_entries

        def counted(topic: str, queue_id: int, queue_offset: int, count: int) -> list[tuple[int, int, int]]:
            looks.append(count)
            return entries(topic, queue_id, queue_offset, count)

        monkeypatch.setattr(lab.store, "reading", ReadingBut(lab.store.reading, queue_entries=counted))
        await trio.sleep(600)
        assert set(looks) == {1}, "only the first pending entry is looked at"
        assert len(looks) <= 601
        await trio.sleep(7200)
        assert sum(len(lab.bodies("T", queue_id)) for queue_id in range(4)) == 3000


async def test_an_idle_level_waits_without_looking(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab):

        def nobody_asks(*_: object) -> list[tuple[int, int, int]]:
            raise AssertionError("an idle level was examined")

        with monkeypatch.context() as patch:
            patch.setattr(lab.store, "reading", ReadingBut(lab.store.reading, queue_entries=nobody_asks))
            await trio.sleep(3600)
        await lab.put("T", DELAY="1")
        await trio.sleep(1.1)
        assert lab.bodies("T") == [b"hello"]


async def test_a_restart_changes_nothing(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    file = MemoryFile()
    clock = WallClock()
    async with open_lab(tmp_path, now_ms=clock) as lab, delivering(lab, file):
        await lab.put("T", b"first", DELAY="1")
        await lab.put("T", b"second", DELAY="2")
        await lab.put("T", b"missed", DELAY="2")
        await trio.sleep(2)
    assert file.text == '{\n\t"offsetTable":{1:1\n\t}\n}'
    await trio.sleep(100)
    async with open_lab(tmp_path, now_ms=clock) as lab, delivering(lab, file) as offsets:
        await trio.sleep(0.01)
        assert lab.bodies("T") == [b"first", b"second", b"missed"]
        assert dict(offsets.items()) == {1: 1, 2: 2}


async def test_offsets_are_written_now_and_then(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    file = MemoryFile()
    async with open_lab(tmp_path) as lab, delivering(lab, file):
        await lab.put("T", DELAY="1")
        await trio.sleep(9)
        assert file.texts == []
        await trio.sleep(2)
        assert file.texts == ['{\n\t"offsetTable":{1:1\n\t}\n}']
        await trio.sleep(100)
        assert len(file.texts) == 1, "nothing moved, nothing is written"


@pytest.mark.parametrize(("kept", "begins_at"), [("0", 0), ("1", 1), ("99", 2), ("-5", 0)])
async def test_offsets_are_corrected_into_the_queue(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, kept: str, begins_at: int
) -> None:
    async with open_lab(tmp_path) as lab:
        for number in range(2):
            await lab.put("T", b"%d" % number, DELAY="1")
        await trio.sleep(5)
        async with delivering(lab, MemoryFile(f'{{"offsetTable":{{1:{kept},7:4}}}}')) as offsets:
            await trio.sleep(0.1)
            assert lab.bodies("T") == [b"0", b"1"][begins_at:]
            assert (offsets.get(1), offsets.get(7)) == (2, 0)


async def test_a_clock_set_forward_delivers_within_a_second(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_lab(tmp_path, now_ms=clock) as lab, delivering(lab):
        await lab.put("T", DELAY="17")
        await trio.sleep(10.5)
        clock.turn(3_600_000)
        await trio.sleep(1)
        assert lab.bodies("T") == [b"hello"]


async def test_a_due_time_further_away_than_the_level_is_now(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    clock = WallClock()
    async with open_lab(tmp_path, now_ms=clock) as lab, delivering(lab):
        await lab.put("T", DELAY="5")
        clock.turn(-3_600_000)
        await trio.sleep(1.1)
        assert lab.bodies("T") == [b"hello"]


async def test_what_cannot_be_delivered_is_skipped(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab) as offsets:
        await lab.put(TRANS_HALF_TOPIC, b"half", DELAY="1")
        lost = await lab.put("T", b"lost", DELAY="1")
        await lab.put("T", b"kept", DELAY="1")
        file = lab.store.contents.log.sequence.find(lost.physical_offset)
        assert file is not None
        file.write(bytes(8), lost.physical_offset)
        await trio.sleep(1.1)
        assert lab.bodies("T") == [b"kept"]
        assert lab.bodies(TRANS_HALF_TOPIC) == []
        assert offsets.get(1) == 3


async def test_a_refused_message_is_tried_again_and_keeps_its_place(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab) as offsets:
        for number in range(4):
            await lab.put("T", b"%d" % number, DELAY="1")
        lab.deliver_one_by_one()
        append = lab.store.append
        refused: list[float] = []

        def full(message: MessageToStore) -> PutResult:
            if message.body == b"2" and trio.current_time() < 3:
                refused.append(trio.current_time())
                return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="full")
            return append(message)

        lab.store.append = full  # type: ignore[method-assign]
        await trio.sleep(2)
        assert lab.bodies("T") == [b"0", b"1"]
        assert offsets.get(1) == 2
        pauses = {round(after - before, 3) for before, after in pairwise(refused)}
        assert pauses == {0.1}
        await trio.sleep(2)
        assert lab.bodies("T") == [b"0", b"1", b"2", b"3"]


async def test_a_write_that_fails_does_not_move_the_offset(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab) as offsets:
        await lab.put("T", DELAY="1")
        lab.is_committing = False
        commit = lab.store.commit
        fails = True

        def torn() -> None:
            if fails:
                lab.store.committed.reject(OSError("disk"))
            else:
                commit()

        lab.store.commit = torn  # type: ignore[method-assign]
        await trio.sleep(1.5)
        assert offsets.get(1) == 0
        fails = False
        await trio.sleep(0.5)
        assert offsets.get(1) == 1


async def test_a_queue_that_its_topic_has_lost_is_replaced_by_one_that_is_read(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab, delivering(lab):
        for queue_id in range(4):
            await lab.put("T", b"%d" % queue_id, queue_id, DELAY="1")
        lab.topics.update(TopicConfig(topic_name="T", read_queue_nums=3, write_queue_nums=2))
        await trio.sleep(1.1)
        assert [lab.bodies("T", queue_id) for queue_id in range(4)] == [[b"0"], [b"1", b"3"], [b"2"], []]


async def test_deliveries_are_counted(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_lab(tmp_path) as lab:
        stats = BrokerStats("C", now_ms=lab.now_ms)
        offsets = DelayOffsets()
        delivery = DelayedDelivery(
            lab.configuration,
            lab.store,
            lab.writer,
            offsets,
            lab.topics,
            lab.undeliverable,
            now_ms=lab.now_ms,
            stats=stats,
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(delivery.run)
            await lab.put("T", DELAY="1")
            await trio.sleep(1.1)
            assert stats.put_total == 1
            assert delivery.progress() == {1: (1, 1)}
            nursery.cancel_scope.cancel()


async def test_a_file_of_rocketmq_is_read_and_written_alike() -> None:
    text = '{\n\t"offsetTable":{1:25,2:10,3:2,4:1\n\t}\n}'
    file = MemoryFile(text)
    offsets = DelayOffsets(file)
    offsets.load()
    assert dict(offsets.items()) == {1: 25, 2: 10, 3: 2, 4: 1}
    assert not await offsets.persist()
    offsets.set(18, 1)
    assert await offsets.persist()
    assert file.text == '{\n\t"offsetTable":{1:25,2:10,3:2,4:1,18:1\n\t}\n}'


async def test_a_slave_takes_its_masters_table() -> None:
    file = MemoryFile()
    offsets = DelayOffsets(file)
    offsets.merge(DelayOffsetSerializeWrapper(offset_table={2: 9}))
    assert await offsets.persist()
    assert offsets.wrapper().offset_table == {2: 9}
    offsets.merge(DelayOffsetSerializeWrapper(offset_table={2: 9}))
    assert not await offsets.persist()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        real_message(data)


def test_damage_to_a_delayed_body_is_not_covered_by_a_new_crc() -> None:
    data = encoded(SCHEDULE_TOPIC.encode(), b"body", b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02")
    at = data.index(b"body")
    assert decode_record(_delivered(data)).body == b"body"
    data[at] ^= 1
    with pytest.raises(RecordError, match="CRC"):
        decode_record(_delivered(data))


def _delivered(data: bytearray) -> bytearray:
    """The record of the message that is delivered for this one."""
    delivered = bytearray()
    message = real_message(bytes(data))
    place = Place(physical_offset=0, queue_offset=0, store_timestamp=0)
    encode_into(delivered, b"T", message, place, message.properties.text)
    return delivered


async def test_the_store_of_rocketmq_goes_on(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Continue a store that the real broker left during its deliveries: exactly the pending messages are delivered."""
    expect = golden_expectation("1a_clean")
    root = copy_golden_store("1a_clean", tmp_path)
    done = {int(level): offset for level, offset in expect["delay_offset_table"].items()}
    queues = expect["queues"][SCHEDULE_TOPIC]
    newest_ms = max(message["storeTimestamp"] for message in expect["messages"])
    files = {"mapped_file_size_consume_queue_bytes": 4000, "max_hash_slot_num": 500, "max_index_num": 2000}
    async with open_lab(root, now_ms=WallClock(newest_ms + 1000), store=files) as lab:
        pending = [
            decode_record(data)
            for queue_id, queue in queues.items()
            for offset, physical_offset, *_ in queue["entries"]
            if offset >= done.get(int(queue_id) + 1, 0)
            and (data := lab.store.reading.record_at(physical_offset)) is not None
        ]
        assert pending
        wanted = sorted((m.properties["REAL_TOPIC"], m.properties["UNIQ_KEY"]) for m in pending)
        before = lab.store.reading.max_physical_offset
        file = MemoryFile((root / "config" / "delayOffset.json").read_text())
        async with delivering(lab, file):
            await trio.sleep(2 * 3600 + 10)
        delivered = []
        at = before
        while at < lab.store.reading.max_physical_offset:
            data = lab.store.reading.record_at(at)
            if data is None:
                at = (at // (1 << 20) + 1) << 20
                continue
            message = decode_record(data)
            delivered.append((message.topic, message.properties["UNIQ_KEY"]))
            at += len(data)
        assert sorted(delivered) == wanted
