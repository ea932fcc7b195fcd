"""Messages as applications see them: `Message` is sent, `MessageExt` is received."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic
from typing import Protocol as TypingProtocol

from triomq.protocol import message_id
from triomq.protocol import properties as stored_properties
from triomq.protocol import property_names as names
from triomq.protocol.address import HostPort

if TYPE_CHECKING:  # type checkers bring `typing_extensions` themselves
    from datetime import timedelta

    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
else:
    from typing import TypeVar

    V = TypeVar("V")

KEY_SEPARATOR = " "


class Message:
    """A message to send (RocketMQ: Message). `properties` holds tags, keys, delay level and all user properties.

    `delay_level`, from 1, has the broker deliver it later; `delay` says the same as a time, which must be that of one
    of RocketMQ's default levels, 1 s to 2 h. Raises ValueError when it is not, TypeError for keys that are not text.
    """

    __slots__ = ("body", "flag", "properties", "topic", "transaction_id")

    def __init__(
        self,
        topic: str,
        body: bytes = b"",
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        flag: int = 0,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        delay: timedelta | None = None,
    ) -> None:
        self.topic = topic
        self.body = body
        self.flag = flag
        self.properties: dict[str, str] = dict(properties) if properties else {}
        self.transaction_id: str | None = None
        if tags:
            self.properties[names.TAGS] = tags
        if keys:
            self.keys = keys if isinstance(keys, str) else _joined(keys)
        if delay_level or delay is not None:
            self.delay_level = _level(delay_level, delay)

    def __eq__(self, other: object) -> bool:
        """Whether both are of one class and hold the same, what a serializer made of the body aside. Messages can be
        changed, so they have no hash."""
        return type(self) is type(other) and _content(self) == _content(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(topic={self.topic!r}, body=<{len(self.body)} bytes>, {self.properties!r})"

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @tags.setter
    def tags(self, tags: str | None) -> None:
        self._put(names.TAGS, tags)

    @property
    def keys(self) -> str | None:
        """The keys as stored, separated by single spaces."""
        return self.properties.get(names.KEYS)

    @keys.setter
    def keys(self, keys: str | None) -> None:
        self._put(names.KEYS, keys)

    @property
    def key_list(self) -> list[str]:
        return [key for key in (self.keys or "").split(KEY_SEPARATOR) if key]

    @property
    def delay_level(self) -> int:
        """The delay level, from 1; 0 if the message is not delayed."""
        return _to_int(self.properties.get(names.DELAY), 0)

    @delay_level.setter
    def delay_level(self, level: int) -> None:
        self._put(names.DELAY, str(level))

    @property
    def wait_store_msg_ok(self) -> bool:
        """Whether the broker waits for flush and replication before it responds."""
        return self.properties.get(names.WAIT, "true") != "false"

    @wait_store_msg_ok.setter
    def wait_store_msg_ok(self, wait: bool) -> None:
        self.properties[names.WAIT] = "true" if wait else "false"

    @property
    def buyer_id(self) -> str | None:
        return self.properties.get(names.BUYER_ID)

    @buyer_id.setter
    def buyer_id(self, buyer_id: str | None) -> None:
        self._put(names.BUYER_ID, buyer_id)

    @property
    def uniq_key(self) -> str | None:
        """The id that the sending client assigned, or None."""
        return self.properties.get(names.UNIQ_KEY)

    def put_user_property(self, name: str, value: str) -> None:
        """Set a user property. Raise ValueError for names that RocketMQ reserves and for blank names or values."""
        if name in names.RESERVED:
            raise ValueError(f"the property name {name!r} is used by the system, choose another one")
        if not name.strip() or not value.strip():
            raise ValueError(f"name and value of property {name!r} must not be blank")
        self.properties[name] = value

    def user_property(self, name: str) -> str | None:
        return self.properties.get(name)

    def _put(self, name: str, value: str | None) -> None:
        if value is None:
            self.properties.pop(name, None)
        else:
            self.properties[name] = value


def _joined(keys: Iterable[str]) -> str:
    """Return keys as they are stored."""
    try:
        return KEY_SEPARATOR.join(keys)
    except TypeError:
        raise TypeError(f"keys must be a str or several of them, not {keys!r}") from None


def _level(delay_level: int, delay: timedelta | None) -> int:
    """Return the delay level that one of the two says."""
    if delay is None:
        return delay_level
    if delay_level:
        raise ValueError("give delay_level or delay, not both")
    from triomq.protocol.delay_levels import level_of  # most programs have no delays

    return level_of(delay)


class Settlement(TypingProtocol):
    """How the application settles a message that it received from a loop or a `receive`."""

    def ack(self) -> None: ...

    def retry_later(self, delay_level: int = 0) -> None: ...


class MessageExt(Message, Generic[V]):
    """A stored message: a Message plus its position in the store, its timestamps and its hosts (RocketMQ: MessageExt).

    Timestamps are wall-clock milliseconds. `store_size_bytes` is the size of the whole record. The client that pulls
    the message sets `broker_name`.
    """

    _value: V
    _settlement: Settlement
    # Most consumers read the body and little else: properties and hosts stay as they are stored until somebody asks.
    _properties: dict[str, str] | bytes
    _born_host: HostPort | bytes
    _store_host: HostPort | bytes
    _began_ms: int | None
    __slots__ = (
        "_began_ms",
        "_born_host",
        "_properties",
        "_settlement",
        "_store_host",
        "_value",
        "body_crc",
        "born_timestamp",
        "broker_name",
        "physical_offset",
        "prepared_transaction_offset",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "store_size_bytes",
        "store_timestamp",
        "sys_flag",
    )

    def __init__(self, topic: str, body: bytes = b"", *, properties: dict[str, str] | None = None) -> None:
        self._began_ms = None
        super().__init__(topic, body, properties=properties)
        self.broker_name: str | None = None
        self.queue_id = 0
        self.queue_offset = 0
        self.physical_offset = 0
        self.store_size_bytes = 0
        self.sys_flag = 0
        self.body_crc = 0
        self.born_timestamp = 0
        self.born_host = UNKNOWN_HOST
        self.store_timestamp = 0
        self.store_host = UNKNOWN_HOST
        self.reconsume_times = 0
        self.prepared_transaction_offset = 0

    @property
    def properties(self) -> dict[str, str]:
        table = self._properties
        if isinstance(table, bytes):
            table = self._properties = stored_properties.parse_bytes(table)
            if self._began_ms is not None:
                table[names.CONSUME_START_TIME] = str(self._began_ms)
        return table

    @properties.setter
    def properties(self, table: dict[str, str]) -> None:
        self._properties = table

    @property
    def born_host(self) -> HostPort:
        host = self._born_host
        if isinstance(host, bytes):
            host = self._born_host = _host(host)
        return host

    @born_host.setter
    def born_host(self, host: HostPort) -> None:
        self._born_host = host

    @property
    def store_host(self) -> HostPort:
        host = self._store_host
        if isinstance(host, bytes):
            host = self._store_host = _host(host)
        return host

    @store_host.setter
    def store_host(self, host: HostPort) -> None:
        self._store_host = host

    @property
    def value(self) -> V:
        """What the consumer's serializer made of the body; the body itself without a serializer."""
        try:
            return self._value
        except AttributeError:
            return self.body  # type: ignore[return-value]

    @value.setter
    def value(self, value: V) -> None:
        self._value = value

    @property
    def offset_msg_id(self) -> str:
        """The id that the broker assigned: store host and physical offset."""
        return message_id.offset_message_id(self.store_host.packed, self.physical_offset)

    @property
    def msg_id(self) -> str:
        """The id that the sending client assigned; without one, the id of the broker."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_msg_id

    def ack(self) -> None:
        """Settle this message as consumed, from any task or thread and in any order: one that a `PushConsumer` handed
        out in a loop or by `receive`. Raises NotSettled when it is settled already, ClientClosed when the consumer is
        closed, and RuntimeError for a message that was not received so (a listener settles by returning)."""
        self._settled_by().ack()

    def retry_later(self, delay_level: int = 0) -> None:
        """Have this message delivered again later (see `RetryLater`), as `ack` settles it. Raises what `ack` raises."""
        self._settled_by().retry_later(delay_level)

    def _settled_by(self) -> Settlement:
        try:
            return self._settlement
        except AttributeError:
            raise RuntimeError(
                "this message was not handed out by the loop or the receive of a PushConsumer, or it is a copy of one "
                "that was: settle that one, in its consumer's process"
            ) from None

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        """Return what copies and pickles carry: all but the way to settle it, which belongs to one consumer."""
        state = _content(self)
        if hasattr(self, "_value"):
            state["_value"] = self._value
        return None, state


UNKNOWN_HOST = HostPort("0.0.0.0", 0)

_LAZY_SLOTS = ("properties", "born_host", "store_host")


@lru_cache(maxsize=1024)
def _host(packed: bytes) -> HostPort:
    """Return a host; messages come from a few."""
    return HostPort.from_packed(packed)


def may_have(message: MessageExt, name: bytes) -> bool:
    """Return whether a message may have the property with this name; cheap as long as nobody has read them."""
    table = message._properties
    return name in table if isinstance(table, bytes) else name.decode() in table


def note_began(messages: Iterable[MessageExt], now_ms: int) -> None:
    """Have messages say in a property when consuming them began (RocketMQ: CONSUME_START_TIME)."""
    for message in messages:
        table = message._properties
        if isinstance(table, bytes):
            message._began_ms = now_ms
        else:
            table[names.CONSUME_START_TIME] = str(now_ms)


def _content(message: object) -> dict[str, object]:
    """Return what makes a message equal to another."""
    kinds = (Message.__slots__, MessageExt.__slots__, _LAZY_SLOTS)
    slots = (name for slots in kinds for name in slots if not name.startswith("_"))
    return {name: getattr(message, name) for name in slots if hasattr(message, name)}


def _to_int(text: str | None, default: int) -> int:
    try:
        return int(text) if text else default
    except ValueError:
        return default
