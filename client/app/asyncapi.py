"""The AsyncAPI document of an application: https://www.asyncapi.com/docs/reference/specification/v3.0.0.

AsyncAPI has no binding for RocketMQ, so what it has no field for is in the extension `x-rocketmq`. Topics and groups
have the names that brokers know. Pure: no connection is made, and nothing is opened.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from triomq.client.app.router import Registered
from triomq.client.app.value_types import returned_values, serializer_for
from triomq.client.core.config import ClientConfig
from triomq.client.core.namespace import Namespace
from triomq.client.core.results import MessageModel
from triomq.client.instance.handlers import name_of
from triomq.client.payloads.avro import Avro
from triomq.client.payloads.kinds import name_of as name_of_type
from triomq.client.payloads.serializer import Bytes, Json, MsgPack, Pydantic, Serializer, Text
from triomq.protocol import system_topics

Document = dict[str, Any]

_SCHEMAS = "#/components/schemas/"
_CONTENT_TYPES: dict[type, str] = {
    Json: "application/json",
    Pydantic: "application/json",
    MsgPack: "application/msgpack",
    Avro: "application/vnd.apache.avro",
    Text: "text/plain",
    Bytes: "application/octet-stream",
}


def document(
    name: str,
    version: str,
    config: ClientConfig,
    handlers: Mapping[str, Registered],
    publishing: Serializer[Any] | None,
) -> Document:
    """Return the document of an application with these handlers, by group; `publishing` writes their results unless
    they have another serializer. Raises ConfigurationError for handlers with which the application does not open."""
    made = _Making(Namespace(config.namespace))
    for group, one in handlers.items():
        made.receive(group, one)
        if one.publish_to is not None:
            made.send(group, name, one, one.publish_serializer or publishing)
    return {
        "asyncapi": "3.0.0",
        "info": {"title": name, "version": version},
        "servers": _servers(config),
        "channels": made.channels,
        "operations": made.operations,
        "components": {"schemas": made.schemas},
    }


def _servers(config: ClientConfig) -> Document:
    security = " over TLS" if config.tls else ""
    if config.address_server is not None:
        parts = urlsplit(config.address_server)
        text = f"where the addresses of the NameServers are published; they are called{security or ' in plain'}"
        return {"addresses": {"host": parts.netloc, "pathname": parts.path, "protocol": "http", "description": text}}
    return {
        f"nameserver-{number}": {"host": host, "protocol": "rocketmq", "description": f"NameServer{security}"}
        for number, host in enumerate(config.name_servers, 1)
    }


class _Making:
    """The parts of a document that handlers add to."""

    def __init__(self, namespace: Namespace) -> None:
        self.channels: Document = {}
        self.operations: Document = {}
        self.schemas: Document = {}
        self._wrap = namespace.wrap

    def receive(self, group: str, one: Registered) -> None:
        serializer = serializer_for(one.function, one.serializer)
        kind = bytes if serializer is None else serializer.value_type()
        wrapped = self._wrap(group)
        facts: Document = {"group": wrapped, "expression": one.expression}
        if one.options.get("model", MessageModel.CLUSTERING) is MessageModel.BROADCASTING:
            facts["model"] = "broadcasting"
        else:
            facts["deadLetterTopic"] = self._wrap(f"{system_topics.DLQ_PREFIX}{group}")
        if one.options.get("ordered"):
            facts["ordered"] = True
        about = "All messages" if one.expression.strip() in ("", "*") else f"Messages with the tags {one.expression}"
        operation = self._operation("receive", one.topic, one, [self._message(one.topic, kind, serializer)])
        operation["description"] = "\n\n".join(filter(None, (about, operation.get("description"))))
        operation["bindings"] = {"x-rocketmq": facts}
        self.operations[f"receive-{wrapped}"] = operation

    def send(self, group: str, producer: str, one: Registered, serializer: Serializer[Any] | None) -> None:
        assert one.publish_to is not None
        have = bytes if serializer is None else serializer.value_type()
        kinds = [have if kind is Any else kind for kind in returned_values(one.function)]
        messages = [self._message(one.publish_to, kind, serializer) for kind in kinds]
        operation = self._operation("send", one.publish_to, one, messages)
        operation["description"] = "What the handler returns"
        operation["bindings"] = {"x-rocketmq": {"group": self._wrap(producer)}}
        self.operations[f"send-{self._wrap(group)}"] = operation

    def _operation(self, action: str, topic: str, one: Registered, messages: Iterable[str]) -> Document:
        at = f"#/channels/{quote(self._channel(topic), safe='')}"
        made: Document = {"action": action, "channel": {"$ref": at}, "title": name_of(one.function)}
        if text := inspect.getdoc(one.function):
            made["description"] = text
        made["messages"] = [{"$ref": f"{at}/messages/{message}"} for message in messages]
        return made

    def _channel(self, topic: str) -> str:
        address = self._wrap(topic)
        self.channels.setdefault(address, {"address": address, "messages": {}})
        return address

    def _message(self, topic: str, kind: Any, serializer: Serializer[Any] | None) -> str:
        """Have a message of the channel of a topic; return its name there."""
        title = "value" if kind is Any else name_of_type(kind)
        message: Document = {"title": title}
        for one, content in _CONTENT_TYPES.items():
            if isinstance(serializer or Bytes(), one):
                message["contentType"] = content
        message["payload"] = self._payload(kind, serializer)
        known = self.channels[self._channel(topic)]["messages"]
        plain = re.sub(r"[^\w.-]+", "_", title).strip("_")  # dict[str, int] becomes dict_str_int
        name, number = plain, 1
        while known.setdefault(name, message) != message:
            number += 1
            name = f"{plain}-{number}"
        return name

    def _payload(self, kind: Any, serializer: Serializer[Any] | None) -> Document:
        plain: Document = {} if kind is Any else {"description": f"a value of the type {name_of_type(kind)}"}
        if isinstance(serializer, Avro):
            return {"schemaFormat": "application/vnd.apache.avro+json;version=1.9.0", "schema": serializer.schema}
        if isinstance(serializer, Text):
            return {"type": "string"}
        if kind is Any or not isinstance(serializer, Json | MsgPack | Pydantic):
            return plain
        try:
            for prefix in ("", *(f"{number}-" for number in range(2, 100))):
                template = f"{_SCHEMAS}{prefix}"
                payload, schemas = (_of_pydantic if isinstance(serializer, Pydantic) else _of_msgspec)(kind, template)
                added = {f"{prefix}{name}": schema for name, schema in schemas.items()}
                if all(self.schemas.get(name, schema) == schema for name, schema in added.items()):
                    self.schemas |= added
                    return payload
        except (TypeError, ValueError, RuntimeError):  # what the libraries raise for types without a schema
            pass
        return plain


def _of_msgspec(kind: Any, template: str) -> tuple[Document, Document]:
    (payload,), schemas = msgspec.json.schema_components([kind], ref_template=template + "{name}")
    return payload, schemas


def _of_pydantic(kind: Any, template: str) -> tuple[Document, Document]:
    from pydantic import TypeAdapter

    made, found = TypeAdapter.json_schemas([(0, "validation", TypeAdapter(kind))], ref_template=template + "{model}")
    return made[0, "validation"], found.get("$defs", {})
