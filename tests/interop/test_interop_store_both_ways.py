"""One store directory that TrioMQ and the real broker use in turn, after a clean stop and after a kill.

Clients must see the same before and after: every record byte for byte, the bounds of every queue, look-ups by key, id
and time, topics, groups, consumer and delay offsets. Files are small, so that every run crosses many of them.
"""

from __future__ import annotations

import json
import random
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import interop_wire as wire
import pytest
from interop_cluster import Cluster, Daemon
from interop_processes import wait_until

SEND, PULL, QUERY_MESSAGE, QUERY_OFFSET, UPDATE_OFFSET, CREATE_TOPIC = 10, 11, 12, 14, 15, 17
ALL_TOPICS, SEARCH_OFFSET, MAX_OFFSET, MIN_OFFSET, VIEW_BY_ID, END_TRANSACTION = 21, 29, 30, 31, 33, 37
ALL_OFFSETS, ALL_DELAY_OFFSETS, CREATE_GROUP, ALL_GROUPS, SEND_BATCH = 43, 45, 200, 201, 320
COMMIT = 8

QUEUES = {"Alpha": 3, "Beta": 2, "Later": 1}
GROUP = "both_ways_group"
SETTINGS = {
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "97",
    "maxIndexNum": "300",
    "maxMessageSize": "32768",
    "messageDelayLevel": "1s 4s 1h",
    "flushConsumerOffsetInterval": "300",
    "flushDelayOffsetInterval": "300",
    "transactionTimeOut": "3600000",
    "transactionCheckInterval": "3600000",
}


