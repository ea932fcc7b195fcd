"""The AsyncAPI document of an application, and the command that prints it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pydantic
import pytest
import yaml

from triomq import ConfigurationError, Message, MessageExt, MessageModel, Router, TrioMQ
from triomq.client.app.run import main
from triomq.serializers import Avro, Json, MsgPack, Pydantic, Text


@dataclass
class Line:
    article: str


@dataclass
class Order:
    """An order of a customer."""

    number: int
    lines: list[Line]


class Bill(msgspec.Struct):
    total: int


class Model(pydantic.BaseModel):
    name: str


def schema(ref: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{ref}"}


def test_a_document_has_topics_operations_and_schemas() -> None:
    app = TrioMQ("shop", name_server="a:1;b:2", serializer=Json(Order))

    @app.consumer("Orders", "new || paid", group="billing", publish_to="Bills", publish_serializer=Json(Bill))
    async def bill(value: Order) -> Bill | Message | None:
        """Write the bill."""

    name = "test_a_document_has_topics_operations_and_schemas.<locals>.bill"
    orders, bills = "#/channels/Orders", "#/channels/Bills"
    line = {"title": "Line", "type": "object", "properties": {"article": {"type": "string"}}, "required": ["article"]}
    assert app.asyncapi("2.1.0") == {
        "asyncapi": "3.0.0",
        "info": {"title": "shop", "version": "2.1.0"},
        "servers": {
            "nameserver-1": {"host": "a:1", "protocol": "rocketmq", "description": "NameServer"},
            "nameserver-2": {"host": "b:2", "protocol": "rocketmq", "description": "NameServer"},
        },
        "channels": {
            "Orders": {
                "address": "Orders",
                "messages": {
                    "Order": {"title": "Order", "contentType": "application/json", "payload": schema("Order")}
                },
            },
            "Bills": {
                "address": "Bills",
                "messages": {"Bill": {"title": "Bill", "contentType": "application/json", "payload": schema("Bill")}},
            },
        },
        "operations": {
            "receive-billing": {
                "action": "receive",
                "channel": {"$ref": orders},
                "title": name,
                "description": "Messages with the tags new || paid\n\nWrite the bill.",
                "messages": [{"$ref": f"{orders}/messages/Order"}],
                "bindings": {
                    "x-rocketmq": {
                        "group": "billing",
                        "expression": "new || paid",
                        "deadLetterTopic": "%DLQ%billing",
                    }
                },
            },
            "send-billing": {
                "action": "send",
                "channel": {"$ref": bills},
                "title": name,
                "description": "What the handler returns",
                "messages": [{"$ref": f"{bills}/messages/Bill"}],
                "bindings": {"x-rocketmq": {"group": "shop"}},
            },
        },
        "components": {
            "schemas": {
                "Order": {
                    "title": "Order",
                    "description": "An order of a customer.",
                    "type": "object",
                    "properties": {"number": {"type": "integer"}, "lines": {"type": "array", "items": schema("Line")}},
                    "required": ["number", "lines"],
                },
                "Line": line,
                "Bill": {
                    "title": "Bill",
                    "type": "object",
                    "properties": {"total": {"type": "integer"}},
                    "required": ["total"],
                },
            }
        },
    }


def payload_of(serializer: Any, kind: Any) -> tuple[str | None, Any]:
    """Return content type and payload of a handler with values of a type."""
    app = TrioMQ("shop", name_server="a:1")

    async def handle(value): ...

    handle.__annotations__["value"] = kind
    app.consumer("T", group="g", serializer=serializer)(handle)
    made = app.asyncapi()
    ((name, message),) = made["channels"]["T"]["messages"].items()
    assert name.isidentifier()
    assert made["operations"]["receive-g"]["messages"] == [{"$ref": f"#/channels/T/messages/{name}"}]
    return message.get("contentType"), message["payload"]


AVRO = {"type": "record", "name": "Bill", "fields": [{"name": "total", "type": "int"}]}


@pytest.mark.parametrize(
    ("serializer", "kind", "content", "payload"),
    [
        (None, bytes, "application/octet-stream", {"description": "a value of the type bytes"}),
        (Text(), str, "text/plain", {"type": "string"}),
        (Json(), Any, "application/json", {}),
        (Json(), dict[str, int], "application/json", {"type": "object", "additionalProperties": {"type": "integer"}}),
        (MsgPack(Bill), Bill, "application/msgpack", schema("Bill")),
        (Pydantic(Model), Model, "application/json", schema("Model")),
        (
            Avro(AVRO, Bill),
            Bill,
            "application/vnd.apache.avro",
            {"schemaFormat": "application/vnd.apache.avro+json;version=1.9.0", "schema": AVRO},
        ),
    ],
    ids=str,
)
def test_the_serializer_says_what_a_payload_is(serializer: Any, kind: Any, content: str, payload: Any) -> None:
    assert payload_of(serializer, kind) == (content, payload)


def test_types_of_one_name_have_schemas_of_their_own() -> None:
    def made(kind: Any) -> type:
        return msgspec.defstruct("Same", [("value", kind)])

    app = TrioMQ("shop", name_server="a:1")
    for number, kind in enumerate((int, str, int)):
        app.consumer("T", group=f"g{number}", serializer=Json(made(kind)))(lambda message: None)
    made_of = app.asyncapi()
    assert made_of["channels"]["T"]["messages"].keys() == {"Same", "Same-2"}
    assert {name: one["properties"]["value"] for name, one in made_of["components"]["schemas"].items()} == {
        "Same": {"type": "integer"},
        "2-Same": {"type": "string"},
    }


def test_a_document_has_the_names_that_brokers_know_and_what_routers_have() -> None:
    app, router = TrioMQ("shop", name_server="http://h:8080/rocketmq/nsaddr", namespace="NS", tls=True), Router()

    @router.consumer("T", group="g", model=MessageModel.BROADCASTING, ordered=True)
    async def handle(message: MessageExt) -> None: ...

    app.include(router)
    made = app.asyncapi()
    (server,) = made["servers"].values()
    assert (server["host"], server["pathname"], server["protocol"]) == ("h:8080", "/rocketmq/nsaddr", "http")
    assert made["channels"]["NS%T"]["address"] == "NS%T"
    operation = made["operations"]["receive-NS%g"]
    assert operation["channel"] == {"$ref": "#/channels/NS%25T"}
    assert operation["bindings"]["x-rocketmq"] == {
        "group": "NS%g",
        "expression": "*",
        "model": "broadcasting",
        "ordered": True,
    }


def test_handlers_with_which_the_application_does_not_open_have_no_document() -> None:
    app = TrioMQ("shop", name_server="a:1")

    @app.consumer("T", group="g")
    async def handle(value: Order) -> None: ...

    with pytest.raises(ConfigurationError, match="without a serializer it is bytes"):
        app.asyncapi()


def test_the_command_prints_the_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "described_shop.py").write_text(
        'from triomq import TrioMQ\napp = TrioMQ("Zoë", name_server="a:1")\n'.replace("Zoë", "shop")
    )
    words = ["asyncapi", "described_shop:app", "--directory", str(tmp_path), "--app-version", "3.0"]
    assert main(words) == 0
    as_json = json.loads(capsys.readouterr().out)
    assert as_json["info"] == {"title": "shop", "version": "3.0"}
    assert main([*words, "--yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == as_json
    assert main(["asyncapi", "described_shop:market", "--directory", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("triomq: 'market' of the module")
