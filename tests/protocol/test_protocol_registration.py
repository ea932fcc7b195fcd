"""Registrations that are read in parts: what comes out is what a reader of the whole returns, or an error."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from registrations_read import compressed_registration, read_all

from triomq.protocol.bodies.registration import (
    MAX_INFLATED_BYTES,
    MAX_LENIENT_REGISTRATION_BYTES,
    MAX_PIECE_BYTES,
    MAX_REGISTERED_TOPICS,
    PART_BYTES,
    OldRegistration,
    Registration,
    RestOfRegistration,
    TopicQueues,
    Topics,
    read_compressed_registration,
    read_old_registration,
    read_registration,
)
from triomq.protocol.bodies.topic_config import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from triomq.protocol.errors import BodyError

LONG = PART_BYTES * 5


def whole(data: bytes) -> tuple[Topics, RestOfRegistration]:
    """Return what one call of the decoder returns."""
    body = Registration.decode(data)
    wrapper = body.topic_config_serialize_wrapper
    return wrapper.topic_config_table, RestOfRegistration(wrapper.data_version, body.filter_server_list)


def text_of(table: str, *, before: str = "", behind: str = "", top: str = "") -> bytes:
    wrapper = f'{{"dataVersion":{{"counter":7,"timestamp":1}},{before}"topicConfigTable":{{{table}}}{behind}}}'
    return f'{{"filterServerList":["f:1"],"topicConfigSerializeWrapper":{wrapper}{top}}}'.encode()


def entries(count: int, *, length: int = 200, perm: int = 6) -> str:
    names = (f"t{number}".ljust(length, "x") for number in range(count))
    return ",".join(f'"{name}":{{"perm":{perm},"topicName":"{name}"}}' for name in names)


NASTY = st.text(st.sampled_from('a"\\{}[],: \n\u00e9\U0001f600'), max_size=6)


@given(
    st.lists(st.tuples(NASTY, st.integers(0, 7), NASTY), max_size=40),
    st.sampled_from([None, (",", ":"), (" , ", " : "), (",\n\t", ":")]),
    st.booleans(),
    st.integers(1, 80),
)
def test_what_is_read_in_parts_is_what_is_read_at_once(
    topics: list[tuple[str, int, str]], separators: tuple[str, str] | None, is_ascii: bool, stretch: int
) -> None:
    """Texts that look like the end of an entry are in names and in unknown members, around every cut."""
    filler = {f"{number}-{'},' * stretch}": {"order": True, "x": '}, "' * 300} for number in range(70)}
    table = {name: {"perm": perm, "topicName": name, "unknown": unknown} for name, perm, unknown in topics}
    body: dict[str, Any] = {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {"dataVersion": {"counter": 1}, "topicConfigTable": {**filler, **table}},
    }
    data = json.dumps(body, separators=separators, ensure_ascii=is_ascii).encode()
    assert len(data) > 2 * PART_BYTES
    assert read_all(read_registration(data)) == whole(data)


def test_a_part_has_a_bounded_size() -> None:
    data = text_of(entries(3000))
    sizes = [len(part) for part in read_registration(data)]
    assert len(sizes) >= len(data) // (2 * PART_BYTES)
    assert max(sizes) * 420 <= 2 * PART_BYTES + 420
    assert read_all(read_registration(data)) == whole(data)


@given(st.binary(max_size=30), st.integers(0, LONG))
def test_garbage_in_a_long_registration_is_refused_or_read_as_at_once(garbage: bytes, at: int) -> None:
    data = bytearray(text_of(entries(600)))
    data[at : at + len(garbage)] = garbage
    try:
        found = read_all(read_registration(bytes(data)))
    except BodyError:
        return
    assert found == whole(bytes(data))


def test_a_topic_that_comes_twice_counts_as_it_came_last() -> None:
    data = text_of(entries(600) + "," + entries(3, perm=2))
    found = read_all(read_registration(data))
    assert found == whole(data)
    assert [queues.perm for queues in found[0].values()][:4] == [2, 2, 2, 6]


@pytest.mark.parametrize(
    "data",
    [
        text_of(entries(600), behind=',"topicQueueMappingInfoMap":{"a":{}}', top=',"x":1'),
        text_of(entries(600), before='"x":{"y":["z"]},'),
    ],
)
def test_other_members_may_be_around_the_topics(data: bytes) -> None:
    assert len(data) > 2 * PART_BYTES
    assert read_all(read_registration(data)) == whole(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        # The table that counts is another one.
        (text_of(entries(600), behind=f',"topicConfigTable":{{{entries(2)}}}'), "another topicConfigTable"),
        (text_of(entries(2), before=f'"x":{{"topicConfigTable":{{{entries(600)}}}}},'), "another topicConfigTable"),
        # What a part ends in the middle of.
        (text_of(entries(600), behind=f',"x":{{{entries(600)}}}'), "not valid in the topics from byte"),
        (text_of('"a":{"x":"' + '{"y":1},' * LONG + '"}'), "not valid|no end of a topic"),
        (text_of('"a":{"x":"' + "y" * LONG + '"}'), "no end of a topic"),
        (text_of(entries(300) + "," + entries(300).replace('"perm":6', '"perm":"6"')), "not valid in the topics"),
        (text_of(entries(300) + "," + entries(300, length=1025)), "1024"),
        (text_of(entries(600)).replace(b'"perm":6', b'"$ref":"$"'), "no references"),
        (b'{"x":"' + b"y" * LONG + b'"}', "begins its topics within"),
        (text_of(entries(600))[:-1], "not a valid Registration"),
        (text_of(entries(600)) + b"x", "not a valid Registration"),
    ],
)
def test_a_long_registration_that_cannot_be_read_in_parts_is_refused(data: bytes, reason: str) -> None:
    assert len(data) > 2 * PART_BYTES
    with pytest.raises(BodyError, match=reason):
        read_all(read_registration(data))


def test_the_old_form_is_read_in_parts_as_well() -> None:
    topics = {name: TopicConfig(topic_name=name, perm=4) for name in (f"t{number}" * 30 for number in range(800))}
    wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(counter=5), topic_config_table=topics)
    data = wrapper.encode()
    assert len(list(read_old_registration(data))) > 2
    found, rest = read_all(read_old_registration(data))
    assert found == OldRegistration.decode(data).topic_config_table == dict.fromkeys(topics, TopicQueues(perm=4))
    assert rest == RestOfRegistration(DataVersion(counter=5), [])


def test_a_registration_has_a_bounded_number_of_topics() -> None:
    """The shortest topics take seven bytes each, and in a compressed registration much less than that."""
    for count, is_refused in ((MAX_REGISTERED_TOPICS, False), (MAX_REGISTERED_TOPICS + 1, True)):
        plain = text_of(",".join(f'"{number}":{{}}' for number in range(count)))
        version = DataVersion().encode()
        head = len(version).to_bytes(4, "big") + version + count.to_bytes(4, "big")
        packed = zlib.compress(head + b"\0\0\0\x10T 1 1 6 SINGLE_T" * count + b"\0\0\0\x04null")
        for parts in (read_registration(plain), read_compressed_registration(packed)):
            if is_refused:
                with pytest.raises(BodyError, match=f"the limit is {MAX_REGISTERED_TOPICS}|to {MAX_REGISTERED_TOPICS}"):
                    read_all(parts)
            else:
                assert read_all(parts)[0]


def test_a_registration_that_is_not_standard_json_is_short() -> None:
    """It is read in one go, a hundred times slower than standard JSON."""
    members = b"filterServerList:[],x:'"
    text = b"{" + members + b"x" * (MAX_LENIENT_REGISTRATION_BYTES - len(members) - 3) + b"'}"
    assert read_all(read_registration(text)) == ({}, RestOfRegistration(DataVersion(), []))
    with pytest.raises(BodyError, match=f"{MAX_LENIENT_REGISTRATION_BYTES} are allowed"):
        read_all(read_registration(text + b" "))


def packed(topics: int, *, line: str = "{name} 4 4 6 SINGLE_TAG") -> bytes:
    version = b'{"counter":3,"timestamp":1}'
    pieces = [len(version).to_bytes(4, "big"), version, topics.to_bytes(4, "big")]
    for number in range(topics):
        text = line.format(name=f"topic-{number}").encode()
        pieces += (len(text).to_bytes(4, "big"), text)
    pieces.append(b"\0\0\0\x02[]")
    return b"".join(pieces)


def test_a_compressed_registration_comes_in_parts() -> None:
    parts = [len(part) for part in read_compressed_registration(zlib.compress(packed(5000)))]
    assert sum(parts) == 5000
    assert max(parts) < 250
    topics, rest = read_all(read_compressed_registration(zlib.compress(packed(5000))))
    assert topics["topic-4999"] == TopicQueues(perm=6, read_queue_nums=4, write_queue_nums=4)
    assert rest.data_version.counter == 3


def test_a_compressed_registration_inflates_to_a_bounded_size() -> None:
    body = zlib.compress(packed(2) + bytes(1_000_000))
    with pytest.raises(BodyError, match="more than 1000 bytes"):
        read_all(read_compressed_registration(body, max_inflated_bytes=1000))
    assert len(read_all(read_compressed_registration(body, max_inflated_bytes=1_000_200))[0]) == 2
    with pytest.raises(BodyError, match=f"more than {MAX_INFLATED_BYTES} bytes"):
        read_all(read_compressed_registration(zlib.compress(packed(2) + bytes(MAX_INFLATED_BYTES))))


def test_a_piece_of_a_compressed_registration_is_bounded() -> None:
    longest = RegisterBrokerBody(filter_server_list=["f" * 1024] * (MAX_PIECE_BYTES // 1027 - 1))
    assert compressed_registration(longest.encode_compressed()).filter_server_list == longest.filter_server_list
    longer = RegisterBrokerBody(filter_server_list=["f" * 1024] * (MAX_PIECE_BYTES // 1027 + 1))
    with pytest.raises(BodyError, match=f"length of the filter servers, from 0 to {MAX_PIECE_BYTES}"):
        compressed_registration(longer.encode_compressed())


def test_lines_that_end_alike_are_of_equal_topics_and_names_have_their_bound() -> None:
    topics, _ = read_all(read_compressed_registration(zlib.compress(packed(3))))
    assert len({id(queues) for queues in topics.values()}) == 1
    with pytest.raises(BodyError, match="out of bounds"):
        read_all(read_compressed_registration(zlib.compress(packed(3, line="{name:x<1025} 4 4 6 SINGLE_TAG"))))
    with pytest.raises(BodyError, match="five fields"):
        read_all(read_compressed_registration(zlib.compress(packed(3, line="{name} 4 4 6"))))
