"""Typed messages: what `serializer=` of producers and consumers takes, for all three kinds of programs."""

from triomq.client.payloads.avro import Avro, SchemaRegistry
from triomq.client.payloads.serializer import Bytes, Json, MsgPack, Pydantic, Serializer, Text

__all__ = [
    "Avro",
    "Bytes",
    "Json",
    "MsgPack",
    "Pydantic",
    "SchemaRegistry",
    "Serializer",
    "Text",
]
