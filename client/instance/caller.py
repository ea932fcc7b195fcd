"""Calls to brokers and name servers over the connections of one client.

Holds the open remoting client, the name server list and the request hooks, which see every request and response. Errors
of connections leave as `MQClientError`, except from `invoke`. May not live here: which broker to call.
"""

from __future__ import annotations

import os
import ssl
from abc import abstractmethod
from collections.abc import Callable, Container
from typing import TypeVar
from urllib.parse import urlsplit

import trio

from triomq.client.core import signing
from triomq.client.core.client_id import local_ip, make_client_id
from triomq.client.core.config import ClientConfig, parse_addresses
from triomq.client.core.errors import (
    BrokerRefused,
    BrokerUnreachable,
    ClientClosed,
    ConfigurationError,
    MQClientError,
    NameServersUnreachable,
    OperationTimeout,
)
from triomq.client.core.hooks import RequestHook
from triomq.client.core.log import get_logger
from triomq.client.core.namespace import Namespace
from triomq.client.core.requests import Call
from triomq.client.core.spans import NO_SPANS, Spans
from triomq.client.instance.inherited import INHERITED
from triomq.client.instance.name_servers import NameServers
from triomq.client.instance.wrong_port import recognized
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.extras import install_hint
from triomq.protocol.outage import Outages
from triomq.remoting.client import RemotingClient
from triomq.remoting.errors import ConnectFailed, ConnectionClosed, RemotingError, RemotingTimeout, TooManyRequests
from triomq.remoting.http_get import HttpFailed, get_text
from triomq.remoting.process_bound import ProcessBound

log = get_logger("triomq.client.client")

T = TypeVar("T")


