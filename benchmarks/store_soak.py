"""Send at a steady rate for half an hour, and check that the broker's memory stays flat while its files come and go.

    bin/dev/soak-store [--minutes 30] [--rate 2000] [--sync] [--json]

A broker process with small files (log, queue and index files roll every few seconds to minutes) and a log limited by
size, so that retention deletes all the time. Every queue is read with long polls, and what arrives must be dense: no
offset missing, none twice, each body as it was sent. Keys and times are looked up in between.
Every ten seconds its anonymous memory (RssAnon) and its descriptors are counted: the median of
the last sixth of the run is compared with that of the first sixth. Exit code 1 when they grew, or a message is missing.
Linux only.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import trio

from benchmarks.watch import MIB, Watch, daemon, free_port, is_flat
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.record import decode_record
from triomq.remoting.client import RemotingClient, open_client

TOPIC = "Steady"
QUEUES = 8
BODY_BYTES = 1024
SAMPLE_SECONDS = 10.0
TICK_SECONDS = 0.05
PART = 1 / 6
KEPT_FAULTS = 10
ALLOWED_GROWTH = 0.05
ALLOWED_GROWTH_BYTES = 2 * MIB


@dataclass
class Report:
    """The results. Memory in bytes: in the first and the last sixth of the run. On a machine that is too busy for the
    rate the broker refuses some messages, and deletes some before they are read; neither is a failure.
    """

    minutes: float
    rate: int
    sent: int = 0
    refused: int = 0
    received: int = 0
    gone: int = 0
    looked_up: int = 0
    fault_count: int = 0
    faults: list[str] = field(default_factory=list)
    watch: Watch = field(default_factory=lambda: Watch(SAMPLE_SECONDS))
    first_bytes: int = 0
    last_bytes: int = 0

    def close(self) -> None:
        self.first_bytes = self.watch.memory_between(0, PART)
        self.last_bytes = self.watch.memory_between(1 - PART, 1)

    @property
    def is_flat(self) -> bool:
        return is_flat(self.first_bytes, self.last_bytes, growth=ALLOWED_GROWTH, growth_bytes=ALLOWED_GROWTH_BYTES)

    @property
    def is_good(self) -> bool:
        return self.is_flat and not self.faults and 0 < self.sent == self.received + self.gone


class Load:
    """The clients: one sender, one reader for each queue, one for look-ups."""

    def __init__(self, report: Report, client: RemotingClient, broker: str) -> None:
        self._report = report
        self._client = client
        self._broker = broker
        self._queue_ends = [0] * QUEUES
        self._is_over = False

    def _fault(self, text: str) -> None:
        self._report.fault_count += 1
        if len(self._report.faults) < KEPT_FAULTS:
            self._report.faults.append(text)

    async def send_all(self) -> None:
        """Send at the rate until the time is up; a late tick sends more."""
        begin = trio.current_time()
        end = begin + self._report.minutes * 60
        number = 0
        while trio.current_time() < end:
            due = int((trio.current_time() - begin) * self._report.rate)
            due = min(due, number + self._report.rate)
            async with trio.open_nursery() as nursery:
                for each in range(number, due):
                    nursery.start_soon(self._send, each)
            number = due
            await trio.sleep(TICK_SECONDS)
        self._is_over = True

    async def _send(self, number: int) -> None:
        text = f"UNIQ_KEY\x01{number:032X}\x02KEYS\x01k{number}\x02TAGS\x01t{number % 7}\x02"
        born = str(time.time_ns() // 1_000_000)
        values = ("steady", TOPIC, "TBW102", str(QUEUES), str(number % QUEUES), "0", born, "0", text)
        answer = await self._client.invoke(
            self._broker,
            new_request(
                RequestCode.SEND_MESSAGE_V2, ext_fields=dict(zip("abcdefghi", values, strict=True)), body=body(number)
            ),
            30,
        )
        if answer.code != ResponseCode.SUCCESS:
            if answer.code == ResponseCode.SYSTEM_BUSY:
                self._report.refused += 1
            else:
                self._fault(f"send {number}: {answer.code} {answer.remark}")
            return
        self._report.sent += 1
        queue_id = number % QUEUES
        offset = int((answer.ext_fields or {})["queueOffset"])
        self._queue_ends[queue_id] = max(self._queue_ends[queue_id], offset + 1)

    async def read_queue(self, queue_id: int) -> None:
        """Read one queue from its beginning, as messages arrive."""
        offset = 0
        seen: set[int] = set()
        while not (self._is_over and offset >= self._queue_ends[queue_id]):
            answer = await self._client.invoke(self._broker, pull(queue_id, offset), 40)
            if answer.code == ResponseCode.SUCCESS:
                offset = self._take(queue_id, offset, answer.body, seen)
            elif answer.code in (ResponseCode.PULL_OFFSET_MOVED, ResponseCode.PULL_RETRY_IMMEDIATELY):
                after = int((answer.ext_fields or {})["nextBeginOffset"])
                self._report.gone += max(0, after - offset)
                offset = max(after, offset)
            elif answer.code not in (ResponseCode.PULL_NOT_FOUND, ResponseCode.SYSTEM_BUSY):
                self._fault(f"pull {queue_id}@{offset}: {answer.code} {answer.remark}")
                return

    def _take(self, queue_id: int, offset: int, data: bytes, seen: set[int]) -> int:
        at = 0
        while at < len(data):
            size = int.from_bytes(data[at : at + 4], "big")
            stored = decode_record(data[at : at + size])
            number = int(stored.uniq_key or "-1", 16)
            if stored.queue_offset > offset and at == 0:  # retention was faster
                self._report.gone += stored.queue_offset - offset
                offset = stored.queue_offset
            if stored.queue_offset != offset or stored.body != body(number) or number in seen:
                self._fault(f"queue {queue_id} at {offset}: {stored.queue_offset} is message {number}")
            # a message may be sent after its neighbours of one tick, never after those of the previous tick
            seen.add(number)
            if len(seen) > 4 * self._report.rate:
                seen.difference_update(sorted(seen)[: len(seen) // 2])
            self._report.received += 1
            offset += 1
            at += size
        return offset

    async def look_up(self) -> None:
        """Look up keys and times periodically."""
        while not self._is_over:
            await trio.sleep(0.5)
            number = self._report.received - 1
            if number < 0:
                continue
            fields = {
                "topic": TOPIC,
                "key": f"k{max(0, number - 100)}",
                "maxNum": "32",
                "beginTimestamp": "0",
                "endTimestamp": str(1 << 60),
            }
            await self._ask(RequestCode.QUERY_MESSAGE, fields)
            fields = {"topic": TOPIC, "queueId": "0", "timestamp": str(time.time_ns() // 1_000_000 - 5000)}
            await self._ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)

    async def _ask(self, code: int, fields: dict[str, str]) -> None:
        answer = await self._client.invoke(self._broker, new_request(code, ext_fields=fields), 30)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            self._fault(f"look-up {code}: {answer.code} {answer.remark}")
        self._report.looked_up += 1


def body(number: int) -> bytes:
    return (b"%020d" % number) * (BODY_BYTES // 20)


def pull(queue_id: int, offset: int) -> RemotingCommand:
    fields = {
        "consumerGroup": "steady",
        "topic": TOPIC,
        "queueId": str(queue_id),
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": "6",
        "commitOffset": "0",
        "suspendTimeoutMillis": "1000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    return new_request(RequestCode.PULL_MESSAGE, ext_fields=fields)


async def run(report: Report, broker: str, pid: int) -> None:
    async with open_client() as client, trio.open_nursery() as watching:
        watching.start_soon(report.watch.run, pid)
        load = Load(report, client, broker)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.send_all)
            nursery.start_soon(load.look_up)
            await trio.sleep(1)  # the first message creates the topic
            for queue_id in range(QUEUES):
                nursery.start_soon(load.read_queue, queue_id)
        watching.cancel_scope.cancel()
    report.close()


def soak(minutes: float, rate: int, *, is_sync: bool = False) -> Report:
    """Run the broker and the load."""
    report = Report(minutes, rate)
    with tempfile.TemporaryDirectory(prefix="triomq-store-soak-") as name:
        port = free_port()
        broker = {
            "listenPort": str(port),
            "brokerIP1": "127.0.0.1",
            "storePathRootDir": f"{name}/store",
            "mappedFileSizeCommitLog": str(16 * MIB),
            "mappedFileSizeConsumeQueue": "60000",
            "maxHashSlotNum": "50000",
            "maxIndexNum": "200000",
            "maxStoreBytes": str(128 * MIB),
            "flushDiskType": "SYNC_FLUSH" if is_sync else "ASYNC_FLUSH",
        }
        with daemon("broker", broker, Path(name)) as pid:
            trio.run(run, report, f"127.0.0.1:{port}", pid)
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--rate", type=int, default=2000, help="messages a second")
    parser.add_argument("--sync", action="store_true", help="SYNC_FLUSH")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    if not SAMPLE_SECONDS / 60 < given.minutes <= 24 * 60 or not 0 < given.rate <= 100_000:
        parser.error("--minutes from a quarter to a day, --rate up to 100000")
    report = soak(given.minutes, given.rate, is_sync=given.sync)
    if given.json:
        print(json.dumps({**asdict(report), "is_flat": report.is_flat, "is_good": report.is_good}))
        return 0 if report.is_good else 1
    print(
        f"{report.sent} messages in ({report.refused} more refused), {report.received} out, {report.gone} gone before "
        f"they were read; {report.looked_up} look-ups"
    )
    print(
        f"the broker's own memory: {report.first_bytes / MIB:.1f} MiB in the first sixth, "
        f"{report.last_bytes / MIB:.1f} MiB in the last, at most {max(report.watch.memory_bytes) / MIB:.1f} MiB: "
        + ("flat" if report.is_flat else "NOT FLAT")
    )
    print(f"descriptors: {report.watch.descriptors[0]} at first, {report.watch.descriptors[-1]} at the end")
    for fault in report.faults:
        print(f"    {fault}")
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
