"""Bodies in Avro or Protobuf as fields, with a schema file."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date
from io import BytesIO
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from triomq.pipeline.tables.values import Unfit
from triomq.spark.jobs.session import JobFailed

Decoder = Callable[[bytes], dict[str, Any]]
"""Body -> fields. Raises Unfit."""


def avro(path: str) -> Decoder:
    """Return a decoder of values in Avro's binary encoding, written with the record schema in a file. Raises JobFailed,
    and ImportError without fastavro."""
    import fastavro
    from fastavro.schema import SchemaParseException

    try:
        schema = fastavro.parse_schema(json.loads(_read(path)))
    except (ValueError, SchemaParseException) as error:
        raise JobFailed(f"--schema {path}: not an Avro schema ({_line(error)})") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise JobFailed(f"--schema {path}: an Avro schema, but not of a record")

    def decode(body: bytes) -> dict[str, Any]:
        rest = BytesIO(body)
        try:
            fields: Any = fastavro.schemaless_reader(rest, schema, None)
        except Exception as error:  # the reader raises what its parts raise: IndexError, EOFError, UnicodeDecodeError
            raise Unfit(f"not Avro of this schema: {type(error).__name__}") from None
        if rest.tell() != len(body):
            raise Unfit(f"not Avro of this schema: {len(body) - rest.tell()} bytes behind it")
        return {name: _plain(value) for name, value in fields.items()}  # a record is a dict

    return decode


def protobuf(path: str, name: str) -> Decoder:
    """Return a decoder of messages `name` of a FileDescriptorSet in a file, as protoc --descriptor_set_out
    --include_imports writes it. Raises JobFailed."""
    files = descriptor_pb2.FileDescriptorSet()
    try:
        files.ParseFromString(_read(path))
        pool = descriptor_pool.DescriptorPool()
        for file in files.file:
            pool.Add(file)
        made = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise JobFailed(f"--message {name}: not in {path}") from None
    except (DecodeError, TypeError, ValueError) as error:
        raise JobFailed(f"--schema {path}: not a FileDescriptorSet ({_line(error)})") from None

    def decode(body: bytes) -> dict[str, Any]:
        message = made()
        try:
            message.ParseFromString(body)
            fields = json_format.MessageToDict(message, preserving_proto_field_name=True, descriptor_pool=pool)
        except Exception as error:  # also what is in an Any of an unknown type
            raise Unfit(f"not a message {name}: {type(error).__name__}") from None
        for field in made.DESCRIPTOR.fields:
            value = getattr(message, field.name)
            if field.has_presence and not message.HasField(field.name):
                continue
            if field.enum_type is not None and isinstance(value, int):
                named = field.enum_type.values_by_number.get(value)
                fields[field.name] = named.name if named is not None else str(value)
            elif isinstance(value, (bool, int, float, bytes)):
                fields[field.name] = value  # JSON writes long integers and bytes as text, and leaves zeros out
        return dict(fields)

    return decode


def _plain(value: Any) -> Any:
    """Return decimals, identifiers and times of day as text, as values has no types for them."""
    is_plain = value is None or isinstance(value, (bool, int, float, str, bytes, dict, list, date))
    return value if is_plain else str(value)


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise JobFailed(f"--schema {path}: {error.strerror}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
