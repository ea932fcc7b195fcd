"""Every public name: what pickles, copies, compares and is shown without secrets, and what says that it cannot."""

from __future__ import annotations

import copy
import enum
import inspect
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

import triomq
from triomq import aio, blocking, serializers, testing
from triomq.client import compat
from triomq.client.administer.admin import Admin
from triomq.client.app.router import Transaction
from triomq.client.consume.concurrent import ConcurrentConsuming
from triomq.client.core.errors import MQClientError
from triomq.client.core.received_message import Receipt, with_receipt
from triomq.protocol.receipt_handle import ReceiptHandle

SECRET = "s3cret"
QUEUE = triomq.MessageQueue("Orders", "broker-a", 3)
OPTIONS: dict[str, Any] = {"name_server": "127.0.0.1:1", "credentials": triomq.Credentials("me", SECRET, SECRET)}


@dataclass
class Order:
    number: int


def room_of_queue(queue: triomq.MessageQueue) -> str:
    return queue.broker_name


def room_of_member(member: str) -> str:
    return member


def received() -> triomq.MessageExt:
    message = triomq.MessageExt("Orders", b"{}", properties={"KEYS": "order-17"})
    message.queue_offset, message.broker_name = 7, "broker-a"
    message.value = {"number": 17}
    return message


def compat_message() -> compat.Message:
    message = compat.Message("Orders")
    message.set_body("x")
    return message


SENT = triomq.SendResult(triomq.SendStatus.SEND_OK, "id", QUEUE, 7, "offset id")
MESSAGE = triomq.Message("Orders", b"x", tags="new", keys=["a", "b"])
REGISTRY = serializers.SchemaRegistry("http://127.0.0.1:1", user="me", password=SECRET)

RECEIPT = Receipt("g", "Orders", "Orders", ReceiptHandle(1, 2, "0", "broker-a", 0, 7), 3)

VALUES: dict[object, Callable[[], Any]] = {
    triomq.Averagely: triomq.Averagely,
    triomq.AveragelyByCircle: triomq.AveragelyByCircle,
    triomq.ByConfig: lambda: triomq.ByConfig([QUEUE]),
    triomq.ByMachineRoom: lambda: triomq.ByMachineRoom(["a"]),
    triomq.ConsistentHash: lambda: triomq.ConsistentHash(7),
    triomq.MachineRoomNearby: lambda: triomq.MachineRoomNearby(triomq.Averagely(), room_of_queue, room_of_member),
    triomq.ClientConfig: lambda: triomq.ClientConfig(**{**OPTIONS, "name_server": ["127.0.0.1:1"], "hooks": []}),
    triomq.Credentials: lambda: triomq.Credentials("me", SECRET, SECRET),
    triomq.ConsumeRules: lambda: triomq.ConsumeRules(concurrency=3),
    triomq.SendRules: lambda: triomq.SendRules(compress_over_bytes=0),
    triomq.Message: lambda: MESSAGE,
    triomq.MessageExt: received,
    triomq.ReceivedMessage: lambda: with_receipt(received(), RECEIPT),
    triomq.AcksFailed: lambda: triomq.AcksFailed(
        "1 of 2", [(with_receipt(received(), RECEIPT), triomq.NoRoute("T", []))]
    ),
    triomq.MessageQueue: lambda: QUEUE,
    triomq.PullResult: lambda: triomq.PullResult(triomq.PullStatus.FOUND, 1, 0, 9, [received()]),
    triomq.SendResult: lambda: SENT,
    triomq.TransactionSendResult: lambda: triomq.TransactionSendResult(
        SENT, triomq.LocalTransactionState.UNKNOW, triomq.NoRoute("T", ["a:1"])
    ),
    triomq.ConsumeContext: lambda: triomq.ConsumeContext("g", [received()], QUEUE, 1),
    triomq.SendContext: lambda: triomq.SendContext("g", MESSAGE, [MESSAGE], QUEUE, "a:1", 1, notes={"a": 1}),
    triomq.EndTransactionContext: lambda: triomq.EndTransactionContext("g", MESSAGE, "i", "t", "a:1", "s", False, 1),
    triomq.BrokerRefused: lambda: triomq.BrokerRefused(2, "busy", address="a:1", action="sending"),
    triomq.SendFailed: lambda: triomq.SendFailed("T", ["broker-a: x"]),
    triomq.NoRoute: lambda: triomq.NoRoute("T", ["a:1"], "why"),
    triomq.NoBroker: lambda: triomq.NoBroker("T", ["a:1"]),
    triomq.NameServersUnreachable: lambda: triomq.NameServersUnreachable({"a:1": "refused"}),
    triomq.LocalOffsetsUnreadable: lambda: triomq.LocalOffsetsUnreadable("offsets.json", "torn"),
    triomq.RetryLater: lambda: triomq.RetryLater(3),
    triomq.DeadLetter: lambda: triomq.DeadLetter("why"),
    serializers.Avro: lambda: serializers.Avro('{"type": "int"}', registry=REGISTRY, subject="s"),
    serializers.Bytes: serializers.Bytes,
    serializers.Json: lambda: serializers.Json(Order),
    serializers.MsgPack: lambda: serializers.MsgPack(dict[str, int]),
    serializers.Pydantic: lambda: serializers.Pydantic(int),
    serializers.SchemaRegistry: lambda: REGISTRY,
    serializers.Text: serializers.Text,
    compat.Message: compat_message,
    compat.ReceivedMessage: lambda: compat.ReceivedMessage(received()),
    compat.SendResult: lambda: compat.SendResult(compat.SendStatus.OK, "id", 7),
}
UNHASHABLE = {triomq.Message, triomq.MessageExt, triomq.PullResult, triomq.ConsumeContext, triomq.SendContext}
UNHASHABLE |= {
    triomq.ReceivedMessage,
    triomq.AcksFailed,
    triomq.EndTransactionContext,
    compat.Message,
    compat.ReceivedMessage,
}


