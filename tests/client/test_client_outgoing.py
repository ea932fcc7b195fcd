"""From a message to a request: checks, ids, compression, batches, namespaces; and the settings of a client."""

from __future__ import annotations

import re
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.client.core.client_id import make_client_id
from triomq.client.core.config import ClientConfig, Credentials
from triomq.client.core.errors import ConfigurationError, InvalidMessage
from triomq.client.core.group_names import check_group
from triomq.client.core.namespace import Namespace
from triomq.client.core.outgoing import MessagePreparer, SendRules, unit_bytes
from triomq.protocol import properties, sys_flag
from triomq.protocol.codes import RequestCode
from triomq.protocol.message import Message
from triomq.protocol.record import split_batch


def preparer(rules: SendRules | None = None, namespace: str | None = None) -> MessagePreparer:
    return MessagePreparer(rules or SendRules(), Namespace(namespace), b"\x0a\0\0\1", lambda: 1_700_000_000_000)


def test_a_message_gets_an_id_and_stays_as_it_is() -> None:
    message = Message("T", b"body", tags="a", keys=["k1", "k2"])
    before = dict(message.properties)
    one, two = (preparer().single(message) for _ in range(2))
    assert message.properties == before
    assert one.code == RequestCode.SEND_MESSAGE_V2
    read = properties.parse(one.properties)
    assert read.pop("UNIQ_KEY") == one.message_id
    assert read == {"TAGS": "a", "KEYS": "k1 k2"}
    assert len(one.message_id) == 32
    assert one.message_id != two.message_id


@pytest.mark.parametrize("level", [1, 18, 0])
def test_a_delay_level_that_brokers_have_is_sent(level: int) -> None:
    message = Message("T", b"b")
    message.delay_level = level
    assert properties.parse(preparer().single(message).properties)["DELAY"] == str(level)


@pytest.mark.parametrize("level", [99, 19, -1])
def test_a_delay_level_that_no_broker_has_is_refused(level: int) -> None:
    message = Message("T", b"b")
    message.delay_level = level
    with pytest.raises(InvalidMessage, match=f"delay_level is {level}, not 0 to 18"):
        preparer().single(message)


def test_brokers_may_have_more_delay_levels() -> None:
    message = Message("T", b"b")
    message.delay_level = 20
    assert preparer(SendRules(max_delay_level=20)).single(message).message_id


@pytest.mark.parametrize("bad", [{"a": 3}, {"a": b"x"}, {"a": None}, {4: "x"}])
def test_properties_that_are_not_strings_are_refused_by_name(bad: dict[str, str]) -> None:
    name, value = next(iter(bad.items()))
    expected = f"property {name!r} is {value!r}; names and values must be strings"
    with pytest.raises(InvalidMessage, match=re.escape(expected)):
        preparer().single(Message("T", b"b", properties=bad))
    if isinstance(name, str):
        with pytest.raises(InvalidMessage, match=re.escape(expected)):
            list(preparer().batches([Message("T", b"b", properties=bad)], 1000))


