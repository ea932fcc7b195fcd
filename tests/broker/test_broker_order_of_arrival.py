"""Requests of one connection that arrive together take effect in the order in which they arrive."""

from __future__ import annotations

import json
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import trio
from broker_whole import WholeBroker, whole_broker

from triomq.broker.assembly.processors import processor_list
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.frame import FrameDecoder, encode_frame

UPDATE_TOPIC, DELETE_TOPIC, UPDATE_GROUP, DELETE_GROUP = 17, 215, 200, 207
UPDATE_CONFIG, LOCK, UNLOCK = 25, 41, 42
READING = {
    "consume_stats",
    "broker_consume_stats",
    "time_span",
    "topic_stats",
    "consumer_status",
    "running_info",
    "consume_directly",
}
"""Processors that are async functions: they change nothing in the broker."""


async def ask_together(broker: WholeBroker, *asked: tuple[int, dict[str, Any], bytes]) -> list[RemotingCommand]:
    """Send requests in one write; return the responses in the order of the requests."""
    frames = []
    for number, (code, fields, body) in enumerate(asked):
        texts = {name: str(value) for name, value in fields.items()}
        request = new_request(code, ext_fields=texts or None, body=body)
        request.opaque = number
        frames.append(encode_frame(request))
    host, port = broker.address.rsplit(":", 1)
    decoder = FrameDecoder()
    found: dict[int, RemotingCommand] = {}
    async with await trio.open_tcp_stream(host, int(port)) as stream:
        await stream.send_all(b"".join(frames))
        with trio.fail_after(20):
            while len(found) < len(asked):
                for response in decoder.feed(await stream.receive_some()):
                    assert isinstance(response, RemotingCommand)
                    found[response.opaque] = response
    return [found[number] for number in range(len(asked))]


def locks(*numbers: int) -> bytes:
    queues = [{"brokerName": "b-a", "queueId": number, "topic": "T"} for number in numbers]
    return json.dumps({"clientId": "c1", "consumerGroup": "G", "mqSet": queues}).encode()


def topic(queues: int) -> dict[str, Any]:
    fields = {"topic": "T", "defaultTopic": "TBW102", "perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
    return {**fields, "readQueueNums": queues, "writeQueueNums": queues}


def held_in(response: RemotingCommand) -> list[int]:
    return sorted(entry["queueId"] for entry in json.loads(response.body)["lockOKMQSet"])


async def test_what_changes_something_is_no_async_function(tmp_path: Path) -> None:
    """Its task would begin after what arrived behind the request."""
    async with whole_broker(tmp_path) as broker:
        serving = broker.controller.serving
        assert serving is not None
        rows = processor_list(serving, serving.access_control)
    called = [row.processor if hasattr(row.processor, "__name__") else row.processor.__call__ for row in rows]  # type: ignore[operator]
    assert {function.__name__ for function in called if iscoroutinefunction(function)} == READING


async def test_a_queue_that_is_released_behind_its_lock_is_free(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        table = broker.controller.serving.tables.queue_locks  # type: ignore[union-attr]
        for count in (2, 1000):
            body = locks(*range(count))
            first, _ = await ask_together(broker, (LOCK, {}, body), (UNLOCK, {}, body))
            assert held_in(first) == []
            assert table._lock_count == 0
            await ask_together(broker, (UNLOCK, {}, body), (LOCK, {}, body))
            assert table._lock_count == count
            await ask_together(broker, (UNLOCK, {}, body))


async def test_the_last_change_of_a_topic_or_a_group_counts(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        metadata = broker.controller.serving.tables.metadata  # type: ignore[union-attr]
        for _ in range(4):
            await ask_together(broker, *[(UPDATE_TOPIC, topic(queues), b"") for queues in range(1, 9)])
            config = metadata.topics.get("T")
            assert config is not None and config.write_queue_nums == 8
            groups = [json.dumps({"groupName": "G", "retryMaxTimes": times}).encode() for times in range(8)]
            await ask_together(broker, *[(UPDATE_GROUP, {}, body) for body in groups])
            group = metadata.groups.get("G")
            assert group is not None and group.retry_max_times == 7
            made, deleted = await ask_together(
                broker, (UPDATE_TOPIC, topic(1), b""), (DELETE_TOPIC, {"topic": "T"}, b"")
            )
            assert (made.code, deleted.code) == (0, 0)
            assert metadata.topics.get("T") is None


async def test_the_last_change_of_the_configuration_counts(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, configUpdateWithoutAcl="true") as broker:
        bodies = [f"flushIntervalCommitLog={ms}".encode() for ms in range(500, 532)]
        responses = await ask_together(broker, *[(UPDATE_CONFIG, {}, body) for body in bodies])
        assert {response.code for response in responses} == {0}
        assert broker.controller.serving.tables.configuration.store.flush_interval_commit_log_ms == 531  # type: ignore[union-attr]
