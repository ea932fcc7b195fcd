"""The settings of one client instance. The same options are keyword arguments of every producer, consumer and admin."""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict
from urllib.parse import urlsplit

from triomq.client.core.client_id import DEFAULT_INSTANCE_NAME
from triomq.client.core.errors import ConfigurationError
from triomq.client.core.hooks import RequestHook

if TYPE_CHECKING:  # OpenTelemetry is an extra
    from opentelemetry.trace import TracerProvider


@dataclass(frozen=True, slots=True)
class Credentials:
    """An ACL account (RocketMQ: SessionCredentials). The secret never appears in logs or messages. With `bound` a
    second signature binds the request code and the time, for TrioMQ's brokers; RocketMQ's ignore it."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
    bound: bool = False


class ClientOptions(TypedDict, total=False):
    """Keyword arguments that make a `ClientConfig`; see there for what they mean."""

    name_server: str | Sequence[str]
    instance_name: str
    client_ip: str
    unit_name: str
    unit_mode: bool
    namespace: str
    credentials: Credentials
    tls: bool | ssl.SSLContext
    vip_channel: bool
    hooks: Sequence[RequestHook]
    request_timeout_seconds: float
    route_interval_seconds: float
    heartbeat_interval_seconds: float
    persist_interval_seconds: float
    offset_directory: Path
    otel: bool | TracerProvider
    now_ms: Callable[[], int]


def system_now_ms() -> int:
    """Return the wall clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientConfig:
    """The settings of one client instance (RocketMQ: ClientConfig). Raises ConfigurationError for values that cannot be
    used."""

    name_server: str | Sequence[str] = ()
    """Addresses "host:port", several separated by ";" or as a list; or the URL where such a list is published,
    "http://host:8080/rocketmq/nsaddr" (RocketMQ: rocketmq.namesrv.domain), which the client reads when it opens and
    every two minutes. The default is the environment's NAMESRV_ADDR."""
    instance_name: str = DEFAULT_INSTANCE_NAME
    """Part of the client id. Broadcasting consumers need a fixed one to continue where they stopped."""
    client_ip: str | None = None
    """Part of the client id; None: the address that packets to the name server carry."""
    unit_name: str | None = None
    unit_mode: bool = False
    namespace: str | None = None
    """Prefix of all topics and groups (`<namespace>%<name>`), invisible to the application."""
    credentials: Credentials | None = None
    """ACL account that signs every request."""
    tls: bool | ssl.SSLContext = False
    """True: TLS without checking certificates (RocketMQ's test mode). A context says exactly what is trusted."""
    vip_channel: bool = False
    """Use the broker's second port (listenPort - 2) for everything but pulls."""
    hooks: Sequence[RequestHook] = ()
    request_timeout_seconds: float = 3.0
    """Time limit of a call to a broker or name server that has no limit of its own."""
    route_interval_seconds: float = 30.0
    heartbeat_interval_seconds: float = 30.0
    persist_interval_seconds: float = 5.0
    offset_directory: Path = field(default_factory=lambda: Path.home() / ".rocketmq_offsets")
    """Where broadcasting consumers keep their offsets."""
    otel: bool | TracerProvider = False
    """Make spans of OpenTelemetry for sends and listener calls, by the process's tracer provider or the one given. It
    needs the extra `otel`."""
    now_ms: Callable[[], int] = system_now_ms

    def __post_init__(self) -> None:
        # Lists become tuples, so that a configuration has a hash and nobody changes it later.
        if not isinstance(self.name_server, str):
            object.__setattr__(self, "name_server", tuple(self.name_server))
        object.__setattr__(self, "hooks", tuple(self.hooks))
        if not self.name_servers and self.address_server is None:
            raise ConfigurationError(
                'no name server address: give name_server="host:9876" or set the environment variable NAMESRV_ADDR'
            )
        for name in ("request_timeout", "route_interval", "heartbeat_interval", "persist_interval"):
            value = getattr(self, f"{name}_seconds")
            if not value > 0:
                raise ConfigurationError(f"{name}_seconds must be more than 0, not {value}")

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses as a list, empty with an address server. Raises ConfigurationError for one that is not
        host:port."""
        return () if self.address_server is not None else parse_addresses(self._given)

    @property
    def address_server(self) -> str | None:
        """The URL at which the list of name servers is published, if there is one. A URL has a path, an address has
        none."""
        given = self._given
        if not isinstance(given, str):
            given = given[0] if len(given) == 1 else ""
        parts = urlsplit(given.strip())
        return given.strip() if parts.scheme == "http" and parts.path.strip("/") else None

    @property
    def _given(self) -> str | Sequence[str]:
        return self.name_server or os.environ.get("NAMESRV_ADDR", "")


def parse_addresses(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of name servers. Raises ConfigurationError for one that is not host:port."""
    parts = re.split(r"[;,\s]+", given) if isinstance(given, str) else given
    return tuple(_host_port(part) for part in parts if part.strip())


def _host_port(text: str) -> str:
    address = text.strip().removeprefix("http://").rstrip("/")
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigurationError(f"the name server address {text!r} is not host:port")
    return address