class SharedStore:
    """A NameServer, and one broker at a time on one directory."""

    def __init__(self, peer: Path, directory: Path) -> None:
        self.cluster = Cluster("triomq", directory, SETTINGS)
        mine = self.cluster.broker
        port = self.cluster.broker_address.rpartition(":")[2]
        pairs = [f"{key}={value}" for key, value in self.cluster.settings.items()]
        argv = [str(peer), "broker", str(mine.directory), port, self.cluster.namesrv_address, *pairs]
        self.brokers = {"triomq": mine, "apache": Daemon(argv, mine.directory, self.cluster.broker_address)}
        self.store = self.cluster.store
        self.address = self.cluster.broker_address
        self.running: Daemon | None = None
        self.choose = random.Random(7)
        self.numbers = iter(range(1, 1 << 30))
        self.sent: dict[str, bytes] = {}

    def start(self, kind: str) -> None:
        (self.brokers["triomq"].directory / "output.log").unlink(missing_ok=True)
        self.brokers[kind].start()
        self.running = self.brokers[kind]

    def end(self, how: str) -> None:
        assert self.running is not None
        if how == "killed":
            self.running.kill()
        else:
            assert self.running.stop() in (0, 143), "the broker did not end as asked"
        self.running = None
        assert (self.store / "abort").exists() == (how == "killed")

    def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> wire.Answer:
        answer = wire.ask(self.address, code, fields, body)
        assert answer.code == 0, f"request {code} {fields}: {answer.code} {answer.remark}"
        return answer

    # -- writing -----------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        for topic, queues in QUEUES.items():
            self.cluster.create_topic(topic, queues, numbered=False)
        group = {
            "groupName": GROUP,
            "consumeEnable": True,
            "consumeFromMinEnable": True,
            "retryQueueNums": 2,
            "retryMaxTimes": 7,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
        }
        self.ask(CREATE_GROUP, {}, json.dumps(group).encode())

    def send(self, topic: str, queue_id: int, body: bytes, more: str = "", **changes: Any) -> tuple[str, wire.Answer]:
        key = f"U{next(self.numbers):06d}"
        text = f"UNIQ_KEY\x01{key}\x02KEYS\x01k{key} shared\x02TAGS\x01t{queue_id}{more}"
        fields = {
            "producerGroup": "P",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": queue_id,
            "sysFlag": 0,
            "bornTimestamp": 1_700_000_000_000,
            "flag": 5,
            "properties": text,
            "reconsumeTimes": 0,
            "unitMode": "false",
            "batch": "false",
            **changes,
        }
        answer = self.ask(SEND, fields, body)
        self.sent[key] = body
        return key, answer

    def write(self, count: int, soon_level: int) -> None:
        """Write messages of all kinds: empty to large, batches, a short and a long delay, a transaction that ends and
        one that stays open; then offsets.
        """
        choose = self.choose
        for number in range(count):
            topic = choose.choice(["Alpha", "Beta"])
            size = choose.choice([0, 1, 50, 300, 1500, 4000])
            self.send(topic, choose.randrange(QUEUES[topic]), choose.randbytes(size))
            if number % 25 == 0:
                self.send_batch("Alpha", choose.randrange(3), choose.randrange(1, 6))
        self.send("Later", 0, b"soon", f"\x02DELAY\x01{soon_level}")
        self.send("Later", 0, b"in an hour", "\x02DELAY\x013")
        half = "\x02TRAN_MSG\x01true\x02PGROUP\x01P"
        self.send("Beta", 0, b"open", half, sysFlag=4)
        _, answer = self.send("Beta", 1, b"committed", half, sysFlag=4)
        fields = {
            "producerGroup": "P",
            "tranStateTableOffset": answer.fields["queueOffset"],
            "commitLogOffset": int(answer.fields["msgId"][16:], 16),
            "commitOrRollback": COMMIT,
            "fromTransactionCheck": "false",
            "msgId": "x",
            "transactionId": "x",
        }
        self.ask(END_TRANSACTION, fields)
        for topic in ("Alpha", "Beta"):
            for queue_id in range(QUEUES[topic]):
                offset = choose.randint(0, self.number(MAX_OFFSET, topic, queue_id))
                fields = {"consumerGroup": GROUP, "topic": topic, "queueId": queue_id, "commitOffset": offset}
                self.ask(UPDATE_OFFSET, fields)

    def send_batch(self, topic: str, queue_id: int, count: int) -> None:
        units = b""
        for _ in range(count):
            key = f"U{next(self.numbers):06d}"
            self.sent[key] = body = self.choose.randbytes(self.choose.randrange(200))
            text = f"UNIQ_KEY\x01{key}\x02KEYS\x01k{key}".encode()
            unit = struct.pack(">iiiii", 0, 0, 0, 1, len(body)) + body + struct.pack(">h", len(text)) + text
            units += struct.pack(">i", len(unit)) + unit[4:]
        values = ("P", topic, "TBW102", 4, queue_id, 0, 1_700_000_000_000, 0, "", 0, "false")
        self.ask(SEND_BATCH, {**dict(zip("abcdefghijk", values, strict=True)), "m": "true"}, units)

    # -- reading -----------------------------------------------------------------------------------------------------

    def number(self, code: int, topic: str, queue_id: int, **more: Any) -> int:
        return int(self.ask(code, {"topic": topic, "queueId": queue_id, **more}).fields["offset"])

    def records(self, topic: str, queue_id: int) -> list[bytes]:
        """Return every record of a queue as stored."""
        found: list[bytes] = []
        offset, end = self.number(MIN_OFFSET, topic, queue_id), self.number(MAX_OFFSET, topic, queue_id)
        while offset < end:
            fields = {
                "consumerGroup": GROUP,
                "topic": topic,
                "queueId": queue_id,
                "queueOffset": offset,
                "maxMsgNums": 32,
                "sysFlag": 4,
                "commitOffset": 0,
                "suspendTimeoutMillis": 0,
                "subscription": "*",
                "subVersion": 1,
                "expressionType": "TAG",
            }
            answer = self.ask(PULL, fields)
            found += split_records(answer.body)
            offset = int(answer.fields["nextBeginOffset"])
        return found

    def by_key(self, topic: str, key: str) -> set[bytes]:
        fields = {"topic": topic, "key": key, "maxNum": 64, "beginTimestamp": 0, "endTimestamp": 1 << 62}
        answer = wire.ask(self.address, QUERY_MESSAGE, fields)
        return set(split_records(answer.body)) if answer.code == 0 else set()

    def offsets(self) -> dict[str, Any]:
        table = wire.lenient_json(self.ask(ALL_OFFSETS, {}).body)["offsetTable"]
        return {name: queues for name, queues in table.items() if GROUP in name}

    def picture(self, *, with_times: bool) -> dict[str, Any]:
        """Return everything that clients can see."""
        picture: dict[str, Any] = {"offsets": self.offsets()}
        topics = wire.lenient_json(self.ask(ALL_TOPICS, {}).body)["topicConfigTable"]
        groups = wire.lenient_json(self.ask(ALL_GROUPS, {}).body)["subscriptionGroupTable"]
        picture["topics"] = {name: settings_of(topics[name]) for name in QUEUES}
        picture["group"] = settings_of(groups[GROUP])
        for topic, queues in QUEUES.items():
            if topic == "Later":
                continue
            for queue_id in range(queues):
                records = self.records(topic, queue_id)
                low, high = self.number(MIN_OFFSET, topic, queue_id), self.number(MAX_OFFSET, topic, queue_id)
                assert [queue_offset(data) for data in records] == list(range(low, high))
                picture[f"{topic}/{queue_id}"] = (low, high, records)
                for data in records:
                    assert self.by_key(topic, unique_key(data)) == {data}, unique_key(data)
                for data in records[::7]:
                    assert self.ask(VIEW_BY_ID, {"offset": physical_offset(data)}).body == data
                if with_times and records:
                    times = [store_timestamp(data) for data in records[:: max(1, len(records) // 5)]]
                    found = [self.number(SEARCH_OFFSET, topic, queue_id, timestamp=time) for time in times]
                    stored = {time: {queue_offset(d) for d in records if store_timestamp(d) == time} for time in times}
                    assert all(at in stored[time] for time, at in zip(times, found, strict=True))
        return picture

    def later(self) -> list[bytes]:
        return [body_of(data) for data in self.records("Later", 0)]

    def wait_delivered(self, count: int) -> None:
        wait_until(lambda: len(self.later()) >= count, 20, f"{count} delayed messages are delivered")

    def everything_sent(self, picture: dict[str, Any]) -> None:
        """Check that every acknowledged message is there once, with its body."""
        stored = [data for name, value in picture.items() if "/" in name for data in value[2]]
        keys = [unique_key(data) for data in stored]
        assert len(keys) == len(set(keys))
        bodies = {unique_key(data): body_of(data) for data in stored}
        hidden = {b"soon", b"in an hour", b"open"}
        assert bodies == {key: body for key, body in self.sent.items() if body not in hidden}

    def wait_offsets_on_disk(self) -> None:
        path = self.store / "config" / "consumerOffset.json"

        def written() -> bool:
            text = path.read_text() if path.exists() else ""
            quoted = re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', text) or '{"offsetTable":{}}'
            table = json.loads(quoted)["offsetTable"]
            return {name: queues for name, queues in table.items() if GROUP in name} == self.offsets()

        wait_until(written, 15, "the consumer offsets are on disk")


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "attributes"}


def split_records(data: bytes) -> list[bytes]:
    found = []
    while data:
        size = int.from_bytes(data[:4], "big")
        found.append(data[:size])
        data = data[size:]
    return found


def queue_offset(data: bytes) -> int:
    return int.from_bytes(data[20:28], "big")


def physical_offset(data: bytes) -> int:
    return int.from_bytes(data[28:36], "big")


def store_timestamp(data: bytes) -> int:
    return int.from_bytes(data[56:64], "big")


def body_of(data: bytes) -> bytes:
    return data[88 : 88 + int.from_bytes(data[84:88], "big")]


def unique_key(data: bytes) -> str:
    found = re.search(rb"UNIQ_KEY\x01(U\d+)", data[88 + len(body_of(data)) :])
    assert found is not None
    return found[1].decode()


@pytest.fixture
def shared(peer: Path, tmp_path: Path) -> Iterator[SharedStore]:
    shared = SharedStore(peer, tmp_path)
    shared.cluster.namesrv.start()
    try:
        yield shared
    finally:
        for daemon in (*shared.brokers.values(), shared.cluster.namesrv):
            daemon.kill()


def check_take_over(shared: SharedStore, before: dict[str, Any], how: str) -> None:
    after = shared.picture(with_times=how == "clean")
    assert after.keys() == before.keys()
    for name, value in before.items():
        assert after[name] == value, f"{name} changed"
    shared.everything_sent(after)


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_apache_serves_what_triomq_wrote(shared: SharedStore, how: str) -> None:
    shared.start("triomq")
    shared.prepare()
    shared.write(250, soon_level=2)  # not so soon that TrioMQ had to deliver it
    assert len(list((shared.store / "commitlog").iterdir())) > 3
    assert len(list((shared.store / "index").iterdir())) > 1
    before = shared.picture(with_times=True)
    shared.everything_sent(before)
    if how == "killed":
        shared.wait_offsets_on_disk()
    shared.end(how)
    shared.start("apache")
    check_take_over(shared, before, how)
    shared.wait_delivered(1)
    assert shared.later() == [b"soon"]


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_the_store_goes_back_and_forth(shared: SharedStore, how: str) -> None:
    """Real, TrioMQ, real, TrioMQ: each continues where the other stopped."""
    before: dict[str, Any] = {}
    delivered = 0
    legs = ("apache", "triomq", "apache", "triomq")
    for leg, kind in enumerate(legs):
        shared.start(kind)
        if leg == 0:
            shared.prepare()
        else:
            check_take_over(shared, before, how)
        shared.write(60, soon_level=1)
        shared.wait_delivered(delivered + 1)
        if how == "clean":
            assert len(shared.later()) == delivered + 1, "a delayed message was delivered again"
        delivered = len(shared.later())
        assert set(shared.later()) == {b"soon"}
        before = shared.picture(with_times=False)
        shared.everything_sent(before)
        if how == "killed" and leg + 1 < len(legs):
            shared.wait_offsets_on_disk()  # both write them first 10 s after their start
        if how == "clean":
            delays = wire.lenient_json(shared.ask(ALL_DELAY_OFFSETS, {}).body)["offsetTable"]
            assert delays["1"] == delivered, "each delivered message moves the level's offset by one"
        shared.end(how)
