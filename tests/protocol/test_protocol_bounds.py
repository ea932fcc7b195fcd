"""The bounds that records declare are the bounds that the decoders enforce, in each codec."""

from __future__ import annotations

import json
from typing import Annotated

import msgspec
import pytest
from declared_values import body_text, bounded, header_fields, leaf, name_of
from registrations_read import compressed_registration

from docs.generators.declared_bounds import Declared, declared
from triomq.protocol.bodies.base import MAX_LENIENT_BYTES, Body
from triomq.protocol.bodies.heartbeat import HeartbeatData
from triomq.protocol.bodies.topic_config import DataVersion, RegisterBrokerBody, TopicConfig
from triomq.protocol.bounds import Bound, TopicName
from triomq.protocol.command import JSON, MSGPACK, ROCKETMQ, RemotingCommand
from triomq.protocol.errors import BodyError, HeaderFieldError
from triomq.protocol.frame import decode_frame, encode_frame
from triomq.protocol.headers.base import Header

HEADERS = {name_of(one): one for _, one in bounded(is_header=True)}
BODIES = {name_of(one): one for _, one in bounded(is_header=False)}


@pytest.mark.parametrize("codec", [JSON, ROCKETMQ, MSGPACK])
@pytest.mark.parametrize("name", HEADERS)
def test_one_beyond_a_header_field_s_bound_is_refused_by_name(name: str, codec: int) -> None:
    one = HEADERS[name]
    assert issubclass(one.record, Header)

    def received(fields: dict[str, str]) -> RemotingCommand:
        return decode_frame(encode_frame(RemotingCommand(1, serialize_type=codec, ext_fields=fields)))

    taken = received(header_fields(one, 0)).header(one.record)
    attribute = {field.encode_name: field.name for field in msgspec.structs.fields(one.record)}[one.path]
    assert getattr(taken, attribute) == leaf(one, 0)
    with pytest.raises(HeaderFieldError, match=f"<{one.path}> of {one.record.__name__}"):
        received(header_fields(one, 1)).header(one.record)


@pytest.mark.parametrize("name", BODIES)
def test_one_beyond_a_body_field_s_bound_is_refused_by_name(name: str) -> None:
    one = BODIES[name]
    assert issubclass(one.record, Body)
    one.record.decode_request(body_text(one, 0))
    with pytest.raises(BodyError, match=r"(Expected `\w+` (of length )?<= |longest|out of bounds|longer)") as error:
        one.record.decode_request(body_text(one, 1))
    last = one.path.replace("[]", "").replace("{}", "").rpartition(".")[2]
    assert last in str(error.value) or "key" in str(error.value)


def test_every_kind_of_bound_is_among_them() -> None:
    assert len(HEADERS) > 150
    assert {one.kind for one in HEADERS.values()} == {str, int}
    assert {str, int, frozenset} <= {one.kind for one in BODIES.values()}


class Nested(Body, frozen=True, kw_only=True):
    names: Annotated[list[TopicName], Bound("names")] = []
    plain: dict[str, int] = {}


def test_what_is_not_declared_is_found() -> None:
    found: dict[str, Declared] = {one.path: one for one in declared(Nested)}
    assert list(found) == ["names", "names[]", "plain", "plain{}", "plain[]"]
    assert [path for path, one in found.items() if one.bound is None] == ["plain", "plain{}", "plain[]"]


def test_a_text_that_is_not_standard_json_is_read_up_to_a_length() -> None:
    members = b"clientID:'c',consumerDataSet:[],x:'"
    text = b"{" + members + b"x" * (MAX_LENIENT_BYTES - len(members) - 3) + b"'}"
    assert len(text) == MAX_LENIENT_BYTES
    assert HeartbeatData.decode_request(text).client_id == "c"
    with pytest.raises(BodyError, match=f"{MAX_LENIENT_BYTES} are allowed"):
        HeartbeatData.decode_request(text + b" ")
    assert HeartbeatData.decode(text + b" ").client_id == "c"  # a file of one's own may be as long as it is


def test_standard_json_may_be_longer() -> None:
    topics = {f"T{number}": TopicConfig(topic_name=f"T{number}") for number in range(2000)}
    wrapper = RegisterBrokerBody().topic_config_serialize_wrapper
    wrapper = msgspec.structs.replace(wrapper, topic_config_table=topics)
    body = RegisterBrokerBody(topic_config_serialize_wrapper=wrapper)
    assert len(body.encode()) > MAX_LENIENT_BYTES
    assert RegisterBrokerBody.decode_request(body.encode()) == body


@pytest.mark.parametrize(
    "line",
    [
        "n" * 1025 + " 4 4 6 SINGLE_TAG",
        f"T {2**31} 4 6 SINGLE_TAG",
        f"T 4 {10**30} 6 SINGLE_TAG",
        "T 4 4 6 " + "f" * 1025,
    ],
)
def test_a_compressed_topic_has_the_bounds_of_a_plain_one(line: str) -> None:
    """A number that Java has no type for would make every response with that topic fail."""
    with pytest.raises(BodyError, match="out of bounds"):
        TopicConfig.decode_line(line)
    assert TopicConfig.decode_line("n" * 1024 + f" {2**31 - 1} 4 6 SINGLE_TAG").read_queue_nums == 2**31 - 1


def test_a_compressed_filter_server_has_the_bounds_of_a_plain_one() -> None:
    body = RegisterBrokerBody(filter_server_list=["f" * 1025])
    with pytest.raises(BodyError, match="1024"):
        compressed_registration(body.encode_compressed())


def test_a_body_that_is_too_long_for_its_field_is_read_once() -> None:
    """Reading it again in another dialect would take a hundred times as long, for the same outcome."""
    with pytest.raises(BodyError, match="of length <= 1024"):
        HeartbeatData.decode(json.dumps({"clientID": "c" * 1025}).encode())
    with pytest.raises(BodyError, match="<= 9223372036854775807"):
        DataVersion.decode_request(b'{"counter":%d}' % 2**63)
