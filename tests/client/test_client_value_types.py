"""Types of values: a handler gets the one that it is annotated with, and a producer sends the one of its serializer."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NewType, Protocol, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

import triomq
from triomq import ConfigurationError, ConsumeFromWhere, InvalidMessage, MessageExt, Producer, TrioMQ, aio, blocking
from triomq.client.payloads.kinds import classes_of, fits
from triomq.protocol.codes import RequestCode
from triomq.serializers import Avro, Bytes, Json, MsgPack, Pydantic, Serializer, Text

if TYPE_CHECKING:
    from nowhere import OnlyForTypeCheckers

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
FACES = [triomq, aio, blocking]
SCHEMA = {"type": "record", "name": "Order", "fields": [{"name": "number", "type": "long"}]}


@dataclass
class Order:
    number: int


@dataclass
class Express(Order):
    pass


@dataclass
class Payment:
    number: int


class Foreign:
    pass


class Row(TypedDict):
    number: int


class OtherRow(TypedDict):
    number: int


class Sized(Protocol):
    def size(self) -> int: ...


class Csv(Serializer[Order]):
    def encode(self, value: Order) -> bytes:
        return str(value.number).encode()

    def decode(self, body: bytes) -> Order:
        return Order(int(body))


class Untyped(Serializer[Any]):
    def encode(self, value: Any) -> bytes:
        return b"1"

    def decode(self, body: bytes) -> Any:
        return 1


Number = NewType("Number", int)
V = TypeVar("V")


async def takes_order(value: Order) -> None: ...


def takes_message_of_order(message: MessageExt[Order]) -> None: ...


def takes_payment(value: Payment, producer: object) -> None: ...


def takes_message_of_payment(message: MessageExt[Payment]) -> None: ...


def takes_foreign(value: Foreign) -> None: ...


def takes_order_as_message(message: Order) -> None: ...


def takes_both(value: Order, message: MessageExt[Payment]) -> None: ...


def takes_hidden(value: OnlyForTypeCheckers) -> None: ...


def takes_text(value: str) -> None: ...


def takes_bytes(value: bytes, message: MessageExt[bytes]) -> None: ...


def takes_base(value: Order | None, message: triomq.Message) -> None: ...


class Biller:
    def bill(self, value: Order) -> None: ...

    def __call__(self, value: Order) -> None: ...


def started(handler: Any, serializer: Serializer[Any] | None, default: Serializer[Any] | None = None) -> TrioMQ:
    app: Any = TrioMQ("p", name_server=NAME_SERVER, serializer=default, backend="trio")
    app.consumer("T", group="G", serializer=serializer, consume_from=FIRST)(handler)
    return app


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "%RETRY%G")


@pytest.mark.parametrize(
    ("handler", "serializer", "says"),
    [
        (takes_payment, Json(Order), "takes_payment takes the value of type Payment, but Json makes values of type O"),
        (takes_payment, Csv(), "takes_payment takes the value of type Payment, but Csv makes values of type Order"),
        (takes_payment, Avro(SCHEMA, Order), "takes_payment takes the value of type Payment, but Avro makes values of"),
        (takes_message_of_payment, MsgPack(Order), "takes_message_of_payment takes the value of its message of type "),
        (takes_both, Json(), "takes_both takes the value of its message of type Payment, but Json makes values of ty"),
        (takes_order, None, "takes_order takes the value of type Order, but without a serializer it is bytes: give s"),
        (takes_message_of_order, None, "takes_message_of_order takes the value of its message of type Order, but with"),
        (takes_text, None, "takes_text takes the value of type str, but without a serializer it is bytes: give"),
        (takes_text, Json(Order), "takes_text takes the value of type str, but Json makes values of type Order"),
        (takes_foreign, Json(), "takes_foreign takes the value of type Foreign: Json cannot read values of type Fore"),
        (takes_foreign, Pydantic(Any), "takes_foreign takes the value of type Foreign: Pydantic cannot read values of"),
        (takes_order_as_message, Json(Order), "takes_order_as_message takes a message of type Order, which is a Mess"),
        (Biller().bill, Text(), "Biller.bill takes the value of type Order, but Text makes values of type str"),
        (Biller(), Text(), "Biller takes the value of type Order, but Text makes values of type str"),
        (functools.partial(takes_payment, producer=1), Csv(), "takes_payment takes the value of type Payment, but Csv"),
    ],
)
async def test_an_application_whose_handler_takes_another_type_does_not_start(
    fakes: FakeCluster, handler: Any, serializer: Serializer[Any] | None, says: str
) -> None:
    for app in (started(handler, serializer), started(handler, None, serializer)):
        with pytest.raises(ConfigurationError) as refused:
            await app.__aenter__()
        assert str(refused.value).startswith(says)
    assert not fakes.broker.members


@pytest.mark.parametrize(
    ("handler", "serializer"),
    [
        (takes_order, Json(Order)),
        (takes_order, Json(Express)),
        (takes_base, Json(Express)),
        (takes_message_of_order, Csv()),
        (takes_order, Untyped()),
        (takes_order, MsgPack()),
        (takes_text, Text()),
        (takes_bytes, None),
        (takes_bytes, Bytes()),
        (takes_hidden, Json(Order)),
        (takes_hidden, None),
        (Biller().bill, Csv()),
    ],
)
async def test_an_application_whose_handler_takes_the_type_starts(
    fakes: FakeCluster, autojump_clock: MockClock, handler: Any, serializer: Serializer[Any] | None
) -> None:
    async with started(handler, serializer) as app:
        assert app.producer


@pytest.mark.parametrize(
    ("serializer", "body"), [(Json(), b'{"number": 17}'), (MsgPack(), b"\x81\xa6number\x11"), (Avro(SCHEMA), b"\x22")]
)
async def test_a_serializer_without_a_type_makes_values_of_the_annotated_one(
    fakes: FakeCluster, serializer: Serializer[Any], body: bytes
) -> None:
    got: list[object] = []
    arrived = trio.Event()

    async def collect(value: Order) -> None:
        got.append(value)
        arrived.set()

    fakes.broker.store("T", 0, body)
    app = started(collect, None, serializer)
    with trio.fail_after(LIMIT_SECONDS):
        async with app:
            await arrived.wait()
        async with app:  # once more, with the serializer of the first time
            pass
    assert got == [Order(17)]
    assert serializer.value_type() is Any


@pytest.mark.parametrize("make", [lambda: Json(Foreign), lambda: MsgPack(Order | Payment), lambda: Pydantic(Foreign)])
def test_a_type_that_a_serializer_cannot_read_is_refused_at_once(make: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"cannot read values of type (Foreign|.*Order \| .*Payment): "):
        make()


@pytest.mark.parametrize(
    ("kind", "wanted", "is_one"),
    [
        (Order, Order, True),
        (Express, Order, True),
        (Order, Express, False),
        (Order, Payment, False),
        (Order, Order | None, True),
        (Order | None, Order, False),
        (Order, int | Payment, False),
        (int, float, True),
        (float, int, False),
        (bool, int, True),
        (Number, int, True),
        (str, Number, False),
        (list[int], list[int], True),
        (list[int], list[str], False),
        (list[int], Sequence[int], True),
        (dict[str, int], Mapping[str, int], True),
        (dict[str, int], list[int], False),
        (Row, Row, True),
        (Row, OtherRow, False),
        (Row, dict[str, int], True),
        (Annotated[int, msgspec.Meta(gt=0)], int, True),
        (str, Annotated[int, msgspec.Meta(gt=0)], False),
        (Any, Order, True),
        (Order, Any, True),
        (Order, object, True),
        (Order, Sized, True),
        (None, Order, False),
        (list[V], list[int], True),  # type: ignore[valid-type]
    ],
)
def test_a_type_fits_unless_it_certainly_does_not(kind: Any, wanted: Any, is_one: bool) -> None:
    assert fits(kind, wanted) is is_one


def test_types_whose_values_are_of_other_classes_are_not_compared() -> None:
    assert classes_of(pydantic.EmailStr) is None
    assert classes_of(V) is None
    assert classes_of(Order | Sized) is None
    assert classes_of(Order | None) == (Order, type(None))


# Sending.


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    ("serializer", "value", "says"),
    [
        (Json(Order), Payment(1), "Json cannot write this Payment: expected Order, got Payment"),
        (Json(Order), {"number": 1}, "Json cannot write this dict: expected Order, got dict"),
        (Csv(), Payment(1), "Csv cannot write this Payment: expected Order, got Payment"),
        (Pydantic(dict[str, int]), Order(1), r"Pydantic cannot write this Order: expected dict\[str, int\], got"),
        (Text(), b"17", "Text cannot write this bytes: expected str, got bytes"),
        (Avro(SCHEMA, Order), Payment(1), "Avro cannot write this Payment: expected Order, got Payment"),
        (None, "17", "Bytes cannot write this str: expected bytes, got str; other values need a serializer"),
    ],
)
def test_a_value_of_another_type_is_refused(face: Any, serializer: Any, value: object, says: str) -> None:
    producer = face.Producer("p", name_server=NAME_SERVER, serializer=serializer)
    with pytest.raises(InvalidMessage, match=says):
        producer.message("T", value)


async def test_nothing_is_sent_of_a_value_of_another_type(fakes: FakeCluster) -> None:
    async with triomq.Producer("p", name_server=NAME_SERVER, serializer=Json(Order)) as producer:
        await producer.send_value("T", Express(1))
        for send in (producer.send_value("T", Payment(2)), producer.request_value("T", Payment(3), Text())):  # type: ignore[arg-type]
            with pytest.raises(InvalidMessage, match="expected Order, got Payment"):
                await send
    assert [request.body for request in fakes.broker.of(RequestCode.SEND_MESSAGE_V2)] == [b'{"number":1}']


def test_a_value_is_sent_with_properties_and_a_delay_from_all_programs(triomq: Cluster) -> None:
    topic, options = fresh(), {"properties": {"region": "eu"}, "delay_level": 1, "tags": "new"}
    orders: dict[str, Any] = {"name_server": triomq.name_server, "serializer": Json(Order)}

    async def send_in_trio() -> None:
        async with Producer(fresh("P"), **orders) as producer:
            await producer.send_value(topic, Order(1), **options)

    async def send_in_asyncio() -> None:
        async with aio.Producer(fresh("P"), **orders) as producer:
            await producer.send_value(topic, Order(2), **options)

    trio.run(send_in_trio)
    asyncio.run(send_in_asyncio())
    with blocking.Producer(fresh("P"), **orders) as producer:
        producer.send_value(topic, Order(3), **options)
    with blocking.PushConsumer(fresh("G"), consume_from=FIRST, **orders) as consumer:
        consumer.subscribe(topic)
        got = [consumer.receive(LIMIT_SECONDS) for _ in range(3)]
    assert sorted(message.value.number for message in got) == [1, 2, 3]
    assert all(message.tags == "new" and message.user_property("region") == "eu" for message in got)
    assert all(message.store_timestamp - message.born_timestamp >= 900 for message in got)
