"""Requests to NameServers and brokers: one blocking connection to each address, opened when it is first needed.

`request` and `call` send one request and wait for its response. `begin` and `next_response` are for several requests in
flight. One thread, one owner; `with` closes the connections. A connection that failed is opened again.
"""

from __future__ import annotations

import os
import time

from triomq.admin import bodies
from triomq.admin.errors import AdminError, NoResponse, NotAllowed, NotFound, Unreachable, UsageError
from triomq.protocol.errors import FrameError
from triomq.protocol.json_frame import LANGUAGE, Request, Response
from triomq.remoting.blocking_connection import BlockingConnection, PeerClosed

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, Self, TypeVar

    S = TypeVar("S", bound="Session")

TIMEOUT_SECONDS = 5.0
SUCCESS = 0
NOT_SUPPORTED = 3

# ResponseCode of RocketMQ -> what a script sees.
_NOT_FOUND = {17, 22, 26, 206}  # TOPIC_NOT_EXIST, QUERY_NOT_FOUND, SUBSCRIPTION_GROUP_NOT_EXIST, CONSUMER_NOT_ONLINE
_OF_NAME_SERVERS = {*range(100, 107), 205, 206, 216, 219, 224, 304, 311, 312, 313, 318, 319, 322, 327, 30_004}
"""Codes of requests that NameServers handle; a test compares them with ours."""
_NOT_ALLOWED = {16}  # NO_PERMISSION


class Refused(AdminError):
    """A NameServer or broker responded with a code other than SUCCESS."""

    def __init__(self, address: str, response: Response) -> None:
        from triomq.protocol.java_remarks import without_java

        self.reason = without_java(" ".join(response.remark.split())) or "no reason given"
        super().__init__(f"{address} refused: {self.reason} (code {response.code})")
        self.address = address
        self.code = response.code
        self.remark = response.remark
        if response.code in _NOT_FOUND:
            self.exit_status = NotFound.exit_status
        elif response.code in _NOT_ALLOWED or "AclException" in response.remark:
            self.exit_status = NotAllowed.exit_status


