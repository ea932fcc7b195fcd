"""The client without I/O: requests and readers of responses, name servers in turn, send requests; no event loop."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from triomq.client.core import requests
from triomq.client.core.errors import BrokerRefused, NameServersUnreachable
from triomq.client.core.name_server_list import NameServerList
from triomq.client.core.outgoing import Outgoing
from triomq.client.core.results import PullStatus, SendStatus
from triomq.client.core.retry import NOT_REGISTERED, RETRIED_SENDS
from triomq.client.core.send_requests import MAX_QUEUE_FIELDS, SendRequests, send_result
from triomq.protocol.bodies.name_list import GetConsumerListByGroupResponseBody
from triomq.protocol.bodies.queue_lock import LockBatchResponseBody
from triomq.protocol.bodies.route import BrokerData, QueueData, TopicRouteData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.base import Header
from triomq.protocol.headers.offset import GetMaxOffsetResponseHeader, QueryConsumerOffsetResponseHeader
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import encode_record

QUEUE = MessageQueue("T", "a", 3)


def response_to(
    call: requests.Call[object], code: int = 0, header: Header | None = None, body: bytes = b""
) -> RemotingCommand:
    return new_response(call.request, code, "because", header=header, body=body)


def test_a_response_is_read_by_its_call() -> None:
    call = requests.max_offset(QUEUE)
    assert call.request.code == RequestCode.GET_MAX_OFFSET
    assert call.result(response_to(call, header=GetMaxOffsetResponseHeader(offset=7))) == 7


def test_a_refusal_names_the_broker_and_what_was_wanted() -> None:
    call = requests.max_offset(QUEUE)
    with pytest.raises(BrokerRefused, match=r"asking for the end of .* at 10\.0\.0\.1:10911.*because") as caught:
        call.result(response_to(call, ResponseCode.NO_PERMISSION), "10.0.0.1:10911")
    assert caught.value.code == ResponseCode.NO_PERMISSION


def test_a_group_without_an_offset_has_none_and_not_zero() -> None:
    call = requests.query_consumer_offset("G", QUEUE)
    assert call.result(response_to(call, ResponseCode.QUERY_NOT_FOUND)) is None
    assert call.result(response_to(call, header=QueryConsumerOffsetResponseHeader(offset=0))) == 0


def test_the_route_of_an_unknown_topic_is_none() -> None:
    call = requests.topic_route("T")
    assert call.result(response_to(call, ResponseCode.TOPIC_NOT_EXIST)) is None
    assert call.result(response_to(call)) is None
    data = TopicRouteData(
        broker_datas=[BrokerData(broker_name="a", cluster="c", broker_addrs={0: "a:1"})],
        queue_datas=[QueueData(broker_name="a", read_queue_nums=1, write_queue_nums=1, perm=6)],
    )
    assert call.result(response_to(call, body=data.encode_standard())) == data


def test_members_are_sorted_and_a_group_without_any_is_empty() -> None:
    call = requests.consumer_ids("G")
    body = GetConsumerListByGroupResponseBody(consumer_id_list=["b", "a"]).encode()
    assert call.result(response_to(call, body=body)) == ["a", "b"]
    assert call.result(response_to(call, ResponseCode.SYSTEM_ERROR)) == []


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.SUCCESS, PullStatus.FOUND),
        (ResponseCode.PULL_NOT_FOUND, PullStatus.NO_NEW_MSG),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, PullStatus.NO_MATCHED_MSG),
        (ResponseCode.PULL_OFFSET_MOVED, PullStatus.OFFSET_ILLEGAL),
    ],
)
def test_a_pull_brings_its_messages_and_the_bounds_of_the_queue(code: int, status: PullStatus) -> None:
    header = PullMessageRequestHeader(
        consumer_group="G",
        topic="T",
        queue_id=3,
        queue_offset=5,
        max_msg_nums=32,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        broker_name="a",
    )
    call = requests.pull(header)
    bounds = PullMessageResponseHeader(suggest_which_broker_id=1, next_begin_offset=6, min_offset=0, max_offset=9)
    body = encode_record(MessageExt("T", b"m")) if code == ResponseCode.SUCCESS else b""
    result = call.result(response_to(call, code, bounds, body))
    assert (result.status, result.next_begin_offset, result.max_offset) == (status, 6, 9)
    assert [(one.body, one.broker_name) for one in result.messages] == ([(b"m", "a")] if body else [])
    assert not call.is_vip, "the second port of a broker takes no pulls"


def test_locks_are_asked_for_by_client_id() -> None:
    call = requests.lock_queues("G", "me", [QUEUE])
    body = LockBatchResponseBody(lock_ok_mq_set=frozenset({QUEUE})).encode()
    assert call.result(response_to(call, body=body)) == {QUEUE}


def test_a_message_sent_back_names_where_it_is_stored() -> None:
    message = MessageExt("T", b"m")
    message.physical_offset, message.broker_name = 77, "a"
    call = requests.send_back("G", message, delay_level=-1, max_reconsume_times=3)
    header = call.request.header(ConsumerSendMsgBackRequestHeader)
    assert (header.offset, header.delay_level, header.max_reconsume_times, header.broker_name) == (77, -1, 3, "a")
    assert call.timeout_seconds == 5


def outgoing(**changes: object) -> Outgoing:
    fields: dict[str, object] = {"flag": 0, "sys_flag": 0, "properties": "", "message_id": "id", **changes}
    return Outgoing(code=RequestCode.SEND_MESSAGE_V2, topic="T", body=b"m", **fields)  # type: ignore[arg-type]


def test_send_requests_carry_the_queue_and_the_message() -> None:
    made = SendRequests("P", template_topic="TBW102", default_topic_queues=8)
    made.request(outgoing(flag=9, reconsume_times=4, max_reconsume_times=16), QUEUE, 1)
    header = made.request(outgoing(sys_flag=1), QUEUE, 123).header(SendMessageRequestHeaderV2)
    assert (header.producer_group, header.topic, header.queue_id, header.broker_name) == ("P", "T", 3, "a")
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 8)
    assert (header.sys_flag, header.born_timestamp, header.flag) == (1, 123, 0)
    assert header.reconsume_times == 0, "the message before left nothing behind"


def test_the_fields_kept_for_queues_are_bounded() -> None:
    made = SendRequests("P", template_topic="TBW102")
    for number in range(MAX_QUEUE_FIELDS + 10):
        made.request(outgoing(), MessageQueue("T", "a", number), 0)
    assert len(made._queue_fields) <= MAX_QUEUE_FIELDS


def test_a_send_that_is_stored_with_a_doubt_is_a_result_and_any_other_code_a_refusal() -> None:
    request = SendRequests("P", template_topic="TBW102").request(outgoing(), QUEUE, 0)
    header = SendMessageResponseHeader(msg_id="offset id", queue_id=3, queue_offset=12)
    stored = send_result(
        outgoing(), QUEUE, new_response(request, ResponseCode.FLUSH_DISK_TIMEOUT, header=header), topic="T"
    )
    assert (stored.status, stored.queue, stored.queue_offset) == (SendStatus.FLUSH_DISK_TIMEOUT, QUEUE, 12)
    assert (stored.message_id, stored.offset_message_id, stored.trace_on) == ("id", "offset id", True)
    with pytest.raises(BrokerRefused, match="sending to topic 'T'"):
        send_result(outgoing(), QUEUE, new_response(request, ResponseCode.SYSTEM_BUSY), topic="T")


def test_what_is_tried_again_and_what_is_not() -> None:
    assert ResponseCode.SYSTEM_BUSY in RETRIED_SENDS
    assert ResponseCode.MESSAGE_ILLEGAL not in RETRIED_SENDS
    assert ResponseCode.SUBSCRIPTION_NOT_EXIST in NOT_REGISTERED


def test_the_name_server_that_responded_last_comes_first() -> None:
    servers = NameServerList(["a", "b", "c"], start=1)
    assert servers.in_turn() == ["b", "c", "a"]
    servers.responded("c")
    assert servers.in_turn() == ["c", "a", "b"]
    servers.replace(["x", "c"])
    assert servers.chosen == "c"
    servers.replace(["y"])
    assert servers.in_turn() == ["y"]
    assert NameServerList([]).in_turn() == []


def test_the_core_needs_no_event_loop() -> None:
    modules = sorted((Path(requests.__file__).parent).glob("*.py"))
    names = [f"triomq.client.core.{path.stem}" for path in modules if path.stem not in ("__init__", "log")]
    program = f"import sys, {', '.join(names)}\nprint(sorted({{'trio', 'asyncio'}} & set(sys.modules)))"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert printed.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (29, "INVALID_PARAMETER"),
        (213, "BROADCAST_CONSUMPTION"),
        (501, "NOT_LEADER_FOR_QUEUE"),
        (604, "ILLEGAL_OPERATION"),
    ],
)
def test_a_refusal_by_a_broker_of_rocketmq_5_has_the_name_of_its_code(code: int, name: str) -> None:
    assert str(BrokerRefused(code, "because")).startswith(f"the request was refused: {name} ({code}): because")


def test_name_servers_that_do_not_respond_are_listed_with_what_happened_at_each() -> None:
    asked = {"10.0.0.1:9876": "refused", "10.0.0.2:9876": "silent"}
    error = NameServersUnreachable(asked)
    assert error.asked == asked
    assert "10.0.0.1:9876: refused; 10.0.0.2:9876: silent" in str(error)
