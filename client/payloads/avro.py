"""Avro bodies, with or without a schema registry.

With a registry a body is, as other Avro clients with a registry write it:

    0 | ID OF THE WRITER'S SCHEMA 4, big endian | the value in Avro's binary encoding

The producer registers its schema when it opens; a consumer fetches each schema that it meets once, and reads values of
older and newer schemas as ones of its own (Avro's schema resolution). Without a registry the body is the value alone,
and both sides must have the same schema.

Bounds: a serializer keeps MAX_SCHEMAS schemas; the registry's responses have at most MAX_RESPONSE_BYTES.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping
from copy import copy
from http import HTTPStatus
from io import BytesIO
from typing import Any, TypeVar, overload
from urllib.parse import quote, urlsplit

import msgspec

from triomq.client.core.by_arguments import ByArguments
from triomq.client.core.errors import ConfigurationError, RegistryFailed, WrongPayload
from triomq.client.payloads.serializer import Serializer
from triomq.protocol.extras import install_hint

V = TypeVar("V")

MAX_SCHEMAS = 1000
MAX_RESPONSE_BYTES = 1024 * 1024

_MAGIC = b"\x00"
_HEAD_BYTES = 5
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
# Values that Avro's logical types take as they are.
_AVRO_VALUES = (bytes, bytearray, datetime.datetime, datetime.date, datetime.time, decimal.Decimal, uuid.UUID)


class SchemaRegistry(ByArguments):
    """A schema registry with Confluent's HTTP interface (Confluent's own, Karapace, Apicurio). Calls block.

    `user`, `password`: for HTTP basic authentication. `timeout_seconds`: limit of one call.
    """

    def __init__(
        self, url: str, *, user: str | None = None, password: str | None = None, timeout_seconds: float = 5.0
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConfigurationError(f"the schema registry {url!r} is not a URL such as http://registry:8081")
        if "@" in parts.netloc:
            raise ConfigurationError("the schema registry's URL must not hold an account: give user= and password=")
        self._url = url.rstrip("/")
        self._timeout_seconds = timeout_seconds
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if user is not None:
            secret = base64.b64encode(f"{user}:{password or ''}".encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"

    def _arguments(self) -> tuple[Any, ...]:
        return self._url, self._headers, self._timeout_seconds

    def __repr__(self) -> str:
        return f"SchemaRegistry({self._url!r})"

    def register(self, subject: str, schema: str) -> int:
        """Register a schema, if it is new, and return its id. Raises RegistryFailed."""
        answer = self._call(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        number = answer.get("id")
        if not isinstance(number, int):
            raise RegistryFailed(f"the schema registry at {self._url} gave subject {subject!r} no id: {answer}")
        return number

    def schema(self, number: int) -> str:
        """Return the schema with this id. Raises WrongPayload when there is none, or it is not one of Avro, and
        RegistryFailed."""
        answer = self._call(f"/schemas/ids/{number}", None)
        text = answer.get("schema")
        if not isinstance(text, str) or answer.get("schemaType", "AVRO") != "AVRO" or answer.get("references"):
            raise WrongPayload(f"schema {number} of the registry is not an Avro schema without references")
        return text

    def _call(self, path: str, body: Mapping[str, str] | None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data=data, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_seconds) as response:
                text = response.read(MAX_RESPONSE_BYTES + 1)
            if len(text) > MAX_RESPONSE_BYTES:
                raise RegistryFailed(
                    f"the schema registry's response to {path} has more than {MAX_RESPONSE_BYTES} bytes"
                )
            answer = json.loads(text)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(500).decode("utf-8", "replace")
            if error.code == HTTPStatus.NOT_FOUND and body is None:
                raise WrongPayload(f"the schema registry has nothing at {path}: {said}") from None
            raise RegistryFailed(f"the schema registry refused {path} with {error.code}: {said}") from None
        except (OSError, ValueError) as error:
            raise RegistryFailed(f"the schema registry at {self._url} did not respond to {path}: {error}") from error
        if not isinstance(answer, dict):
            raise RegistryFailed(f"the schema registry's response to {path} is not a JSON object")
        return answer


class Avro(ByArguments, Serializer[V]):
    """Values of an Avro schema. Needs the extra `avro`.

    `schema`: JSON text, or what it means in Python. `kind`: the type of the values, for instance a dataclass; without
    it they are what Avro has (dicts for records). `registry` and `subject`: register the schema there, and read bodies
    that any client with this registry wrote.
    """

    @overload
    def __init__(
        self: Avro[Any],
        schema: str | Mapping[str, Any],
        *,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self,
        schema: str | Mapping[str, Any],
        kind: type[V],
        *,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
    ) -> None: ...

    def __init__(
        self,
        schema: str | Mapping[str, Any],
        kind: Any = None,
        *,
        registry: SchemaRegistry | None = None,
        subject: str | None = None,
    ) -> None:
        self._fastavro = _fastavro()
        try:
            plain = json.loads(schema) if isinstance(schema, str) else dict(schema)
            self._schema = self._fastavro.parse_schema(plain)
        except Exception as error:
            raise ConfigurationError(f"the Avro schema cannot be used: {error}") from error
        self._text = json.dumps(plain)
        self._kind = kind
        self._registry = registry
        self._subject = subject
        self._head: bytes | None = None if registry is not None else b""
        self._writers: dict[int, Any] = {}

    def _arguments(self) -> tuple[Any, ...]:
        return self._text, self._kind, self._registry, self._subject

    @property
    def schema(self) -> Any:
        """The schema, as what its JSON text means in Python."""
        return json.loads(self._text)

    def value_type(self) -> Any:
        return Any if self._kind is None else self._kind

    def for_type(self, kind: Any) -> Avro[Any]:
        made: Avro[Any] = copy(self)
        made._kind = kind
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_fastavro": None, "_writers": {}}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._fastavro = _fastavro()

    def connect(self) -> None:
        if self._registry is None:
            return
        if self._subject is None:
            raise ConfigurationError(
                'a producer with a schema registry needs a subject: Avro(..., subject="Orders-value")'
            )
        number = self._registry.register(self._subject, self._text)
        self._head = _MAGIC + number.to_bytes(4, "big")

    def encode(self, value: V) -> bytes:
        if self._head is None:
            raise ConfigurationError("the schema is not registered yet: a producer does so when it opens")
        plain = value if self._kind is None else msgspec.to_builtins(value, builtin_types=_AVRO_VALUES)
        out = BytesIO()
        out.write(self._head)
        self._fastavro.schemaless_writer(out, self._schema, plain)
        return out.getvalue()

    def is_ready_for(self, body: bytes) -> bool:
        # Of a body without a head `decode` says what is wrong.
        return self._registry is None or not _has_head(body) or _number(body) in self._writers

    def fetch(self, body: bytes) -> None:
        assert self._registry is not None
        number = _number(body)
        text = self._registry.schema(number)
        try:
            writer = self._fastavro.parse_schema(json.loads(text))
        except Exception as error:
            raise WrongPayload(f"schema {number} of the registry cannot be read: {error}") from error
        while len(self._writers) >= MAX_SCHEMAS:
            self._writers.pop(next(iter(self._writers)), None)
        self._writers[number] = writer

    def decode(self, body: bytes) -> V:
        writer = self._schema
        stream = BytesIO(body)
        if self._registry is not None:
            if not _has_head(body):
                raise WrongPayload("the body does not begin with a zero and the id of a schema")
            writer = self._writers[_number(body)]
            stream.seek(_HEAD_BYTES)
        try:
            value: Any = self._fastavro.schemaless_reader(stream, writer, self._schema)
        except Exception as error:  # fastavro raises what its reader trips over
            raise WrongPayload(f"the body is not a value of the schema: {type(error).__name__}: {error}") from error
        if left := len(body) - stream.tell():
            raise WrongPayload(f"{left} bytes follow the value")
        if self._kind is None:
            return value  # type: ignore[no-any-return]
        try:
            return msgspec.convert(value, self._kind)  # type: ignore[no-any-return]
        except msgspec.ValidationError as error:
            raise WrongPayload(str(error)) from error


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError:
        raise ConfigurationError(f"Avro needs fastavro: {install_hint('avro')}") from None
    return fastavro


def _has_head(body: bytes) -> bool:
    return len(body) >= _HEAD_BYTES and body[:1] == _MAGIC


def _number(body: bytes) -> int:
    return int.from_bytes(body[1:_HEAD_BYTES], "big")
