"""Serializers: how values of the application become bodies of messages, and bodies values again.

    producer = Producer("orders", serializer=Json(Order), name_server=...)
    consumer = PushConsumer("billing", serializer=Json(Order), name_server=...)     # message.value is an Order

A serializer is pure: no clock, no I/O. One that needs something from elsewhere (a schema) gets it in `connect` and
`fetch`, which run in a thread. May not live here: what becomes of a body that is wrong (consume/payloads.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Generic, Self, TypeVar, get_args, get_origin, overload

import msgspec
import msgspec.inspect

from triomq.client.core.by_arguments import ByArguments
from triomq.client.core.errors import ConfigurationError, WrongPayload
from triomq.client.payloads.kinds import name_of
from triomq.protocol.extras import install_hint

V = TypeVar("V")


class Serializer(ABC, Generic[V]):
    """How values become bodies, and bodies values. Give producers and consumers one of the subclasses, or your own.

    `encode` may raise anything; the send then fails with InvalidMessage. `decode` raises ValueError (or WrongPayload)
    for a body that is no such value: the message goes to the dead letter topic. Any other error means that the
    attempt failed: the message is delivered again later.
    """

    @abstractmethod
    def encode(self, value: V) -> bytes:
        """Return the body for a value."""

    @abstractmethod
    def decode(self, body: bytes) -> V:
        """Return the value of a body. Raises ValueError for one that is wrong."""

    def value_type(self) -> Any:
        """Return the type of the values, `Any` if it is not known: that of `Serializer[...]`, from which a subclass
        derives, unless it says otherwise."""
        for kind in type(self).__mro__:
            for base in vars(kind).get("__orig_bases__", ()):
                if get_origin(base) is Serializer and not isinstance(get_args(base)[0], TypeVar):
                    return get_args(base)[0]
        return Any

    def for_type(self, kind: Any) -> Serializer[Any]:
        """Return a serializer of this format for values of a type; this one if it has none for other types. Asked for
        serializers whose `value_type` is not known. Raises ConfigurationError for a type that cannot be read."""
        return self

    def connect(self) -> None:
        """Get what `encode` needs. Runs in a thread when a producer opens, so it may block."""

    def is_ready_for(self, body: bytes) -> bool:
        """Return whether `decode` has all that it needs for this body; if not, `fetch` is called before."""
        return True

    def fetch(self, body: bytes) -> None:
        """Get what `decode` needs for this body. Runs in a thread, so it may block."""


class Bytes(ByArguments, Serializer[bytes]):
    """The body is the value. What producers and consumers without a serializer have."""

    def encode(self, value: bytes) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(f"expected bytes, got {type(value).__name__}; other values need a serializer")
        return bytes(value)

    def decode(self, body: bytes) -> bytes:
        return body


class Text(ByArguments, Serializer[str]):
    """Text in UTF-8."""

    def encode(self, value: str) -> bytes:
        return value.encode()

    def decode(self, body: bytes) -> str:
        return body.decode()


class _OfKind(ByArguments, Serializer[V]):
    """Values of `kind`. What the libraries make of it is made again after pickling and copying."""

    _encoder: Callable[..., bytes]
    _decoder: Callable[[bytes], Any]

    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        self._build()

    @abstractmethod
    def _build(self) -> None:
        """Set encoder and decoder."""

    def _arguments(self) -> tuple[Any, ...]:
        return (self._kind,)

    def value_type(self) -> Any:
        return self._kind

    def for_type(self, kind: Any) -> Self:
        made = copy(self)
        made._kind = kind
        made._build()
        return made

    def _unreadable(self, why: object) -> ConfigurationError:
        return ConfigurationError(f"{type(self).__name__} cannot read values of type {name_of(self._kind)}: {why}")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_encoder", "_decoder")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._build()


class _OfMsgspec(_OfKind[V]):
    """What msgspec converts: values are checked when they are read."""

    def _decoding(self, decoder: Callable[[Any], Any]) -> Callable[[bytes], Any]:
        try:
            made = decoder(self._kind)
            is_foreign = isinstance(msgspec.inspect.type_info(self._kind), msgspec.inspect.CustomType)
        except TypeError as error:
            raise self._unreadable(error) from error
        if is_foreign and self._kind is not object:
            raise self._unreadable("it is not of Python, a dataclass, TypedDict, NamedTuple, Struct or attrs")
        decode: Callable[[bytes], Any] = made.decode
        return decode

    def encode(self, value: V) -> bytes:
        return self._encoder(value)

    def decode(self, body: bytes) -> V:
        try:
            value: V = self._decoder(body)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise WrongPayload(str(error)) from error
        return value


class Json(_OfMsgspec[V]):
    """JSON. `kind` is the type of the values: a dataclass, TypedDict, NamedTuple, msgspec.Struct, attrs class or a type
    of Python such as `dict[str, int]`. A body that is not of this type is wrong. Without it, anything JSON can hold."""

    @overload
    def __init__(self: Json[Any]) -> None: ...

    @overload
    def __init__(self, kind: type[V]) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        super().__init__(kind)

    def _build(self) -> None:
        self._encoder = msgspec.json.Encoder().encode
        self._decoder = self._decoding(msgspec.json.Decoder)


class MsgPack(_OfMsgspec[V]):
    """MessagePack, for the types that `Json` takes: shorter, and with bytes."""

    @overload
    def __init__(self: MsgPack[Any]) -> None: ...

    @overload
    def __init__(self, kind: type[V]) -> None: ...

    def __init__(self, kind: Any = Any) -> None:
        super().__init__(kind)

    def _build(self) -> None:
        self._encoder = msgspec.msgpack.Encoder().encode
        self._decoder = self._decoding(msgspec.msgpack.Decoder)


class Pydantic(_OfKind[V]):
    """JSON of a pydantic model, or of any other type that pydantic knows. Needs the extra `pydantic`."""

    def __init__(self, kind: type[V]) -> None:
        super().__init__(kind)

    def _build(self) -> None:
        try:
            from pydantic import TypeAdapter
            from pydantic.errors import PydanticSchemaGenerationError
        except ImportError:
            raise ConfigurationError(f"Pydantic needs pydantic 2: {install_hint('pydantic')}") from None
        try:
            adapter = TypeAdapter(self._kind)
        except PydanticSchemaGenerationError as error:
            raise self._unreadable(error.message.partition(".")[0]) from error
        self._encoder = adapter.dump_json
        self._decoder = adapter.validate_json

    def encode(self, value: V) -> bytes:
        return self._encoder(value, by_alias=True)

    def decode(self, body: bytes) -> V:
        value: V = self._decoder(body)  # a ValidationError is a ValueError
        return value
