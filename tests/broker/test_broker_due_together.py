"""Delayed messages that are due together go to the log as each of them would by itself."""

from __future__ import annotations

import errno
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import trio
import trio.testing
from broker_fakes import MemoryFile
from broker_store_lab import BORN_HOST, START_MS, STORE_HOST, Lab, WallClock, inline, open_lab
from hypothesis import example, given, settings
from hypothesis import strategies as st

from triomq.broker.delay import DelayedDelivery
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.protocol import stored_properties
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from triomq.store.results import MessageToStore


class Delayed:
    """A message of delay level 1 as it is stored."""

    def __init__(
        self,
        properties: bytes,
        body: bytes = b"body",
        *,
        sys_flag: int = 0,
        born_host: bytes = BORN_HOST.packed,
        store_host: bytes = STORE_HOST.packed,
        body_crc: int = -1,
        delay_ms: int = 1000,
    ) -> None:
        self.properties = properties
        self.body = body
        self.sys_flag = sys_flag
        self.born_host = born_host
        self.store_host = store_host
        self.body_crc = body_crc
        self.delay_ms = delay_ms

    def __repr__(self) -> str:
        return repr(self.properties)

    def to_store(self) -> MessageToStore:
        return MessageToStore(
            SCHEDULE_TOPIC,
            0,
            self.body,
            stored_properties.read(self.properties),
            born_timestamp=START_MS - 5,
            born_host=self.born_host,
            store_host=self.store_host,
            flag=7,
            sys_flag=self.sys_flag,
            reconsume_times=3,
            prepared_transaction_offset=9,
            body_crc=self.body_crc,
            deliver_after_ms=self.delay_ms,
        )


def to(topic: str, queue_id: int | str = 0, more: str = "") -> Delayed:
    return Delayed(f"{more}REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}".encode())


def log_of(lab: Lab) -> bytes:
    reading = lab.store.reading
    data = bytearray()
    while len(data) < reading.max_physical_offset:
        data += reading.read_log(len(data), 1 << 20)
    return bytes(data)


def queues_of(lab: Lab) -> dict[tuple[str, int], list[tuple[int, int, int]]]:
    reading = lab.store.reading
    return {
        (topic, queue_id): reading.queue_entries(topic, queue_id, 0, 1000)
        for topic, ids in reading.queues().items()
        for queue_id in ids
    }


def index_of(lab: Lab) -> list[bytes]:
    lab.store.contents.index.write_out()
    return [Path(file.path).read_bytes() for file in lab.store.contents.index.files]


async def delivered(lab: Lab, delayed: list[Delayed]) -> tuple[object, ...]:
    """Deliver these messages. Return all that can be seen of that."""
    stats = BrokerStats("C", now_ms=lab.now_ms)
    offsets = DelayOffsets(MemoryFile(), offload=inline)
    delivery = DelayedDelivery(
        *(lab.configuration, lab.store, lab.writer, offsets, lab.topics, lab.undeliverable),
        now_ms=lab.now_ms,
        stats=stats,
    )
    lab.topics.update(TopicConfig(topic_name="Less", read_queue_nums=3, write_queue_nums=2))
    for each in delayed:
        lab.store.append(each.to_store())
        lab.store.commit()
    await trio.sleep(1.001)
    while True:
        before = offsets.get(1)
        assert delivery.deliver(1)
        if offsets.get(1) == before:
            break
    counted = stats.put_total, stats.stored_total, stats.stored_size_total_bytes
    return log_of(lab), queues_of(lab), index_of(lab), offsets.get(1), counted, lab.undeliverable.counts


async def delivered_both_ways(delayed: list[Delayed]) -> tuple[object, ...]:
    """Deliver the messages together and one by one, and compare."""
    found: list[tuple[object, ...]] = []
    for one_by_one in (False, True):
        with TemporaryDirectory() as directory:
            async with open_lab(Path(directory), now_ms=WallClock(START_MS)) as lab:
                if one_by_one:
                    lab.deliver_one_by_one()
                found.append(await delivered(lab, delayed))
    assert found[0] == found[1]
    return found[0]


texts = st.sampled_from(["KEYS\x01a b", "KEYS\x01c", "TAGS\x01t", "UNIQ_KEY\x01u", "k\x01v", "DELAY\x011", "u\x01ü"])
destinations = st.sampled_from(
    [
        *(("T", "0"), ("T", "0"), ("T", "0"), ("T", "1"), ("Less", "5"), ("Other", "0"), ("Less", "05")),
        *(("", "0"), ("a/b", "0"), (TRANS_HALF_TOPIC, "0"), ("x" * 128, "0"), ("T\x010", "0"), ("Tü", "0")),
        *(("T", ""), ("T", "-1"), ("T", "0\x015"), ("T", "2147483648"), ("T", "99999999999"), (SCHEDULE_TOPIC, "1")),
    ]
)


