"""The client of a producer, a consumer or an admin: the one it shares, or one of its own."""

from __future__ import annotations

from triomq.client.core.config import ClientConfig, ClientOptions
from triomq.client.core.errors import ConfigurationError
from triomq.client.core.option_names import check_options_of
from triomq.client.instance.client import Client


def client_of(owner: object, shared: Client | None, options: ClientOptions) -> Client:
    """Return `shared`, or a new client with these options. Raises ConfigurationError for options that do not exist or
    cannot be used, and for options of a shared client."""
    check_options_of(owner, options)
    if shared is None:
        return Client(ClientConfig(**options))
    if options:
        raise ConfigurationError(f"options of the shared client cannot be changed here: {', '.join(options)}")
    return shared
