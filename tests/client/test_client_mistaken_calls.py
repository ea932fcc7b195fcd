"""What a newcomer calls differently: options with other names, topic and body in place of a message, no await."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import triomq
from triomq import Client, ClientConfig, ConfigurationError, InvalidMessage, Message, aio, blocking

NAME_SERVER = "127.0.0.1:1"
FACADES = [triomq, aio, blocking]


@pytest.mark.parametrize("module", FACADES)
@pytest.mark.parametrize(
    ("name", "option", "says"),
    [
        ("Producer", "bootstrap_servers", "Producer has no option 'bootstrap_servers': did you mean 'name_server'?"),
        ("Producer", "send_timeout", "Producer has no option 'send_timeout': did you mean 'send_timeout_seconds'?"),
        ("Producer", "retires", "Producer has no option 'retires': did you mean 'retries'?"),
        ("Producer", "compression_level", "it is one of the rules: rules=SendRules(compression_level=...)"),
        ("Producer", "zzz", "Producer has no option 'zzz': it has client, send_timeout_seconds, retries,"),
        ("PushConsumer", "namesrvAddr", "PushConsumer has no option 'namesrvAddr': did you mean 'name_server'?"),
        ("PushConsumer", "concurrency", "it is one of the rules: rules=ConsumeRules(concurrency=...)"),
        ("LitePullConsumer", "autocommit", "LitePullConsumer has no option 'autocommit': did you mean 'auto_commit'?"),
        ("PullConsumer", "brokers", "PullConsumer has no option 'brokers': did you mean 'name_server'?"),
        ("PullConsumer", "timeout", "PullConsumer has no option 'timeout': did you mean 'request_timeout_seconds'?"),
    ],
)
def test_an_option_that_does_not_exist_is_refused_with_the_class_and_the_nearest_name(
    module: Any, name: str, option: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        getattr(module, name)("group", name_server=NAME_SERVER, **{option: 1})
    assert says in str(refused.value)


@pytest.mark.parametrize("module", FACADES)
def test_admin_and_transactions_name_the_option_that_was_meant(module: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^Admin has no option 'timeout': .* 'timeout_seconds'"):
        module.Admin(name_server=NAME_SERVER, timeout=1)
    with pytest.raises(ConfigurationError, match=r"^TransactionProducer has no option 'max_check': .* 'max_checks'"):
        module.TransactionProducer("g", lambda message, argument: None, lambda message: None, max_check=1)


def test_an_option_that_does_not_exist_is_refused_beside_a_shared_client_too() -> None:
    client = Client(ClientConfig(name_server=NAME_SERVER))
    options: Any = {"brokers": "a:1"}
    with pytest.raises(ConfigurationError, match="did you mean 'name_server'"):
        triomq.Producer("g", client=client, **options)


def test_a_class_of_the_application_is_named_as_the_one_it_extends() -> None:
    class Orders(triomq.Producer[bytes]):
        def __init__(self, **options: Any) -> None:
            super().__init__("orders", **options)

    with pytest.raises(ConfigurationError, match="Producer has no option 'retires'"):
        Orders(name_server=NAME_SERVER, retires=3)


@pytest.mark.parametrize("method", ["send", "send_oneway", "request"])
async def test_topic_and_body_in_place_of_a_message_are_refused(method: str) -> None:
    producer: Any = triomq.Producer("g", name_server=NAME_SERVER)
    with pytest.raises(
        InvalidMessage, match=rf"^{method} takes a Message, not str: {method}\(Message\(topic, body\)\)"
    ):
        await getattr(producer, method)("T", b"x")


def test_the_facades_refuse_topic_and_body_in_place_of_a_message() -> None:
    producer: Any = blocking.Producer("g", name_server=NAME_SERVER)
    with producer, pytest.raises(InvalidMessage, match="send takes a Message, not str"):
        producer.send("T", b"x")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"a": 1}, "not dict; encode it, or use a serializer: Json()"),
        ([1], "not list; encode it, or use a serializer: Json()"),
        ("text", "not str; encode it: text.encode()"),
    ],
)
async def test_a_body_that_is_not_bytes_is_refused_with_what_to_do(body: Any, says: str) -> None:
    producer = triomq.Producer("g", name_server=NAME_SERVER)
    with pytest.raises(InvalidMessage) as refused:
        await producer.send(Message("T", body))
    assert str(refused.value) == f"the body must be bytes, {says}"


@pytest.mark.parametrize("module", [triomq, aio])
@pytest.mark.parametrize(
    ("name", "method", "argument"),
    [
        ("Producer", "send", Message("T", b"x")),
        ("Producer", "send_many", [Message("T", b"x")]),
        ("PullConsumer", "queues", "T"),
    ],
)
def test_a_forgotten_await_names_the_class_and_the_method(module: Any, name: str, method: str, argument: Any) -> None:
    instance = getattr(module, name)("g", name_server=NAME_SERVER)
    forgotten = getattr(instance, method)(argument)
    assert inspect.iscoroutine(forgotten)
    assert forgotten.__qualname__ == f"{name}.{method}"
    with pytest.warns(RuntimeWarning, match=f"coroutine '{name}.{method}' was never awaited"):
        del forgotten
