"""Every recorded frame of the real clients, brokers and NameServer survives decoding and encoding: frame, header and
body.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from golden_data import golden_lines, golden_store
from registrations_read import compressed_registration

from triomq.protocol import signature
from triomq.protocol.bodies import (
    acl,
    broker_stats,
    connection,
    consume_queue,
    consume_stats,
    consumer_filter,
    heartbeat,
    kv_table,
    name_list,
    offset,
    queue_lock,
    route,
    running_info,
    subscription_group,
    topic_config,
)
from triomq.protocol.bodies.base import Body, decode_body
from triomq.protocol.bodies.fastjson import dumps, dumps_standard, loads
from triomq.protocol.codes import LanguageCode, RequestCode
from triomq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from triomq.protocol.errors import HeaderFieldError
from triomq.protocol.frame import FrameDecoder, decode_frame, encode_frame
from triomq.protocol.headers.base import encode_header
from triomq.protocol.headers.registry import REQUEST_HEADERS, RESPONSE_HEADERS

Code = RequestCode

FILES = (
    "frames_acl_json",
    "frames_admin_json",
    "frames_admin_rocketmq",
    "frames_clients_json",
    "frames_clients_rocketmq",
    "frames_master_slave_json",
)

REQUEST_BODIES: dict[int, Any] = {
    Code.HEART_BEAT: heartbeat.HeartbeatData,
    Code.CHECK_CLIENT_CONFIG: heartbeat.CheckClientRequestBody,
    Code.LOCK_BATCH_MQ: queue_lock.LockBatchRequestBody,
    Code.UNLOCK_BATCH_MQ: queue_lock.UnlockBatchRequestBody,
    Code.REGISTER_BROKER: topic_config.RegisterBrokerBody,
    Code.QUERY_DATA_VERSION: topic_config.DataVersion,
    Code.RESET_CONSUMER_CLIENT_OFFSET: offset.ResetOffsetBody,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: subscription_group.SubscriptionGroupConfig,
}
RESPONSE_BODIES: dict[int, Any] = {
    Code.CONSUME_MESSAGE_DIRECTLY: running_info.ConsumeMessageDirectlyResult,
    Code.GET_ALL_CONSUMER_OFFSET: offset.ConsumerOffsetSerializeWrapper,
    Code.GET_ALL_DELAY_OFFSET: offset.DelayOffsetSerializeWrapper,
    Code.GET_ALL_PRODUCER_INFO: connection.ProducerTableInfo,
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: subscription_group.SubscriptionGroupWrapper,
    Code.GET_ALL_TOPIC_CONFIG: topic_config.TopicConfigSerializeWrapper,
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: name_list.TopicList,
    Code.GET_BROKER_CLUSTER_ACL_CONFIG: acl.GetBrokerClusterAclConfigResponseBody,
    Code.GET_BROKER_CLUSTER_INFO: route.ClusterInfo,
    Code.GET_BROKER_CONSUME_STATS: consume_stats.ConsumeStatsList,
    Code.GET_BROKER_RUNTIME_INFO: kv_table.KVTable,
    Code.GET_CONSUMER_CONNECTION_LIST: connection.ConsumerConnection,
    Code.GET_CONSUMER_LIST_BY_GROUP: name_list.GetConsumerListByGroupResponseBody,
    Code.GET_CONSUMER_RUNNING_INFO: running_info.ConsumerRunningInfo,
    Code.GET_CONSUMER_STATUS_FROM_CLIENT: offset.GetConsumerStatusBody,
    Code.GET_CONSUME_STATS: consume_stats.ConsumeStats,
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: name_list.TopicList,
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: name_list.TopicList,
    Code.GET_KVLIST_BY_NAMESPACE: kv_table.KVTable,
    Code.GET_PRODUCER_CONNECTION_LIST: connection.ProducerConnection,
    Code.GET_ROUTEINFO_BY_TOPIC: route.TopicRouteData,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: name_list.TopicList,
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: name_list.TopicList,
    Code.GET_TOPICS_BY_CLUSTER: name_list.TopicList,
    Code.GET_TOPIC_STATS_INFO: consume_stats.TopicStatsTable,
    Code.GET_UNIT_TOPIC_LIST: name_list.TopicList,
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: offset.GetConsumerStatusBody,
    Code.INVOKE_BROKER_TO_RESET_OFFSET: offset.ResetOffsetBody,
    Code.LOCK_BATCH_MQ: queue_lock.LockBatchResponseBody,
    Code.QUERY_CONSUME_QUEUE: consume_queue.QueryConsumeQueueResponseBody,
    Code.QUERY_CONSUME_TIME_SPAN: consume_stats.QueryConsumeTimeSpanBody,
    Code.QUERY_CORRECTION_OFFSET: offset.QueryCorrectionOffsetBody,
    Code.QUERY_DATA_VERSION: topic_config.DataVersion,
    Code.QUERY_TOPIC_CONSUME_BY_WHO: name_list.GroupList,
    Code.REGISTER_BROKER: kv_table.KVTable,
    Code.VIEW_BROKER_STATS_DATA: broker_stats.BrokerStatsData,
}
RAW_BODIES = {
    # Messages, stored records and properties texts are not JSON.
    *(Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2),
    *(Code.CHECK_TRANSACTION_STATE, Code.CONSUME_MESSAGE_DIRECTLY, Code.PUSH_REPLY_MESSAGE_TO_CLIENT),
    *(Code.PULL_MESSAGE, Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID),
    *(Code.UPDATE_BROKER_CONFIG, Code.UPDATE_NAMESRV_CONFIG, Code.GET_BROKER_CONFIG, Code.GET_NAMESRV_CONFIG),
}
# Fields outside the header record: signatures, a hint of the broker, a mark of one query, a time of 5.x tools.
MORE_FIELDS = {"AccessKey", "Signature", "SecurityToken", "MSG_REGION", "TRACE_ON", "_UNIQUE_KEY_QUERY", "ReqT"}


# Java creates these sets with an exact capacity, so their order differs.
SETS_OF_OTHER_SIZES = {queue_lock.LockBatchResponseBody}

# Requests that the recording sent without required fields, intentionally, with the fields that they have.
INCOMPLETE = {
    ("PullMessageRequestHeader", ("topic",)),
    ("GetRouteInfoRequestHeader", ("nottopic",)),
    ("GetMaxOffsetRequestHeader", ()),
}


@dataclass
class Recorded:
    facts: dict[str, Any]
    frame: bytes
    command: RemotingCommand

    @property
    def request_code(self) -> int | None:
        """Return the code of a request, or of the request that a response belongs to; None for an unknown code."""
        name = self.facts["answers"] if self.command.is_response else self.facts["code_name"]
        return RequestCode[name] if name in RequestCode.__members__ else None


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[Recorded]]:
    return {name: list(read_frames(name)) for name in FILES}


def read_frames(name: str) -> Iterator[Recorded]:
    for facts in golden_lines("wire", name):
        frame = bytes.fromhex(facts["frame_hex"])
        yield Recorded(facts, frame, decode_frame(frame))


def each(recorded: dict[str, list[Recorded]]) -> Iterator[Recorded]:
    for frames in recorded.values():
        yield from frames


def test_all_frames_are_there(recorded: dict[str, list[Recorded]]) -> None:
    assert sum(map(len, recorded.values())) >= 3800


def test_frames_read_as_recorded(recorded: dict[str, list[Recorded]]) -> None:
    for item in each(recorded):
        header, command = item.facts["header"], item.command
        assert command.code == header["code"] == item.facts["code"]
        assert command.version == header["version"]
        assert command.opaque == header["opaque"]
        assert command.flag == header["flag"]
        assert command.remark == header.get("remark")
        assert LanguageCode(command.language).name == header["language"]
        if command.serialize_type == JSON:
            assert command.ext_fields == header.get("extFields")
        else:
            # This codec cannot express "no fields" or "an empty text".
            sent = {name: text for name, text in header["extFields"].items() if text}
            assert (command.ext_fields or {}) == sent
        assert ("JSON", "ROCKETMQ")[command.serialize_type] == item.facts["serialize"]
        assert command.is_response == (item.facts["type"] == "response")
        assert command.is_oneway == (item.facts["type"] == "oneway")
        text = item.facts.get("body")
        if text is not None:
            assert command.body == text.encode()
        elif "body_hex" in item.facts:
            assert command.body == bytes.fromhex(item.facts["body_hex"])
        else:
            assert command.body == b""


def test_frames_are_written_byte_for_byte(recorded: dict[str, list[Recorded]]) -> None:
    exact = Counter[bool]()
    for item in each(recorded):
        command = item.command
        _ = command.ext_fields  # this converts the fields to a mapping: nothing of the original text is left
        written = encode_frame(command)
        again = decode_frame(written)
        assert same_meaning(again, command)
        if len(written) == len(item.frame):
            assert written == item.frame
        else:
            # RocketMQ writes the fields of signed sends and pulls twice in the binary codec; a mapping holds them once.
            # Empty texts read as absent.
            assert command.serialize_type == ROCKETMQ
            assert len(written) < len(item.frame)
            assert "Signature" in (command.ext_fields or {}) or "" in item.facts["header"]["extFields"].values()
        exact[written == item.frame] += 1
    assert exact[True] >= 3780
    assert exact[False] <= 25


def same_meaning(one: RemotingCommand, other: RemotingCommand) -> bool:
    def meaning(command: RemotingCommand) -> tuple[Any, ...]:
        fields = (command.code, command.language, command.version, command.opaque, command.flag, command.remark)
        return (*fields, command.ext_fields, command.body)

    return meaning(one) == meaning(other)


@pytest.mark.parametrize("piece_bytes", [1, 7, 64, 4096])
def test_frames_in_pieces(recorded: dict[str, list[Recorded]], piece_bytes: int) -> None:
    frames = recorded["frames_clients_json"][:150] + recorded["frames_clients_rocketmq"][:150]
    stream = b"".join(item.frame for item in frames)
    decoder = FrameDecoder()
    commands: list[RemotingCommand] = []
    for at in range(0, len(stream), piece_bytes):
        commands += decoder.feed(stream[at : at + piece_bytes])
    assert decoder.held_bytes == 0
    assert len(commands) == len(frames)
    assert all(same_meaning(command, item.command) for command, item in zip(commands, frames, strict=True))


def test_headers_through_their_records(recorded: dict[str, list[Recorded]]) -> None:
    seen = Counter[str]()
    for item in each(recorded):
        code = item.request_code
        if code is None:
            assert item.facts["code"] == 9999 or item.facts["answers"] == "9999"
            continue
        command = decode_frame(item.frame)
        cls = RESPONSE_HEADERS[code] if command.is_response else REQUEST_HEADERS[code]
        if cls is None:
            assert set(item.command.ext_fields or {}) <= MORE_FIELDS
            continue
        names = {field.encode_name for field in msgspec.structs.fields(cls)}
        sent = {name: text for name, text in (item.command.ext_fields or {}).items() if name not in MORE_FIELDS}
        if command.is_response and not sent:
            continue  # refused: no header fields
        if (cls.__name__, tuple(sent)) in INCOMPLETE:
            with pytest.raises(HeaderFieldError):
                command.header(cls)
            continue
        assert set(sent) <= names
        written = encode_header(command.header(cls))
        assert {name: written[name] for name in sent} == sent
        # Unsent fields are written only if they have a default.
        defaults = {f.encode_name for f in msgspec.structs.fields(cls) if not f.required and f.default is not None}
        assert set(written) - set(sent) <= defaults
        seen[cls.__name__] += 1
    assert sum(seen.values()) >= 1900
    assert len(seen) >= 60


def body_type(item: Recorded) -> Any:
    """Return the type of the frame's body; None for bodies that are not JSON."""
    code = item.request_code
    assert code is not None
    table = RESPONSE_BODIES if item.command.is_response else REQUEST_BODIES
    kind = table.get(code)
    if kind is None:
        assert code in RAW_BODIES, f"no body type for {item.facts['code_name']} {item.facts.get('answers')}"
    return kind


