"""Codes, versions and header records against the facts of RocketMQ 4.9.7 (wire_facts.json)."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol import codes
from triomq.protocol.errors import HeaderFieldError
from triomq.protocol.headers import registry, send
from triomq.protocol.headers.base import Header, decode_header, decode_header_json, encode_header
from triomq.protocol.headers.group import DeleteSubscriptionGroupRequestHeader

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "wire_facts.json").read_text())
DEFAULTS = {"false": False, "0": 0, None: None}
V2_LETTERS = {
    "a": "producer_group",
    "b": "topic",
    "c": "default_topic",
    "d": "default_topic_queue_nums",
    "e": "queue_id",
    "f": "sys_flag",
    "g": "born_timestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsume_times",
    "k": "unit_mode",
    "l": "max_reconsume_times",
    "m": "batch",
    "n": "broker_name",
}


# Java marks it as required, yet real clients omit it and the broker then takes the default file.
LEFT_OUT_BY_CLIENTS = {("UpdateGlobalWhiteAddrsConfigRequestHeader", "aclFileFullPath")}
ADDED_BY_ROCKETMQ_5 = {
    "ResetOffsetRequestHeader": [["queueId", "Integer", False, None], ["offset", "Long", False, None]],
}


def optional_of(hint: Any) -> tuple[Any, bool]:
    """Return the type without None, and whether None was part of it."""
    if get_origin(hint) not in (types.UnionType, Union):
        return hint, False
    return next(part for part in get_args(hint) if part is not types.NoneType), types.NoneType in get_args(hint)


def java_type(hint: Any) -> str:
    """Return the Java type of a field: that of a whole number is known by its range."""
    base = getattr(hint, "__origin__", hint)
    if base is not int:
        return {str: "String", bool: "Boolean"}[base]
    largest = next(note.le for note in hint.__metadata__ if isinstance(note, msgspec.Meta))
    return {2**31 - 1: "Integer", 2**63 - 1: "Long"}[largest]


def header_classes() -> dict[str, type[Header]]:
    known = [*registry.REQUEST_HEADERS.values(), *registry.RESPONSE_HEADERS.values()]
    return {cls.__name__: cls for cls in known if cls is not None}


POP = {
    "QUERY_ASSIGNMENT": 400,
    "SET_MESSAGE_REQUEST_MODE": 401,
    "POP_MESSAGE": 200_050,
    "ACK_MESSAGE": 200_051,
    "PEEK_MESSAGE": 200_052,
    "CHANGE_MESSAGE_INVISIBLETIME": 200_053,
    "NOTIFICATION": 200_054,
    "POLLING_INFO": 200_055,
    "BATCH_ACK_MESSAGE": 200_151,
}
OWN = {
    "QUERY_IN_FLIGHT": 30_001,
    "RELEASE_IN_FLIGHT": 30_002,
    "QUERY_GRPC_ENDPOINT": 30_003,
    "QUERY_DEPARTED_BROKERS": 30_004,
    "QUERY_BROKER_TOTALS": 30_005,
}
LATER = {"GET_TOPIC_CONFIG": 351, "GET_SUBSCRIPTIONGROUP_CONFIG": 352, **POP, **OWN}
"""Codes of RocketMQ 5 that are known here, and those that only TrioMQ has."""


def test_request_codes() -> None:
    assert {code.name: int(code) for code in codes.RequestCode} == {**FACTS["request_codes"], **LATER}


def test_response_codes() -> None:
    assert {code.name: int(code) for code in codes.ResponseCode} == FACTS["response_codes"]


def test_language_codes() -> None:
    assert {code.name: int(code) for code in codes.LanguageCode} == FACTS["languages"]


@pytest.mark.parametrize(("name", "ordinal"), FACTS["versions"].items())
def test_version_ordinals(name: str, ordinal: int) -> None:
    assert codes.version_name(ordinal) == name
    if hasattr(codes, name):
        assert getattr(codes, name) == ordinal


def test_every_release_follows_its_snapshot() -> None:
    names = [codes.version_name(ordinal) for ordinal in range(codes.HIGHER_VERSION)]
    assert len(set(names)) == len(names) == 612
    for ordinal in range(codes.V3_0_11, codes.HIGHER_VERSION, 2):
        assert names[ordinal - 1] == names[ordinal] + "_SNAPSHOT"


def test_versions_outside_the_table() -> None:
    assert codes.version_name(613) == codes.version_name(99999) == "HIGHER_VERSION"
    assert codes.version_name(-1) == "UNKNOWN(-1)"


@pytest.mark.parametrize("direction", ["requests", "responses"])
def test_registry_names_the_class_of_every_code(direction: str) -> None:
    table = registry.REQUEST_HEADERS if direction == "requests" else registry.RESPONSE_HEADERS
    named = {str(int(code)): cls and cls.__name__ for code, cls in table.items() if code not in LATER.values()}
    assert named == FACTS[direction]


@pytest.mark.parametrize("name", FACTS["headers"])
def test_header_fields(name: str) -> None:
    cls = header_classes()[name]
    hints = get_type_hints(cls, include_extras=True)
    found = {}
    for field in msgspec.structs.fields(cls):
        base, optional = optional_of(hints[field.name])
        default = None if field.required else field.default
        found[field.encode_name] = (java_type(base), field.required, optional, default)
    expected = {}
    rows = [*FACTS["headers"][name], *ADDED_BY_ROCKETMQ_5.get(name, [])]
    for wire_name, type_name, required, default in rows:
        # A missing Java primitive keeps its default although it is marked as required, so it is optional.
        required = required and (name, wire_name) not in LEFT_OUT_BY_CLIENTS
        must_be_there = required and default is None
        may_be_none = not required and default is None
        expected[wire_name] = (type_name, must_be_there, may_be_none, DEFAULTS[default])
    assert found == expected
    # RocketMQ's binary codec writes some headers in the order of declaration.
    assert list(found) == [row[0] for row in rows]


def test_short_send_header_has_the_attributes_of_the_long_one() -> None:
    short = {field.encode_name: field.name for field in msgspec.structs.fields(send.SendMessageRequestHeaderV2)}
    assert short == V2_LETTERS
    long = {field.name for field in msgspec.structs.fields(send.SendMessageRequestHeader)}
    assert set(short.values()) == long


def header_values(cls: type[Header]) -> st.SearchStrategy[Header]:
    kinds = {
        "String": st.text(),
        "Boolean": st.booleans(),
        "Integer": st.integers(-(2**31), 2**31 - 1),
        "Long": st.integers(-(2**63), 2**63 - 1),
    }
    hints = get_type_hints(cls, include_extras=True)
    strategies: dict[str, st.SearchStrategy[Any]] = {}
    for field in msgspec.structs.fields(cls):
        base, optional = optional_of(hints[field.name])
        strategies[field.name] = st.none() | kinds[java_type(base)] if optional else kinds[java_type(base)]
    return st.builds(cls, **strategies)


@given(st.sampled_from(sorted(header_classes())).flatmap(lambda name: header_values(header_classes()[name])))
def test_headers_survive_the_wire(header: Header) -> None:
    fields = encode_header(header)
    assert all(isinstance(value, str) for value in fields.values())
    assert decode_header(type(header), fields) == header
    assert decode_header_json(type(header), json.dumps(fields).encode()) == header


@pytest.mark.parametrize("text", [b"", b"{", b'{"topic" "T"}', b'{"topic":"T"} x', b"[]", b"\xff"])
def test_ext_fields_that_are_not_an_object_are_a_header_error(text: bytes) -> None:
    with pytest.raises(HeaderFieldError, match="extFields"):
        decode_header_json(DeleteSubscriptionGroupRequestHeader, text)


@pytest.mark.parametrize(
    ("text", "is_set"), [("true", True), ("TRUE", True), ("false", False), ("1", False), ("0", False), ("yes", False)]
)
def test_only_true_is_true(text: str, is_set: bool) -> None:
    """Java reads it this way."""
    fields = {"groupName": "G", "removeOffset": text}
    for header in (
        decode_header(DeleteSubscriptionGroupRequestHeader, fields),
        decode_header_json(DeleteSubscriptionGroupRequestHeader, json.dumps(fields).encode()),
    ):
        assert header.remove_offset is is_set


@pytest.mark.parametrize("name", [name for name, rows in FACTS["headers"].items() if any(row[2] for row in rows)])
def test_a_missing_required_field_is_named(name: str) -> None:
    cls = header_classes()[name]
    required = [field.encode_name for field in msgspec.structs.fields(cls) if field.required]
    texts = {row[0]: {"String": "x", "Boolean": "true"}.get(row[1], "7") for row in FACTS["headers"][name]}
    for missing in required:
        fields = {key: text for key, text in texts.items() if key != missing}
        with pytest.raises(HeaderFieldError, match=f"<{missing}>"):
            decode_header(cls, fields)
    decode_header(cls, texts)


@pytest.mark.parametrize("name", [n for n, rows in FACTS["headers"].items() if any(r[1] == "Integer" for r in rows)])
@pytest.mark.parametrize("bad", ["", "x", "1.5", "2147483648", "-2147483649", "0x10", "1 2"])
def test_a_bad_number_is_named(name: str, bad: str) -> None:
    cls = header_classes()[name]
    field = next(row[0] for row in FACTS["headers"][name] if row[1] == "Integer")
    texts = {row[0]: {"String": "x", "Boolean": "true"}.get(row[1], "7") for row in FACTS["headers"][name]}
    with pytest.raises(HeaderFieldError, match=f"<{field}>"):
        decode_header(cls, {**texts, field: bad})
