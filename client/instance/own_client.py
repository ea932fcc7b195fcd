"""The client of a producer, a consumer or an admin: the one it shares, or one of its own."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType

from triomq.client.core.config import ClientConfig, ClientOptions
from triomq.client.core.errors import ClientClosed, ConfigurationError
from triomq.client.core.option_names import check_options_of
from triomq.client.instance.client import Client
from triomq.client.instance.opening import Opened


class OpenedWithClient(Opened):
    """Base of what an application opens and what sends requests."""

    def __init__(self, shared: Client | None, options: ClientOptions) -> None:
        """Use `shared`, or a new client with these options. Raises ConfigurationError for options that do not exist or
        cannot be used, and for options of a shared client."""
        check_options_of(self, options)
        if shared is not None and options:
            raise ConfigurationError(f"options of the shared client cannot be changed here: {', '.join(options)}")
        self._client = Client(ClientConfig(**options)) if shared is None else shared
        self._owns_client = shared is None
        self._stack = AsyncExitStack()

    @property
    def client(self) -> Client:
        """The client that sends the requests."""
        return self._client

    async def _enter_client(self, stack: AsyncExitStack) -> None:
        """Open the client if it is the own one. Raises ClientClosed if a shared one is not open."""
        if self._owns_client:
            await stack.enter_async_context(self._client)
        elif not self._client.is_open:
            raise ClientClosed("the shared client is not open")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._opening_task = None
        await self._stack.aclose()
