"""Bodies of requests between members, byte for byte as RocketMQ's members write them."""

from __future__ import annotations

from typing import Any

import pytest
from dledger_lab import GROUP, Lab, entry
from golden_data import golden_lines
from hypothesis import given
from hypothesis import strategies as st

from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import PUSH_APPEND, PUSH_COMMIT, REQUESTS, RESPONSES, Entry, PushRequest
from triomq.protocol.bodies import fastjson
from triomq.protocol.errors import BodyError
from triomq.protocol.frame import FrameDecoder

_NUMBERS = st.integers(0, 1 << 30)
NAMES = ("VOTE", "HEART_BEAT", "PUSH", "APPEND", "GET", "METADATA", "LEADERSHIP_TRANSFER")


def name_of(frame: dict[str, Any]) -> str:
    return str(frame["name"]).partition(" ")[0]


def recorded() -> list[dict[str, Any]]:
    return [frame for frame in golden_lines("dledger", "frames") if name_of(frame) in NAMES]


def body_of(frame: dict[str, Any]) -> bytes:
    data = bytes.fromhex(frame["frame_hex"])
    return data[8 + (int.from_bytes(data[4:8], "big") & 0xFFFFFF) :]


def record_of(frame: dict[str, Any]) -> Any:
    request = REQUESTS[getattr(codes, name_of(frame))]
    return RESPONSES[request] if frame["type"] == "response" else request


@pytest.mark.parametrize("name", NAMES)
def test_bodies_of_real_members_are_read_and_written_byte_for_byte(name: str) -> None:
    frames = [frame for frame in recorded() if name_of(frame) == name]
    assert {frame["type"] for frame in frames} == {"request", "response"}
    for frame in frames:
        written = record_of(frame).decode(body_of(frame)).encode()
        if frame["header"]["language"] == "JAVA":
            assert written == body_of(frame), frame["seq"]
        else:  # a program with other spaces and fewer members asked
            assert record_of(frame).decode(written) == record_of(frame).decode(body_of(frame)), frame["seq"]


def test_derived_members_of_a_push_are_those_that_rocketmq_derives() -> None:
    checked = set()
    for frame in recorded():
        if name_of(frame) != "PUSH" or frame["type"] != "request" or frame["header"]["language"] != "JAVA":
            continue
        push = PushRequest.decode(body_of(frame))
        made = bodies.push_request(
            push.type,
            group=str(push.group),
            leader=str(push.leader_id),
            follower=str(push.remote_id),
            term=push.term,
            committed=push.commit_index,
            entries=push.entries,
        )
        is_single_batch = push.batch and len(push.entries) == 1  # we send one entry without a batch
        assert made == push or is_single_batch, frame["seq"]
        checked.add((push.type, len(push.entries) > 1))
    assert {kind for kind, _ in checked} == {"APPEND", "COMMIT", "COMPARE", "TRUNCATE"}


def test_what_is_missing_has_the_default_of_the_java_class() -> None:
    assert PushRequest.decode(b"{}") == PushRequest()
    assert (PushRequest().term, PushRequest().commit_index, PushRequest().type) == (-1, -1, "APPEND")


def test_unknown_members_are_ignored() -> None:
    assert bodies.VoteResponse.decode(b'{"voteResult":"ACCEPT","new":[1]}').vote_result == codes.ACCEPT


@pytest.mark.parametrize("data", [b"", b"[]", b'{"term":"x"}', b'{"entry":7}'])
def test_what_is_not_a_body_is_refused(data: bytes) -> None:
    with pytest.raises(BodyError):
        PushRequest.decode(data)


def answer_of(seq: int) -> bytes:
    """Return the recorded answer to the request with this number."""
    frames = golden_lines("dledger", "frames")
    asked = next(frame for frame in frames if frame["seq"] == seq)
    found = next(
        frame
        for frame in frames
        if frame["seq"] > seq
        and frame["type"] == "response"
        and frame["to"] == asked["from"]
        and frame["header"]["opaque"] == asked["header"]["opaque"]
        and frame["from"] == asked["to"]
    )
    return body_of(found)


def test_refusals_before_a_handler_are_answered_as_real_members_answer_them() -> None:
    """Requests for another member or group, of each kind that the recording has."""
    checked = set()
    for frame in recorded():
        if frame["from"] != "probe" or frame["type"] != "request":
            continue
        request = record_of(frame).decode(body_of(frame))
        answer = record_of({**frame, "type": "response"}).decode(answer_of(frame["seq"]))
        if answer.code in (codes.UNKNOWN_GROUP, codes.UNKNOWN_MEMBER) and answer.local_id is not None:
            assert bodies.refusal(request, answer.code, answer.leader_id) == answer, frame["seq"]
            checked.add(name_of(frame))
    assert {"VOTE", "HEART_BEAT", "PUSH", "METADATA"} <= checked


def test_a_frame_of_a_real_member_is_a_frame_of_remoting() -> None:
    frame = next(frame for frame in recorded() if frame["name"] == "PUSH COMMIT")
    decoder = FrameDecoder()
    (command,) = decoder.feed(bytes.fromhex(frame["frame_hex"]))
    assert command.code == codes.PUSH
    assert PushRequest.decode(bytes(command.body)).type == PUSH_COMMIT


def test_a_member_answers_a_push_with_the_members_that_rocketmq_sends() -> None:
    lab = Lab(term=1)
    lab.follow(1)
    answer = lab.pushed(bodies.PUSH_COMPARE, entry(0, 1))
    assert answer.encode() == (
        b'{"beginIndex":-1,"code":406,"count":1,"endIndex":-1,"group":"%s","index":0,"term":1}' % GROUP.encode()
    )
    assert lab.pushed(PUSH_COMMIT).code == lab.pushed(PUSH_APPEND, entry(0, 1)).code == codes.INCONSISTENT_STATE
    lab.pushed(bodies.PUSH_TRUNCATE, entry(0, 1))
    answer = lab.pushed(PUSH_COMMIT)
    assert answer.encode() == b'{"beginIndex":0,"code":200,"count":0,"endIndex":0,"group":"lab","term":1}'
    assert lab.heart_beat(0).encode() == b'{"code":403,"term":1}'
    assert lab.heart_beat(1).encode() == b'{"code":200,"term":-1}'


@given(
    st.lists(
        st.builds(Entry, body=st.binary(max_size=40), index=_NUMBERS, pos=_NUMBERS, size=_NUMBERS, term=_NUMBERS),
        max_size=4,
    ),
    st.text(max_size=20),
)
def test_a_push_is_encoded_as_fastjson_encodes_it(entries: list[Entry], group: str) -> None:
    request = PushRequest(batch=True, batch_entry=entries, group=group, type=PUSH_APPEND, count=len(entries))
    assert request.encode() == fastjson.dumps(request)
    assert PushRequest.decode(request.encode()) == request