class Caller(ProcessBound):
    """The part of a client that sends requests."""

    def __init__(self, config: ClientConfig) -> None:
        self.config = config
        self._process_id = os.getpid()
        self.namespace = Namespace(config.namespace)
        self.name_servers = NameServers(config.name_servers)
        towards = config.name_servers[0] if config.name_servers else urlsplit(config.address_server or "").netloc
        ip = config.client_ip or local_ip(towards)
        self.client_id = make_client_id(ip, config.instance_name, config.unit_name)
        self._hooks: list[RequestHook] = [*config.hooks]
        if config.credentials is not None:
            self._hooks.append(signing.SigningHook(config.credentials, config.now_ms))
        self._remoting: RemotingClient | None = None
        self._absences = Outages()
        self._doubted: dict[str, bool] = {}
        """See MasterSearch."""
        self.spans = _spans(config, self.namespace, self.client_id)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent: inside the `async with` block."""
        return self._remoting is not None

    async def invoke(
        self, address: str, request: RemotingCommand, timeout_seconds: float | None = None, *, vip: bool = False
    ) -> RemotingCommand:
        """Send a request and return the response, whatever its code. Raises RemotingError."""
        remoting = self._open_remoting()
        target = vip_address(address) if vip and self.config.vip_channel else address
        for hook in self._hooks:
            hook.before_request(target, request)
        limit = self.config.request_timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            response = await remoting.invoke(target, request, limit)
        except RemotingTimeout as error:
            self.doubt(target, str(error))
            raise
        except (ConnectFailed, ConnectionClosed) as error:
            self._not_reached(target, error)  # which warns of it
            self.doubt(target, None)
            raise
        if self._doubted:
            self._responded(target)
        if self._absences and self._absences.worked(target):
            log.info("server reached again", server=target)
        for hook in self._hooks:
            hook.after_response(target, request, response)
        return response

    async def tell(self, address: str, request: RemotingCommand, *, vip: bool = False) -> None:
        """Send a one-way request. Raises BrokerUnreachable."""
        remoting = self._open_remoting()
        target = vip_address(address) if vip and self.config.vip_channel else address
        for hook in self._hooks:
            hook.before_request(target, request)
        try:
            await remoting.invoke_oneway(target, request, self.config.request_timeout_seconds)
        except RemotingError as error:
            self._not_reached(target, error)
            raise BrokerUnreachable(f"cannot send to {target}: {error}") from error
        for hook in self._hooks:
            hook.after_response(target, request, None)

    async def call(self, address: str, call: Call[T], timeout_seconds: float | None = None) -> T:
        """Send a request to a broker and read its response. Raises BrokerRefused, BrokerUnreachable,
        OperationTimeout."""
        limit = call.timeout_seconds if timeout_seconds is None else timeout_seconds
        try:
            response = await self.invoke(address, call.request, limit, vip=call.is_vip)
        except RemotingError as error:
            raise translated(error, f"{call.action} at {address}") from error
        self._check_role(response, address)
        return call.result(response, address)

    async def ask(
        self,
        address: str,
        request: RemotingCommand,
        action: str,
        *,
        timeout_seconds: float | None = None,
        accept: Container[int] = (ResponseCode.SUCCESS,),
        vip: bool = True,
    ) -> RemotingCommand:
        """Send a request to a broker and return its response when the code is in `accept`. `action` names the request
        in errors. Raises BrokerRefused, BrokerUnreachable, OperationTimeout."""
        try:
            response = await self.invoke(address, request, timeout_seconds, vip=vip)
        except RemotingError as error:
            raise translated(error, f"{action} at {address}") from error
        self._check_role(response, address)
        if response.code not in accept:
            raise BrokerRefused(response.code, response.remark, address=address, action=action)
        return response

    def _check_role(self, response: RemotingCommand, address: str) -> None:
        if response.code == ResponseCode.SLAVE_NOT_AVAILABLE:  # a member of a group that follows another one
            self.doubt(address, response.remark or "", responds=True)

    @abstractmethod
    def doubt(self, address: str, reason: str | None, *, responds: bool = False) -> None:
        """Note that a server did not respond, or (`responds`) that it is not the master."""

    @abstractmethod
    def _responded(self, address: str) -> None:
        """Note a response while some server is in doubt."""

    async def ask_name_server(
        self,
        request: Callable[[], RemotingCommand],
        action: str,
        *,
        accept: Container[int] = (ResponseCode.SUCCESS,),
    ) -> RemotingCommand:
        """Ask the name servers, one after the other, and return the first response. Raises NameServersUnreachable,
        BrokerRefused."""
        address, response = await self._first_response(request)
        if response.code not in accept:
            raise BrokerRefused(response.code, response.remark, address=address, action=action)
        return response

    async def _first_response(self, request: Callable[[], RemotingCommand]) -> tuple[str, RemotingCommand]:
        """Ask the name servers, one after the other, and return (address, response) of the first that responds. Raises
        NameServersUnreachable."""
        limit = self.config.request_timeout_seconds
        return await self.name_servers.ask(self.invoke, request, limit, self._not_reached, self._recognize)

    async def _recognize(self, address: str) -> str:
        """Return what to say of a silent server, empty if nothing gives it away."""
        return await recognized(address, self._open_remoting())

    def _not_reached(self, address: str, error: Exception) -> None:
        """Warn of an absent server, once and then once a minute."""
        if not isinstance(error, TooManyRequests) and self._absences.failed(address, trio.current_time()):
            log.warning("server not reached; trying again", server=address, error=str(error))

    async def _fetch_name_servers(self) -> None:
        """Read the list of name servers from the address server. Raises NameServersUnreachable."""
        url = self.config.address_server or ""
        try:
            addresses = parse_addresses(await get_text(url, self.config.request_timeout_seconds))
        except (HttpFailed, ConfigurationError) as error:
            raise NameServersUnreachable({url: str(error)}) from error
        if not addresses:
            raise NameServersUnreachable({url: "the list is empty"})
        if addresses != self.name_servers.addresses:
            log.info("list of name servers fetched", addresses=";".join(addresses))
            self.name_servers.replace(addresses)

    def _open_remoting(self) -> RemotingClient:
        if os.getpid() != self._process_id:
            raise ClientClosed(INHERITED)  # its connections are the parent's
        if self._remoting is None:
            raise ClientClosed("this client is closed: producers and consumers work inside `async with`")
        return self._remoting


def _spans(config: ClientConfig, namespace: Namespace, client_id: str) -> Spans:
    """Return what makes the spans of this client. Raises ConfigurationError without the extra."""
    if config.otel is False:
        return NO_SPANS
    try:
        from triomq.client.instance.open_telemetry import OpenTelemetry
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "opentelemetry":
            raise
        raise ConfigurationError(f"otel needs OpenTelemetry's packages: {install_hint('otel')}") from error
    return OpenTelemetry(None if config.otel is True else config.otel, namespace, client_id)


def vip_address(address: str) -> str:
    """Return the broker's second port: listenPort - 2."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def translated(error: RemotingError, action: str) -> MQClientError:
    """Return the error of a connection as one of the client's errors."""
    if isinstance(error, RemotingTimeout):
        return OperationTimeout(f"{action}: {error}")
    if isinstance(error, ConnectFailed):
        return BrokerUnreachable(f"{action}: {error}")
    return BrokerUnreachable(f"{action}: {type(error).__name__}: {error}")


def tls_context(config: ClientConfig) -> ssl.SSLContext | None:
    if not config.tls:
        return None
    if isinstance(config.tls, ssl.SSLContext):
        return config.tls
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