@pytest.mark.parametrize("group", ["my group", "", "  ", "grüppe", "a/b", "x" * 256])
@pytest.mark.parametrize("kind", ["producer", "consumer"])
def test_group_names_that_no_broker_takes_are_refused(group: str, kind: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{kind} group"):
        check_group(group, kind)


def test_group_names_as_brokers_take_them() -> None:
    for group in ("orders", "A-b_1", "INSTANCE%orders", "x" * 255):
        check_group(group, "consumer")
    with pytest.raises(ConfigurationError, match="a name of its own"):
        check_group("DEFAULT_CONSUMER", "consumer")


def test_an_id_of_the_application_is_kept() -> None:
    assert preparer().single(Message("T", b"b", properties={"UNIQ_KEY": "mine"})).message_id == "mine"


def test_large_bodies_are_compressed() -> None:
    body = b"0123456789" * 1000
    packed = preparer().single(Message("T", body))
    assert zlib.decompress(packed.body) == body
    assert packed.sys_flag == sys_flag.COMPRESSED | sys_flag.COMPRESSION_ZLIB
    assert preparer().single(Message("T", body[:4095])).sys_flag == 0
    assert preparer(SendRules(compress_over_bytes=0)).single(Message("T", body)).body == body


def test_retry_topics_carry_their_counts_in_the_header() -> None:
    message = Message("%RETRY%g", b"b", properties={"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "5"})
    outgoing = preparer().single(message)
    assert (outgoing.reconsume_times, outgoing.max_reconsume_times) == (3, 5)
    assert "RECONSUME_TIME" not in outgoing.properties


def test_half_messages_and_replies_are_marked() -> None:
    half = preparer().single(Message("T", b"b"), {"TRAN_MSG": "true", "PGROUP": "g"})
    assert half.sys_flag == sys_flag.TRANSACTION_PREPARED
    reply = preparer().single(Message("c_REPLY_TOPIC", b"b", properties={"MSG_TYPE": "reply"}))
    assert reply.code == RequestCode.SEND_REPLY_MESSAGE_V2


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (Message("T", b""), "empty"),
        (Message("T", "text"), "encode"),  # type: ignore[arg-type]
        (Message("T", b"x" * 101), "max_message_bytes"),
        (Message("", b"b"), "blank"),
        (Message("a b", b"b"), "illegal"),
        (Message("x" * 128, b"b"), "longer"),
        (Message("SCHEDULE_TOPIC_XXXX", b"b"), "forbidden"),
        (Message("T", b"b", properties={"a": "x\x02y"}), "separator"),
        (Message("T", b"b", properties={"a": "x" * 40000}), "properties have"),
    ],
)
def test_what_no_broker_takes_is_refused_here(message: Message, words: str) -> None:
    with pytest.raises(InvalidMessage, match=words):
        preparer(SendRules(max_message_bytes=100)).single(message)


@pytest.mark.parametrize(
    "second",
    [
        Message("U", b"b"),
        Message("T", b"b", properties={"DELAY": "3"}),
        Message("T", b"b", properties={"WAIT": "false"}),
        Message("T", b""),
    ],
)
def test_batches_refuse_what_they_cannot_hold(second: Message) -> None:
    with pytest.raises(InvalidMessage):
        preparer().batches([Message("T", b"b"), second], 1000)


@given(st.lists(st.binary(min_size=1, max_size=400), max_size=30), st.integers(100, 1500))
def test_batches_keep_order_and_size(bodies: list[bytes], max_bytes: int) -> None:
    maker = preparer()
    messages = [Message("T", body, tags="x") for body in bodies]
    runs = list(maker.batches(messages, max_bytes))
    assert [message for run in runs for message in run] == messages
    for run in runs:
        outgoing = maker.batch(run)
        assert outgoing.is_batch
        assert len(run) == 1 or len(outgoing.body) <= max_bytes
        assert [unit.body for unit in split_batch(outgoing.body)] == [message.body for message in run]
        assert outgoing.message_id.count(",") == len(run) - 1
        assert all(len(maker.batch([message]).body) <= unit_bytes(message) for message in run)


@given(st.text("abcXYZ_-09", min_size=1, max_size=12), st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_namespaces_come_off_again(name: str, kind: str) -> None:
    namespace = Namespace("INST_1")
    wrapped = namespace.wrap(kind + name)
    assert wrapped == f"{kind}INST_1%{name}"
    assert namespace.wrap(wrapped) == wrapped
    assert namespace.unwrap(wrapped) == kind + name
    assert Namespace().wrap(kind + name) == kind + name


def test_system_names_have_no_namespace() -> None:
    for name in ("TBW102", "RMQ_SYS_TRACE_TOPIC", "TOOLS_CONSUMER", "CLIENT_INNER_PRODUCER", "rmq_sys_x"):
        assert Namespace("N").wrap(name) == name


def test_a_namespace_is_on_the_wire_only() -> None:
    outgoing = preparer(namespace="INST").single(Message("T", b"b"))
    assert outgoing.topic == "INST%T"
    assert properties.parse(outgoing.properties)["INSTANCE_ID"] == "INST"


def test_client_ids_differ_unless_the_instance_is_named() -> None:
    assert make_client_id("1.2.3.4", "DEFAULT") != make_client_id("1.2.3.4", "DEFAULT")
    assert make_client_id("1.2.3.4", "me") == "1.2.3.4@me"
    assert make_client_id("1.2.3.4", "me", "unit") == "1.2.3.4@me@unit"


def test_name_servers_are_read_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ClientConfig(name_server="a:1;b:2, c:3").name_servers == ("a:1", "b:2", "c:3")
    assert ClientConfig(name_server=["http://a:1/", "[::1]:2"]).name_servers == ("a:1", "[::1]:2")
    monkeypatch.setenv("NAMESRV_ADDR", "env:9876")
    assert ClientConfig().name_servers == ("env:9876",)
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(ConfigurationError, match="NAMESRV_ADDR"):
        ClientConfig()
    published = ClientConfig(name_server="http://config:8080/rocketmq/nsaddr")
    assert (published.address_server, published.name_servers) == ("http://config:8080/rocketmq/nsaddr", ())
    assert ClientConfig(name_server="http://a:1/").address_server is None
    for bad in ("host", "host:", ":1", "host:99999", "host:x"):
        with pytest.raises(ConfigurationError, match="host:port"):
            ClientConfig(name_server=bad)


def test_secrets_do_not_show() -> None:
    config = ClientConfig(name_server="a:1", credentials=Credentials("key", "topsecret", "token"))
    assert "topsecret" not in repr(config)
    assert "token'" not in repr(config)
