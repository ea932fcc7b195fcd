"""The protobuf classes and enums of apache.rocketmq.v2, as attributes of this module: `schema.SendMessageRequest`,
`schema.Code.OK`.

They are made from fields.py when this module is imported, which the first connection of a gRPC client does: protobuf
takes 7 MiB. They have a pool of their own, because a program that embeds a broker may have those of a client as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from google.protobuf import descriptor_pb2, duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message import DecodeError as DecodeError
from google.protobuf.message_factory import GetMessageClass

from triomq.grpc_front.fields import ENUMS, MESSAGES

PACKAGE: Final = "apache.rocketmq.v2"
_FILE: Final = "apache/rocketmq/v2/service.proto"
_Field: Final = descriptor_pb2.FieldDescriptorProto
_KINDS: Final = {
    "string": _Field.TYPE_STRING,
    "bytes": _Field.TYPE_BYTES,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
    "float": _Field.TYPE_FLOAT,
}
_MAP: Final = "map<string,string>"


def _tables(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield each name and its members."""
    name, members = "", list[list[str]]()
    for line in text.strip().splitlines():
        if line.startswith(" "):
            members.append(line.split())
            continue
        if name:
            yield name, members
        name, members = line, []
    yield name, members


def file_descriptor() -> descriptor_pb2.FileDescriptorProto:
    """Return the description of the file, as protoc would write it."""
    file = descriptor_pb2.FileDescriptorProto(name=_FILE, package=PACKAGE, syntax="proto3")
    file.dependency.extend([timestamp_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    enums = dict(_tables(ENUMS))
    for name, values in enums.items():
        enum = file.enum_type.add(name=name)
        for number, value in values:
            enum.value.add(name=value, number=int(number))
    for name, fields in _tables(MESSAGES):
        message = file.message_type.add(name=name)
        optional = [_add_field(message, field, enums) for field in fields]
        for field in filter(None, optional):  # behind the others: an oneof of one member makes a field optional
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{field.name}")
    return file


def _add_field(message: Any, described: list[str], enums: dict[str, Any]) -> Any:
    """Add a field to the description of a message. Return it if it is optional."""
    number, name, kind, *labels = described
    is_repeated = "repeated" in labels or kind == _MAP
    field = message.field.add(name=name, number=int(number))
    field.label = _Field.LABEL_REPEATED if is_repeated else _Field.LABEL_OPTIONAL
    if kind in _KINDS:
        field.type = _KINDS[kind]
    elif kind == _MAP:
        entry = message.nested_type.add(name="".join(part.title() for part in name.split("_")) + "Entry")
        entry.options.map_entry = True
        for at, part in enumerate(("key", "value"), 1):
            entry.field.add(name=part, number=at, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".{PACKAGE}.{message.name}.{entry.name}"
    elif kind in ("Timestamp", "Duration"):
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".google.protobuf.{kind}"
    else:
        field.type = _Field.TYPE_ENUM if kind in enums else _Field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
    if "oneof" in labels:
        union = labels[1]
        names = [each.name for each in message.oneof_decl]
        if union not in names:
            message.oneof_decl.add(name=union)
            names.append(union)
        field.oneof_index = names.index(union)
    if "optional" in labels:
        field.proto3_optional = True
        return field
    return None


def _classes() -> dict[str, Any]:
    pool = DescriptorPool()
    for module in (timestamp_pb2, duration_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    pool.Add(file_descriptor())
    found: dict[str, Any] = {
        name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name, _ in _tables(MESSAGES)
    }
    for name, _ in _tables(ENUMS):
        found[name] = EnumTypeWrapper(pool.FindEnumTypeByName(f"{PACKAGE}.{name}"))
    return found


def __getattr__(name: str) -> Any:
    raise AttributeError(f"{__name__} has no message or value {name}")


globals().update(_classes())