def delivery() -> triomq.Delivery:
    return triomq.Delivery(received(), ConcurrentConsuming.__new__(ConcurrentConsuming))


def in_the_end(*_: object) -> triomq.LocalTransactionState:
    return triomq.LocalTransactionState.UNKNOW


def compat_named(kind: Any, *arguments: Any) -> Callable[[], Any]:
    def make() -> Any:
        one = kind("group", *arguments)
        one.set_session_credentials("me", SECRET)
        return one

    return make


LIVE: dict[object, Callable[[], Any]] = {
    triomq.Client: lambda: triomq.Client(triomq.ClientConfig(**OPTIONS)),
    triomq.TraceSender: lambda: triomq.TraceSender(triomq.Client(triomq.ClientConfig(**OPTIONS))),
    triomq.TrioMQ: lambda: triomq.TrioMQ("app", **OPTIONS),
    triomq.Router: triomq.Router,
    triomq.Delivery: delivery,
    Transaction: lambda: Transaction(in_the_end),
    compat.Producer: compat_named(compat.Producer),
    compat.TransactionMQProducer: compat_named(compat.TransactionMQProducer, in_the_end),
    compat.PushConsumer: compat_named(compat.PushConsumer),
    compat.PullConsumer: compat_named(compat.PullConsumer),
    testing.LocalCluster: testing.LocalCluster,
    testing.ProcessCluster: testing.ProcessCluster,
    testing.VirtualClock: testing.VirtualClock,
}
for face in (triomq, aio, blocking):
    LIVE[face.Admin] = partial(face.Admin, **OPTIONS)
    LIVE[face.TransactionProducer] = partial(face.TransactionProducer, "group", in_the_end, in_the_end, **OPTIONS)
    for one in (face.Producer, face.PushConsumer, face.PullConsumer, face.LitePullConsumer, face.SimpleConsumer):
        LIVE[one] = partial(one, "group", **OPTIONS)

INTERFACES = {
    triomq.ConsumeHook,
    triomq.EndTransactionHook,
    triomq.FilterHook,
    triomq.QueueSelector,
    triomq.RequestHook,
    triomq.SendHook,
    triomq.Strategy,
    serializers.Serializer,
}


def public() -> dict[str, Any]:
    modules = (triomq, aio, blocking, serializers, testing, compat)
    names = {f"{module.__name__}.{name}": getattr(module, name) for module in modules for name in module.__all__}
    return {name: one for name, one in names.items() if isinstance(one, type)}


