"""Messages: from the fields of gRPC to the properties of remoting, and back.

user_properties                                properties of the same names
tag, keys                                      TAGS, KEYS (separated by blanks)
message_id                                     UNIQ_KEY
message_group                                  __SHARDINGKEY
trace_context                                  TRACE_CONTEXT
orphaned_transaction_recovery_duration         CHECK_IMMUNITY_TIME_IN_SECONDS
body_encoding GZIP                             bit 0 of sysFlag (bodies.py)
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from triomq.broker.grpc.bodies import BODY_ENCODING, body_to_deliver
from triomq.broker.grpc.results import Refused
from triomq.grpc_front import schema
from triomq.protocol import property_names as names
from triomq.protocol.message import MessageExt

Code: Final = schema.Code
SHARDING_KEY: Final = "__SHARDINGKEY"
TRACE_CONTEXT: Final = "TRACE_CONTEXT"
MAX_PROPERTIES: Final = 128
MAX_PROPERTIES_BYTES: Final = 16 * 1024
MAX_GROUP_BYTES: Final = 63
MAX_RECOVERY_SECONDS: Final = 3600
# Plain ints, because accessing a value of a protobuf enum takes ten times as long.
NORMAL: Final = int(schema.MessageType.NORMAL)
FIFO: Final = int(schema.MessageType.FIFO)
DELAY: Final = int(schema.MessageType.DELAY)
TRANSACTION: Final = int(schema.MessageType.TRANSACTION)
_MD5: Final = int(schema.DigestType.MD5)
_OF_SYSTEM: Final = names.RESERVED | {SHARDING_KEY, TRACE_CONTEXT, BODY_ENCODING, names.CHECK_IMMUNITY_TIME_IN_SECONDS}


def properties_of(message: Any) -> dict[str, str]:
    """Return the properties of a message that a producer sends. Raises Refused for what they must not be."""
    system = message.system_properties
    properties = dict(message.user_properties)
    for key, value in properties.items():
        if key in _OF_SYSTEM:
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {key} belongs to the system")
        if not key or _has_control(key) or _has_control(value):
            text = f"the property {key[:64]!r} is empty, or it has a control character"
            raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
    if not system.message_id:
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "the message has no message_id")
    properties[names.UNIQ_KEY] = system.message_id
    if system.HasField("tag"):
        properties[names.TAGS] = _checked(system.tag, "tag", Code.ILLEGAL_MESSAGE_TAG, "|")
    if system.keys:
        keys = [_checked(key, "key", Code.ILLEGAL_MESSAGE_KEY) for key in system.keys]
        properties[names.KEYS] = " ".join(keys)
    if system.HasField("message_group"):
        group = _checked(system.message_group, "message group", Code.ILLEGAL_MESSAGE_GROUP)
        if len(group.encode()) > MAX_GROUP_BYTES:
            raise Refused(Code.ILLEGAL_MESSAGE_GROUP, f"a message group has at most {MAX_GROUP_BYTES} bytes")
        properties[SHARDING_KEY] = group
    if system.HasField("trace_context"):
        properties[TRACE_CONTEXT] = system.trace_context
    size = sum([len(key.encode()) + len(value.encode()) for key, value in properties.items()])
    if len(message.user_properties) > MAX_PROPERTIES or size > MAX_PROPERTIES_BYTES:
        text = f"{len(message.user_properties)} properties, with tag and keys {size} bytes; the limits are "
        raise Refused(Code.MESSAGE_PROPERTIES_TOO_LARGE, f"{text}{MAX_PROPERTIES} and {MAX_PROPERTIES_BYTES}")
    return properties


def recovery_seconds(system: Any) -> int | None:
    """Return after how many seconds a transaction is asked for that has not ended; None: as the broker has it. Raises
    Refused."""
    if not system.HasField("orphaned_transaction_recovery_duration"):
        return None
    seconds = int(system.orphaned_transaction_recovery_duration.seconds)
    if not 0 <= seconds <= MAX_RECOVERY_SECONDS:
        raise Refused(Code.BAD_REQUEST, f"a recovery duration of {seconds} s: from 0 to {MAX_RECOVERY_SECONDS}")
    return seconds or None


def _checked(text: str, what: str, code: int, forbidden: str = "") -> str:
    if not text.strip() or _has_control(text) or any(each in text for each in forbidden):
        or_this = f" or {forbidden}" if forbidden else ""
        raise Refused(code, f"the {what} {text[:64]!r} is blank, or has a control character{or_this}")
    return text


def _has_control(text: str) -> bool:
    return not text.isprintable() and any(ord(character) < 0x20 or ord(character) == 0x7F for character in text)


def fill(message: Any, stored: MessageExt, topic: str, handle: str = "") -> int:
    """Set the fields of a message (schema.Message) to those of a stored one, as clients of gRPC receive it, with the
    receipt handle if it has one. Return the size of the body in bytes."""
    body, encoding = body_to_deliver(stored)
    message.body = body
    message.topic.name = topic
    properties = stored.properties
    system = message.system_properties
    for key, value in properties.items():
        if key not in _OF_SYSTEM:
            message.user_properties[key] = value
    system.message_id = properties.get(names.UNIQ_KEY) or stored.offset_msg_id
    if names.TAGS in properties:
        system.tag = properties[names.TAGS]
    if names.KEYS in properties:
        system.keys.extend(properties[names.KEYS].split())
    if SHARDING_KEY in properties:
        system.message_group = properties[SHARDING_KEY]
    if TRACE_CONTEXT in properties:
        system.trace_context = properties[TRACE_CONTEXT]
    system.message_type = type_of(properties)
    system.body_encoding = encoding
    digest = system.body_digest
    digest.type, digest.checksum = _MD5, hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
    set_ms(system.born_timestamp, stored.born_timestamp)
    set_ms(system.store_timestamp, stored.store_timestamp)
    system.born_host, system.store_host = stored.born_host.text, stored.store_host.text
    system.queue_id, system.queue_offset = stored.queue_id, stored.queue_offset
    system.delivery_attempt = stored.reconsume_times + 1
    if handle:
        system.receipt_handle = handle
    return len(body)


def type_of(properties: dict[str, str]) -> int:
    """Return the type of a message with these properties."""
    if properties.get(names.TRANSACTION_PREPARED, "").lower() == "true":
        return TRANSACTION
    if names.DELAY in properties:
        return DELAY
    return FIFO if SHARDING_KEY in properties else NORMAL


def set_ms(timestamp: Any, milliseconds: int) -> None:
    """Set a protobuf Timestamp."""
    timestamp.seconds, rest = divmod(milliseconds, 1000)
    timestamp.nanos = rest * 1_000_000


def to_ms(timestamp: Any) -> int:
    """Return a protobuf Timestamp or Duration in milliseconds."""
    return int(timestamp.seconds * 1000 + timestamp.nanos // 1_000_000)