def test_bodies_through_their_records_byte_for_byte(recorded: dict[str, list[Recorded]]) -> None:
    seen = Counter[str]()
    exact = 0
    for item in each(recorded):
        body = item.command.body
        if not body or "body_inflated_hex" in item.facts:
            continue
        kind = body_type(item)
        if kind is None:
            continue
        standard = kind is route.TopicRouteData and b'"brokerAddrs":{"' in body
        write: Callable[[Any], bytes] = dumps_standard if standard else dumps
        value = decode_body(kind, body)
        written = write(value)
        if kind in SETS_OF_OTHER_SIZES and written != body:
            assert sorted(written) == sorted(body)
            assert decode_body(kind, written) == value
        else:
            assert written == body
            exact += 1
        if not standard:
            assert dumps(loads(body)) == body
        seen[kind.__name__] += 1
    assert sum(seen.values()) >= 1100
    assert exact >= sum(seen.values()) - 5
    assert len(seen) >= 33
    assert seen["TopicRouteData"] >= 500
    assert seen["HeartbeatData"] >= 80


def test_compressed_registrations_are_read_and_written_alike(recorded: dict[str, list[Recorded]]) -> None:
    packed = [item for item in each(recorded) if "body_inflated_hex" in item.facts]
    assert len(packed) >= 2
    for item in packed:
        inflated = bytes.fromhex(item.facts["body_inflated_hex"])
        body = compressed_registration(item.command.body)
        written = body.encode_compressed()
        assert zlib.decompress(written) == inflated
        assert len(body.topic_config_serialize_wrapper.topic_config_table) == 32


