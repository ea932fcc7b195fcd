"""The blocking connection (triomq.remoting.blocking_connection) as sources and sink use it: it sends and receives
RemotingCommands, which the requests and readers of the client's core are made of, and follows the options.
"""

from __future__ import annotations

import ssl

from triomq.protocol.command import RPC_RESPONSE, RemotingCommand
from triomq.protocol.json_frame import Request
from triomq.remoting.blocking_connection import BlockingConnection, TooManyRequests
from triomq.spark.errors import BrokerError, OptionError
from triomq.spark.options import ConnectionOptions


class CommandConnection:
    """Every method raises OSError (TimeoutError included) and FrameError when the connection is of no more use."""

    def __init__(self, address: str, options: ConnectionOptions) -> None:
        credentials = None
        if options.access_key is not None:
            credentials = options.access_key, options.secret_key or "", options.security_token
        self._connection = BlockingConnection(
            address,
            options.request_timeout_ms / 1000,
            context=(lambda: tls_context(options)) if options.tls else None,
            credentials=credentials,
        )

    def close(self) -> None:
        self._connection.close()

    def send(self, *requests: RemotingCommand) -> list[int]:
        """Write requests in one piece and return their numbers. Raises BrokerError if too many are unanswered."""
        try:
            return self._connection.send(
                *[
                    Request(request.code, request.ext_fields or {}, request.body, is_oneway=request.is_oneway)
                    for request in requests
                ]
            )
        except TooManyRequests as error:
            raise BrokerError(str(error)) from None

    def receive(self, opaque: int) -> RemotingCommand:
        """Return the response to request `opaque`. Waits as long as bytes keep coming within the request timeout."""
        response = self._connection.receive(opaque)
        return RemotingCommand(
            response.code,
            flag=RPC_RESPONSE,
            opaque=response.opaque,
            remark=response.remark or None,
            body=response.body,
            ext_fields=response.fields,
        )

    def call(self, request: RemotingCommand) -> RemotingCommand:
        """Send one request and return its response."""
        return self.receive(self.send(request)[0])


def tls_context(options: ConnectionOptions) -> ssl.SSLContext:
    """The context of the options tls.client.*. Raises OptionError for files that cannot be used."""
    # Only here: it loads trio, which an executor without TLS does not need.
    from triomq.remoting.tls import TlsError, TlsSettings, client_context

    settings = TlsSettings(
        test_mode_text="false",
        check_servers_text=str(options.tls_auth_server).lower(),
        client_trust=options.tls_trust_path,
        client_certificate=options.tls_cert_path,
        client_key=options.tls_key_path or options.tls_cert_path,
        client_key_password=options.tls_key_password,
    )
    try:
        return client_context(settings)
    except TlsError as error:
        raise OptionError(f"option tls.client: {error}") from None