def samples_of(kind: Any) -> list[Any]:
    """Return values of a class; none if it has to be listed in VALUES and is not."""
    if kind in VALUES:
        return [VALUES[kind]()]
    if issubclass(kind, enum.Enum):
        return list(kind)
    if issubclass(kind, MQClientError):
        return [kind("the text")]
    return []


def test_every_public_class_is_a_value_or_lives_in_one_process() -> None:
    of_no_kind = [
        name for name, kind in public().items() if kind not in LIVE and kind not in INTERFACES and not samples_of(kind)
    ]
    assert not of_no_kind, f"list these in {Path(__file__).name}"


@pytest.mark.parametrize("name", [name for name, kind in public().items() if samples_of(kind)])
def test_a_value_pickles_copies_compares_and_shows_no_secret(name: str) -> None:
    kind = public()[name]
    for value in samples_of(kind):
        pickled = [pickle.loads(pickle.dumps(value, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
        for again in (*pickled, copy.copy(value), copy.deepcopy(value)):
            assert type(again) is kind
            assert again == value
            assert repr(again) == repr(value)
            if kind not in UNHASHABLE:
                assert hash(again) == hash(value)
        assert value != object()
        assert SECRET not in repr(value) + str(value)
        assert " object at 0x" not in repr(value)


@pytest.mark.parametrize("make", [*LIVE.values()], ids=[f"{kind.__module__}.{kind.__name__}" for kind in LIVE])  # type: ignore[attr-defined]
@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_lives_in_one_process_says_what_to_do_instead(make: Callable[[], Any], act: Callable[[Any], Any]) -> None:
    one = make()
    with pytest.raises(TypeError, match=rf"^{type(one).__name__} objects .* cannot be pickled or copied: .+"):
        act(one)
    assert SECRET not in repr(one) + str(one)


def test_values_that_differ_are_not_equal() -> None:
    assert triomq.Averagely() != triomq.AveragelyByCircle()
    assert triomq.ConsistentHash(1) != triomq.ConsistentHash(2)
    assert serializers.Json(int) != serializers.Json(str)
    assert serializers.Json(int) != serializers.MsgPack(int)
    assert triomq.Message("T", b"a") != triomq.Message("T", b"b")
    assert triomq.Message("T", b"a") != triomq.MessageExt("T", b"a")
    assert triomq.NoRoute("T", []) != triomq.NoRoute("U", [])
    other = received()
    other.queue_offset += 1
    assert other != received()


def test_serializers_work_after_pickling() -> None:
    order = pickle.loads(pickle.dumps(serializers.Json(Order)))
    assert order.decode(order.encode(Order(17))) == Order(17)
    number = pickle.loads(pickle.dumps(serializers.Avro('{"type": "int"}')))
    assert number.decode(number.encode(17)) == 17
    model = pickle.loads(pickle.dumps(serializers.Pydantic(Order)))
    assert model.decode(model.encode(Order(17))) == Order(17)


def test_a_pickled_message_keeps_its_value() -> None:
    assert pickle.loads(pickle.dumps(received())).value == {"number": 17}


def test_an_account_in_the_url_of_a_registry_is_refused_without_showing_it() -> None:
    with pytest.raises(triomq.ConfigurationError, match="user= and password=") as refused:
        serializers.SchemaRegistry(f"http://me:{SECRET}@127.0.0.1:1")
    assert SECRET not in str(refused.value)


def test_what_an_admin_returns_are_values() -> None:
    for name, method in inspect.getmembers(Admin, inspect.iscoroutinefunction):
        if not name.startswith("_"):
            for kind in _classes(get_type_hints(method)["return"]):
                is_value = issubclass(kind, msgspec.Struct | enum.Enum | tuple | triomq.Message) or is_dataclass(kind)
                assert is_value or kind.__module__ == "builtins", f"{name} returns {kind}"
                assert kind.__eq__ is not object.__eq__, f"{name} returns {kind}"


def _classes(annotation: Any) -> Sequence[type]:
    parts = get_args(annotation)
    if parts:
        return [kind for part in parts for kind in _classes(part)]
    return [annotation] if isinstance(annotation, type) and annotation is not type(None) else []