def test_recorded_signatures_are_made_again_from_their_secrets(recorded: dict[str, list[Recorded]]) -> None:
    keys = {"RocketMQ": "1234567890", "rocketmq2": "12345678"}
    good = Counter[str]()
    for item in recorded["frames_acl_json"]:
        fields = item.command.ext_fields or {}
        if "Signature" not in fields:
            continue
        access_key = fields["AccessKey"]
        wrong = item.facts["scenario"] in ("acl_send_wrong_secret", "acl_send_unknown_key")
        secret_key = keys.get(access_key, "1234567890")
        assert signature.is_signed_by(fields, item.command.body, secret_key) != wrong
        if not wrong:
            bare = {name: text for name, text in fields.items() if name not in ("AccessKey", "Signature")}
            assert signature.sign_fields(bare, item.command.body, access_key, secret_key) == fields
            good[access_key] += 1
    assert good["RocketMQ"] >= 20
    assert good["rocketmq2"] >= 25


CONFIG_FILES: dict[str, type[Body]] = {
    "topics.json": topic_config.TopicConfigSerializeWrapper,
    "consumerOffset.json": offset.ConsumerOffsetSerializeWrapper,
    "delayOffset.json": offset.DelayOffsetSerializeWrapper,
    "subscriptionGroup.json": subscription_group.SubscriptionGroupWrapper,
    "consumerFilter.json": consumer_filter.ConsumerFilterWrapper,
}


@pytest.mark.parametrize("store", ["1a_clean", "1b_killed", "1d_sql92_ext", "1e_retention"])
def test_config_files_byte_for_byte(store: str) -> None:
    for name, body in CONFIG_FILES.items():
        text = (golden_store(store) / "config" / name).read_bytes()
        assert body.decode(text).encode_pretty() == text