class Session:
    """`name_servers` are addresses separated by semicolons. `ca_file` has the certificates to trust; without it none is
    checked.
    """

    def __init__(
        self,
        name_servers: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        credentials: tuple[str, str] | None = None,
        tls: bool = False,
        ca_file: str = "",
    ) -> None:
        self.name_servers = [address.strip() for address in name_servers.split(";") if address.strip()]
        self._timeout_seconds = timeout_seconds
        self._credentials = credentials
        self._tls = tls
        self._ca_file = ca_file
        self._connections: dict[str, BlockingConnection] = {}
        self._cluster_info: dict[str, Any] | None = None
        self._silent: dict[str, NoResponse] | None = None

    def ask_once(self, timeout_seconds: float) -> None:
        """Wait at most so long for any response from now on, and ask nobody again who gave none: for a command that
        asks every peer many things."""
        self._timeout_seconds = min(self._timeout_seconds, timeout_seconds)
        self._silent = {}

    def another(self) -> Session:
        """Return a session with the same peers and account, and connections of its own: for another thread."""
        return self.another_of(Session)

    def another_of(self, kind: Callable[..., S]) -> S:
        """Return one of this kind."""
        return kind(
            ";".join(self.name_servers),
            timeout_seconds=self._timeout_seconds,
            credentials=self._credentials,
            tls=self._tls,
            ca_file=self._ca_file,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    # -- requests ----------------------------------------------------------------------------------------------------

    def response_instead(self, address: str, code: int, fields: dict[str, Any], body: bytes) -> Response | None:
        """Return a response to a request that is not to be sent; None to send it. For sessions that change nothing."""
        return None

    def request(
        self,
        address: str,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        timeout_seconds: float | None = None,
        language: str = LANGUAGE,
    ) -> Response:
        """Return the response, whatever its code. Fields that are None are omitted; booleans are true and false."""
        response = self.response_instead(address, code, fields or {}, body)
        if response is not None:
            return response
        if self._silent is not None and address in self._silent:
            raise self._silent[address]
        connection = self._connection(address)
        seconds = timeout_seconds or self._timeout_seconds
        deadline = time.monotonic() + seconds
        try:
            (opaque,) = connection.send(_request(code, fields, body, language), deadline=deadline)
            return connection.receive(opaque, deadline=deadline)
        except (OSError, FrameError) as error:
            raise self._failed(address, error, seconds) from error

    def begin(self, address: str, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> int:
        """Send a request and return its number; `next_response` has the responses. Not for sessions that only plan."""
        if self.response_instead(address, code, fields or {}, body) is not None:
            raise AdminError(f"request {code} is only planned, and has no response")
        connection = self._connection(address)
        try:
            (opaque,) = connection.send(_request(code, fields, body, LANGUAGE))
        except OSError as error:
            raise self._failed(address, error, self._timeout_seconds) from error
        return opaque

    def next_response(self, address: str, *, timeout_seconds: float | None = None) -> Response:
        """Return the next response to a request of `begin`, in any order and whatever its code."""
        seconds = timeout_seconds or self._timeout_seconds
        connection = self._connection(address)
        try:
            return connection.next_response(deadline=time.monotonic() + seconds)
        except (OSError, FrameError) as error:
            raise self._failed(address, error, seconds) from error

    def _connection(self, address: str) -> BlockingConnection:
        connection = self._connections.get(address)
        if connection is None:
            try:
                connection = BlockingConnection(
                    address,
                    self._timeout_seconds,
                    context=self._context if self._tls else None,
                    credentials=None if self._credentials is None else (*self._credentials, None),
                )
            except ValueError as error:
                raise UsageError(str(error)) from None
            except OSError as error:
                raise Unreachable(f"cannot connect to {address}: {_reason(error)}") from error
            self._connections[address] = connection
        return connection

    def _context(self) -> ssl.SSLContext:
        import ssl

        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=self._ca_file or None)
        context.check_hostname = False
        if not self._ca_file:
            context.verify_mode = ssl.CERT_NONE
        return context

    def _failed(self, address: str, error: OSError | FrameError, seconds: float) -> Unreachable:
        """Close a connection that is of no more use, and return what the command says of it."""
        self._connections.pop(address).close()
        if isinstance(error, TimeoutError):
            from triomq.remoting.wrong_port import recognized

            what = recognized(address, self._context if self._tls else None)
            if what:
                return Unreachable(f"{address} did not respond within {seconds:g} s: {what}")
            silent = NoResponse(f"{address} did not respond within {seconds:g} s")
            if self._silent is not None:
                self._silent[address] = silent
            return silent
        if isinstance(error, OSError):
            return Unreachable(f"the connection to {address} broke: {_reason(error)}")
        return Unreachable(f"{address} does not speak RocketMQ's protocol: {error}")

    def call(
        self,
        address: str,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes = b"",
        *,
        timeout_seconds: float | None = None,
    ) -> Response:
        """Return a response of SUCCESS. Raises Refused for any other code."""
        response = self.request(address, code, fields, body, timeout_seconds=timeout_seconds)
        if response.code != SUCCESS:
            self._check_kind(address, code, response)
            raise Refused(address, response)
        return response

    def _check_kind(self, address: str, code: int, response: Response) -> None:
        """Raise Unreachable if the peer does not support a request because it is a broker in place of a NameServer, or
        the other way round."""
        if response.code != NOT_SUPPORTED:
            return
        from triomq.protocol.wrong_port import BROKER, NAME_SERVER
        from triomq.remoting.wrong_port import GET_BROKER_CLUSTER_INFO, GET_BROKER_RUNTIME_INFO, responds

        context = self._context if self._tls else None
        other, what = GET_BROKER_CLUSTER_INFO, NAME_SERVER
        if code in _OF_NAME_SERVERS:
            other, what = GET_BROKER_RUNTIME_INFO, BROKER
        if responds(address, other, context):
            raise Unreachable(f"{address}: {what}")

    def ask_name_server(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Response:
        """Send a request to the first NameServer that can be reached; return its response as `call` does."""
        failures: list[str] = []
        for address in self.required_name_servers():
            try:
                return self.call(address, code, fields, body)
            except Unreachable as error:
                failures.append(str(error))
        raise Unreachable("; ".join(failures))

    def required_name_servers(self) -> list[str]:
        if not self.name_servers:
            raise UsageError("no NameServer is known: give -n HOST:PORT or set NAMESRV_ADDR")
        return self.name_servers

    # -- what most commands ask first --------------------------------------------------------------------------------

    def cluster_info(self) -> dict[str, Any]:
        """Return brokers and clusters as a NameServer knows them (ClusterInfo: brokerAddrTable, clusterAddrTable)."""
        if self._cluster_info is None:
            self._cluster_info = bodies.loads(self.ask_name_server(106).body)
        return self._cluster_info

    def forget_cluster_info(self) -> None:
        """Query again the next time."""
        self._cluster_info = None

    def broker_names(self, cluster: str) -> list[str]:
        """Return the broker names of a cluster. Raises NotFound if no NameServer knows the cluster."""
        names = self.cluster_info().get("clusterAddrTable", {}).get(cluster)
        if not names:
            raise NotFound(
                f"no NameServer of {';'.join(self.name_servers)} knows a cluster {cluster!r}: "
                "the name may be wrong, or these NameServers belong to another cluster"
            )
        return list(names)

    def broker_addresses(self, name: str) -> dict[int, str]:
        """Return the addresses of a broker name by broker id; 0 is the master."""
        data = self.cluster_info().get("brokerAddrTable", {}).get(name, {})
        return {int(number): address for number, address in sorted(data.get("brokerAddrs", {}).items())}

    def masters(self, cluster: str) -> list[str]:
        """Return the addresses of the masters of a cluster."""
        tables = [self.broker_addresses(name) for name in self.broker_names(cluster)]
        return [table[0] for table in tables if 0 in table]

    def masters_and_slaves(self, cluster: str) -> list[str]:
        return [address for name in self.broker_names(cluster) for address in self.broker_addresses(name).values()]

    def route(self, topic: str) -> dict[str, Any]:
        """Return the TopicRouteData of a topic. Raises NotFound if it has none."""
        try:
            route: dict[str, Any] = bodies.loads(self.ask_name_server(105, {"topic": topic}).body)
        except Refused as error:
            if error.code == 17:
                raise NotFound(f"no NameServer has a route of topic {topic!r}: does it exist?") from error
            raise
        return route


def credentials_of_environment() -> tuple[str, str] | None:
    """Return MQADMIN_ACCESS_KEY and MQADMIN_SECRET_KEY (or the secret in MQADMIN_SECRET_KEY_FILE), else the account in
    conf/tools.yml of ROCKETMQ_HOME, as Java does. Raises UsageError for an account that cannot be used.
    """
    from triomq.protocol.account_text import account_in_document, account_in_variables
    from triomq.protocol.secret_text import SecretError

    try:
        account = account_in_variables(os.environ, "MQADMIN", _read_secret)
    except SecretError as error:
        raise UsageError(str(error)) from None
    if account is not None:
        return account
    home = os.environ.get("ROCKETMQ_HOME")
    path = os.path.join(home, "conf", "tools.yml") if home else ""
    if not path or not os.path.exists(path):
        return None
    import yaml

    with open(path, encoding="utf-8") as file:
        document = yaml.safe_load(file)
    try:
        return account_in_document(document, lambda name: _read_secret(os.path.join(os.path.dirname(path), name)))
    except SecretError as error:
        raise UsageError(f"{path}: {error}") from None


def _read_secret(path: str) -> str:
    from triomq.protocol.secret_text import MAX_SECRET_BYTES, SecretError, secret_of

    try:
        with open(path, "rb") as file:
            return secret_of(file.read(MAX_SECRET_BYTES + 1), os.fstat(file.fileno()).st_mode)
    except OSError as error:
        raise SecretError(f"{path} cannot be read: {error.strerror}") from None
    except SecretError as error:
        raise SecretError(f"{path} cannot be used: {error}") from None


def _request(code: int, fields: dict[str, Any] | None, body: bytes, language: str) -> Request:
    texts = {key: _text(value) for key, value in (fields or {}).items() if value is not None}
    return Request(code, texts, body, language=language)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _reason(error: OSError) -> str:
    if isinstance(error, PeerClosed):
        return "closed by the peer"
    return error.strerror or str(error) or type(error).__name__
