"""Serializers alone: values become bodies and values again, and bodies that are none are refused."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from schema_registry import FakeRegistry

from triomq.client.core.errors import ConfigurationError, RegistryFailed, WrongPayload
from triomq.client.payloads import avro
from triomq.serializers import Avro, Bytes, Json, MsgPack, Pydantic, SchemaRegistry, Serializer, Text

SCHEMA = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "number", "type": "long"}, {"name": "customer", "type": "string"}],
}
NEWER = {**SCHEMA, "fields": [*SCHEMA["fields"], {"name": "note", "type": "string", "default": "none"}]}


@dataclass
class Order:
    number: int
    customer: str


@dataclass
class NewerOrder(Order):
    note: str


class OrderModel(BaseModel):
    number: int
    customer: str


NUMBERS = st.integers(-(2**63), 2**63 - 1)
ORDER = Order(17, "Zoë")


@given(NUMBERS, st.text())
def test_what_was_written_is_read(number: int, customer: str) -> None:
    order = Order(number, customer)
    for serializer in (Json(Order), MsgPack(Order), Avro(SCHEMA, Order)):
        assert serializer.decode(serializer.encode(order)) == order
    model = OrderModel(number=number, customer=customer)
    assert Pydantic(OrderModel).decode(Pydantic(OrderModel).encode(model)) == model
    assert Text().decode(Text().encode(customer)) == customer
    assert Bytes().decode(Bytes().encode(customer.encode())) == customer.encode()
    plain = {"number": number, "customer": customer}
    assert Json().decode(Json().encode(plain)) == plain
    assert Avro(SCHEMA).decode(Avro(SCHEMA).encode(plain)) == plain


@pytest.mark.parametrize(
    ("serializer", "body"),
    [
        (Json(Order), b'{"number": "17", "customer": "c"}'),
        (Json(Order), b'{"number": 17}'),
        (Json(Order), b"{"),
        (Json(), b"[" * 100_000),
        (MsgPack(Order), b"\xc1"),
        (Pydantic(OrderModel), b'{"number": 17}'),
        (Text(), b"\xff"),
        (Avro(SCHEMA, Order), b"\x22"),
        (Avro(SCHEMA, Order), Avro(SCHEMA, Order).encode(ORDER) + b"x"),
        (Avro(SCHEMA, kind=int), Avro(SCHEMA, Order).encode(ORDER)),
    ],
)
def test_a_body_that_is_no_value_is_a_value_error(serializer: Serializer[Any], body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        serializer.decode(body)


@pytest.mark.parametrize("serializer", [Json(Order), MsgPack(Order), Pydantic(OrderModel), Avro(SCHEMA, Order)])
@given(st.binary(min_size=1, max_size=40))
def test_any_bytes_are_a_value_or_a_value_error(serializer: Serializer[Any], body: bytes) -> None:
    try:
        value = serializer.decode(body)
    except ValueError:
        return
    assert value.number == int(value.number)


def test_bytes_alone_need_no_serializer_and_other_values_do() -> None:
    with pytest.raises(TypeError, match=r"expected bytes, got str; other values need a serializer"):
        Bytes().encode("text")  # type: ignore[arg-type]


def test_a_registry_gives_the_schema_its_id_and_readers_the_schema() -> None:
    with FakeRegistry() as registry:
        registry.schemas.append('"string"')
        server = SchemaRegistry(registry.url, user="u", password="p")
        writer = Avro(SCHEMA, Order, registry=server, subject="Orders-value")
        with pytest.raises(ConfigurationError, match="not registered yet"):
            writer.encode(ORDER)
        writer.connect()
        body = writer.encode(ORDER)
        assert body == b"\0\0\0\0\x02" + Avro(SCHEMA, Order).encode(ORDER)
        assert registry.subjects == {"Orders-value": [2]}
        reader = Avro(NEWER, NewerOrder, registry=server)
        assert not reader.is_ready_for(body)
        reader.fetch(body)
        assert reader.is_ready_for(body)
        assert reader.decode(body) == NewerOrder(17, "Zoë", "none")
        assert registry.authorizations == {"Basic dTpw"}


def test_a_body_without_the_head_of_a_registry_is_wrong_without_asking_it() -> None:
    reader = Avro(SCHEMA, registry=SchemaRegistry("http://127.0.0.1:1"))
    for body in (b"\0\0\0\0", b"\x01\0\0\0\x01x"):
        assert reader.is_ready_for(body)
        with pytest.raises(WrongPayload, match="does not begin with a zero and the id of a schema"):
            reader.decode(body)


def test_an_unknown_schema_is_the_message_s_fault_and_a_broken_registry_is_not() -> None:
    with FakeRegistry() as registry:
        registry.schemas.append("not a schema")
        reader = Avro(SCHEMA, registry=SchemaRegistry(registry.url))
        with pytest.raises(WrongPayload, match=r"nothing at /schemas/ids/9: .*Schema not found"):
            reader.fetch(b"\0\0\0\0\x09")
        with pytest.raises(WrongPayload, match="schema 1 of the registry cannot be read"):
            reader.fetch(b"\0\0\0\0\x01")
        registry.broken = True
        with pytest.raises(RegistryFailed, match="refused /schemas/ids/9 with 503"):
            reader.fetch(b"\0\0\0\0\x09")
        with pytest.raises(RegistryFailed, match="503"):
            Avro(SCHEMA, registry=SchemaRegistry(registry.url), subject="s").connect()
    with pytest.raises(RegistryFailed, match=f"{registry.url} did not respond"):
        reader.fetch(b"\0\0\0\0\x09")


def test_a_reader_keeps_a_bounded_number_of_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MAX_SCHEMAS", 2)
    with FakeRegistry() as registry:
        registry.schemas += ['"string"', '"long"', '"int"']
        reader = Avro('"string"', registry=SchemaRegistry(registry.url))
        bodies = [b"\0\0\0\0" + bytes([number]) + b"\x02a" for number in (1, 2, 3)]
        for body in bodies:
            reader.fetch(body)
        assert [reader.is_ready_for(body) for body in bodies] == [False, True, True]


def test_a_long_response_of_a_registry_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "MAX_RESPONSE_BYTES", 30)
    with FakeRegistry() as registry:
        registry.schemas.append('"string"' + " " * 30)
        with pytest.raises(RegistryFailed, match="more than 30 bytes"):
            SchemaRegistry(registry.url).schema(1)


def test_settings_that_cannot_work_are_refused_at_once() -> None:
    with pytest.raises(ConfigurationError, match="the Avro schema cannot be used"):
        Avro('{"type": "nonsense"}')
    with pytest.raises(ConfigurationError, match="is not a URL such as http://registry:8081"):
        SchemaRegistry("registry:8081")
    with pytest.raises(ConfigurationError, match="needs a subject"):
        Avro(SCHEMA, registry=SchemaRegistry("http://127.0.0.1:1")).connect()


def test_what_is_not_installed_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[avro\]' in the clone"):
        Avro(SCHEMA)
    with pytest.raises(ConfigurationError, match=r"pip install '\.\[pydantic\]' in the clone"):
        Pydantic(OrderModel)


def test_optional_packages_are_loaded_when_asked_for() -> None:
    program = (
        "import sys, triomq, triomq.serializers as s; s.Json(int); triomq.Producer; "
        "print([name for name in ('fastavro', 'pydantic') if name in sys.modules])"
    )
    source = Path(avro.__file__).resolve().parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(source)!r}); {program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "[]\n"