@st.composite
def some_delayed(draw: st.DrawFn) -> Delayed:
    topic, queue_id = draw(destinations)
    pairs = draw(st.lists(texts, max_size=4))
    pairs.insert(draw(st.integers(0, len(pairs))), f"REAL_TOPIC\x01{topic}")
    pairs.insert(draw(st.integers(0, len(pairs))), f"REAL_QID\x01{queue_id}")
    end = draw(st.sampled_from(["", "", "", "\x02", "\x02broken", "\x02\x01v"]))
    return Delayed(
        "\x02".join(pairs).encode() + end.encode(),
        draw(st.sampled_from([b"", b"body", b"b" * 9000])),
        sys_flag=draw(st.sampled_from([0, 0, 0, 1, 8])),
        born_host=draw(st.sampled_from([BORN_HOST.packed, bytes(range(20))])),
        store_host=draw(st.sampled_from([STORE_HOST.packed, bytes(range(20))])),
        body_crc=draw(st.sampled_from([-1, -1, 5])),
        delay_ms=draw(st.sampled_from([1000, 1000, 1000, 1001])),
    )


@settings(max_examples=40)
@given(st.lists(some_delayed(), max_size=70))
@example([to("T")] * 300)
@example([Delayed(b"REAL_TOPIC\x01T\x02REAL_QID\x010", bytes(9000))] * 130)
@example([to("T", 0, "".join(f"n{number}\x01v\x02" for number in range(count))) for count in (29, 30, 31)])
def test_messages_are_delivered_as_one_by_one(delayed: list[Delayed]) -> None:
    """Also over the ends of log files (1 MiB), and where some are never delivered."""
    trio.run(delivered_both_ways, delayed, clock=trio.testing.MockClock(autojump_threshold=0))


def count_puts(lab: Lab, into: list[int]) -> None:
    """Append to `into` how many results the messages of each commit have from now on."""
    commit = lab.store.commit

    def counted() -> None:
        into.append(len({id(entry.result) for entry in lab.store.committing.pending}))
        commit()

    lab.store.commit = counted  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("delayed", "puts"),
    [
        ([to("T", number % 2) for number in range(32)], 1),  # of both queues
        ([to("T")] * 3 + [to("Tü")] + [to("T")] * 3, 3),
        ([to("Less", number) for number in (1, 3, 1, 3)], 1),  # both are queue 1
        ([Delayed(to("T").properties, sys_flag=1)] * 3, 1),
        ([Delayed(to("T").properties, born_host=bytes(range(20)))] * 3, 1),
    ],
)
async def test_usual_messages_of_a_block_are_one_put(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, delayed: list[Delayed], puts: int
) -> None:
    async with open_lab(tmp_path) as lab:
        for each in delayed:
            lab.store.append(each.to_store())
        lab.store.commit()
        await trio.sleep(1.001)
        offsets = DelayOffsets(MemoryFile(), offload=inline)
        delivery = DelayedDelivery(
            lab.configuration, lab.store, lab.writer, offsets, lab.topics, lab.undeliverable, now_ms=lab.now_ms
        )
        lab.topics.update(TopicConfig(topic_name="Less", read_queue_nums=3, write_queue_nums=2))
        counts: list[int] = []
        count_puts(lab, counts)
        lab.is_committing = False  # one put does not end the turn here
        assert delivery.deliver(1)
        assert counts == [puts]
        assert offsets.get(1) == len(delayed)


async def test_a_block_that_the_disk_refuses_is_delivered_once(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lab(tmp_path) as lab:
        for number in range(5):
            lab.store.append(Delayed(to("T", number % 2).properties, b"%d" % number).to_store())
        lab.store.commit()
        await trio.sleep(1.001)
        offsets = DelayOffsets(MemoryFile(), offload=inline)
        delivery = DelayedDelivery(
            lab.configuration, lab.store, lab.writer, offsets, lab.topics, lab.undeliverable, now_ms=lab.now_ms
        )
        end = lab.store.reading.max_physical_offset

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "no space")

        with monkeypatch.context() as patch:
            patch.setattr(lab.store.files, "pwrite", full)
            assert not delivery.deliver(1)
        assert offsets.get(1) == 0
        assert lab.store.reading.max_physical_offset == end
        assert delivery.deliver(1)
        assert offsets.get(1) == 5
        assert [lab.bodies("T", queue_id) for queue_id in range(2)] == [[b"0", b"2", b"4"], [b"1", b"3"]]
        found = [[message.queue_offset for message in lab.messages("T", queue_id)] for queue_id in range(2)]
        assert found == [[0, 1, 2], [0, 1]]


async def test_a_store_that_refuses_puts_delivers_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_lab(tmp_path) as lab:
        lab.store.append(to("T").to_store())
        lab.store.commit()
        await trio.sleep(1.001)
        offsets = DelayOffsets(MemoryFile(), offload=inline)
        delivery = DelayedDelivery(
            lab.configuration, lab.store, lab.writer, offsets, lab.topics, lab.undeliverable, now_ms=lab.now_ms
        )
        lab.store.refusals.set("role", "the store belongs to a slave")
        assert not delivery.deliver(1)
        assert lab.bodies("T") == []
        lab.store.refusals.set("role", None)
        assert delivery.deliver(1)
        assert lab.bodies("T") == [b"body"]
