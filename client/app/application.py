"""The application object: handlers of topics, local transactions and what they need, opened and closed together.

    app = TrioMQ("shop", name_server="127.0.0.1:9876", serializer=Json(Order))

    @app.consumer("Orders", group="billing", retries=3)
    async def bill(value: Order, producer: Producer) -> None: ...

    api = FastAPI(lifespan=app.lifespan)        # or: async with app: ...; or: triomq run shop:app

In an asyncio program the handlers that are `async def` run in its event loop, in a trio program in trio; plain ones run
in threads. What is provided opens first, then producers, then consumers; they close in reverse.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from inspect import isasyncgenfunction, isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import trio

from triomq.client.app.arguments import by_name
from triomq.client.app.around import awaited, publishing, through
from triomq.client.app.in_hand import InHand
from triomq.client.app.options import check_application_options, unsettable
from triomq.client.app.producer_kinds import OfKinds
from triomq.client.app.readiness import Members
from triomq.client.app.router import OF_A_MESSAGE, OF_A_TRANSACTION, Registered, Router
from triomq.client.app.testing import NameServed, Replaced, check_replacements
from triomq.client.app.value_types import check_returns, serializer_for
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.client_id import DEFAULT_INSTANCE_NAME
from triomq.client.core.config import ClientConfig, ClientOptions
from triomq.client.core.errors import ClientClosed, ConfigurationError
from triomq.client.core.group_names import check_group
from triomq.client.core.type_variables import T
from triomq.client.instance.handlers import name_of
from triomq.client.payloads.serializer import Serializer
from triomq.client.produce.producer import Producer
from triomq.client.produce.transaction_producer import TransactionProducer
from triomq.remoting import virtual_time

if TYPE_CHECKING:
    from triomq.client.app.producer_kinds import P
    from triomq.client.facades import aio

READY_SECONDS = 30.0
"""How long consumers may need for their queues where time is virtual."""


class TrioMQ(Router, OfKinds[T, "P"]):
    """An application: consumers, transactions and a producer that open and close together. Use it as `async with app`,
    as the lifespan of a FastAPI or Starlette application, or with `triomq run module:app`.

    `name`: the producer's group. `serializer`: for the producer, and for consumers that name none. `backend`: what
    `triomq run` starts it in, and of which kind its producer is for type checkers. `send_timeout_seconds`: the limit of
    one send, for the producer and the transactions. The other parameters are those of `ClientConfig`.

    All of them are given here, and none can be set later; `testing` points the application at another cluster.
    """

    # An attribute that is not one of these is refused: it would have no effect.
    __slots__ = (
        "__weakref__",
        "_in_hand",
        "_members",
        "_options",
        "_producer",
        "_replaced",
        "_send_timeout_seconds",
        "_stack",
        "backend",
        "name",
    )

    _is_application = True

    @overload
    def __init__(
        self: TrioMQ[T, aio.Producer[T]],
        name: str,
        *,
        serializer: Serializer[T] | None = None,
        backend: Literal["asyncio"] = "asyncio",
        send_timeout_seconds: float = 3.0,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: TrioMQ[T, Producer[T]],
        name: str,
        *,
        serializer: Serializer[T] | None = None,
        backend: Literal["trio"],
        send_timeout_seconds: float = 3.0,
        **options: Unpack[ClientOptions],
    ) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        serializer: Serializer[T] | None = None,
        backend: Literal["asyncio", "trio"] = "asyncio",
        send_timeout_seconds: float = 3.0,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_group(name, "producer")
        check_application_options(options)
        ClientConfig(**options)  # raises for what cannot be used, before anything runs
        if not send_timeout_seconds > 0:
            raise ConfigurationError(f"send_timeout_seconds must be positive, not {send_timeout_seconds}")
        super().__init__(serializer=serializer)
        self.name = name
        self.backend = backend
        self._send_timeout_seconds = send_timeout_seconds
        self._options = options
        self._producer: P | None = None
        self._stack: AsyncExitStack | None = None
        self._in_hand = InHand()
        self._members = Members()
        self._replaced: Replaced | None = None

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError:
            # A test that sets `app.name_server` would send to where the application really is, unnoticed.
            raise AttributeError(unsettable(name, [each for each in dir(self) if each[0] != "_"])) from None

    @property
    def producer(self) -> P:
        """The producer, while the application runs: in asyncio a `triomq.aio.Producer`, in trio a `triomq.Producer`."""
        if self._producer is None:
            raise ClientClosed(f"the application {self.name!r} does not run: use `async with app`, or its lifespan")
        return self._producer

    async def ready(self, timeout_seconds: float = 30.0) -> None:
        """Wait until each consumer has its share of the queues, also of its retry topic, so that what is sent now is
        delivered at once. Raises OperationTimeout, which names the consumers that have none; a topic that does not
        exist has none."""
        if self._stack is None:
            raise ClientClosed(f"the application {self.name!r} does not run: use `async with app`, or its lifespan")
        await self._members.ready(timeout_seconds, Members.missing)

    @property
    def name_server(self) -> str:
        """The address of its NameServer, several separated by ";": the one given, in `testing` that of the test."""
        config = ClientConfig(**self._client_options())
        return config.address_server or ";".join(config.name_servers)

    @contextmanager
    def testing(
        self,
        cluster: NameServed | str,
        *,
        provides: Mapping[str, Callable[..., Any]] | None = None,
        **options: Unpack[ClientOptions],
    ) -> Iterator[Self]:
        """Point the application at a cluster of a test, until the block ends:

            with app.testing(rocketmq):             # the fixture, or another LocalCluster, or "host:port"
                async with app: ...                 # or: with TestClient(api) as client: ...

        Everything that the application opens inside goes there: producer, transactions, consumers, and what `provides`
        makes with `app.name_server`. `provides` replaces what is provided: `provides={"database": fake_database}`. The
        account, TLS and vip channel of the application are left out, since a test's cluster has none; `options`, those
        of `ClientConfig`, give others. Raises ConfigurationError while the application is open.
        """
        self._check_closed()
        check_application_options(options)
        replaced = Replaced.by(cluster, options, provides or {})
        check_replacements(replaced.provides, self._all_providers())
        merged: ClientOptions = {**self._options, **replaced.options}
        ClientConfig(**merged)
        before, self._replaced = self._replaced, replaced
        try:
            yield self
        finally:
            self._replaced = before

    def _client_options(self) -> ClientOptions:
        return self._options if self._replaced is None else {**self._options, **self._replaced.options}

    def asyncapi(self, version: str = "0.0.0") -> dict[str, Any]:
        """Return the AsyncAPI 3.0 document of what is registered now: topics, operations of handlers, schemas of
        values. `version` is that of the application. Connects to nothing. Raises ConfigurationError for handlers with
        which the application does not open."""
        from triomq.client.app.asyncapi import document  # with what Avro needs

        self._check_unique()
        config = ClientConfig(**self._client_options())
        return document(self.name, version, config, self._all_consumers(), self._serializer)

    def _be_worker(self, number: int) -> None:
        """Be one of several processes that run this application: with a client id of its own, also if the instance
        name, of which it is made, is a fixed one."""
        name = self._options.get("instance_name", DEFAULT_INSTANCE_NAME)
        if name != DEFAULT_INSTANCE_NAME:
            self._options = {**self._options, "instance_name": f"{name}-{number}"}

    @asynccontextmanager
    async def lifespan(self, _application: object = None) -> AsyncIterator[None]:
        """Run while a FastAPI or Starlette application does: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    async def __aenter__(self) -> Self:
        self._check_closed()
        self._check_unique()
        handlers = {
            group: replace(one, serializer=serializer_for(one.function, one.serializer))
            for group, one in self._all_consumers().items()
        }
        for one in handlers.values():
            if one.publish_to is not None:
                check_returns(one.function, one.publish_serializer or self._serializer)
        self._stack = AsyncExitStack()
        async with self._stack as stack:
            stack.callback(self._closed)
            known: dict[str, Any] = {"app": self}
            replaced = {} if self._replaced is None else self._replaced.provides
            for name, provider in {**self._all_providers(), **replaced}.items():
                provide = by_name(provider, {}, known)
                if isasyncgenfunction(provider):
                    known[name] = await stack.enter_async_context(asynccontextmanager(provide)())
                else:
                    value = provide()
                    known[name] = await value if isawaitable(value) else value
            await self._open_members(handlers, known, stack)
            watched = virtual_time.watched_at(self.name_server.split(";"))
            if watched is not None:  # the next jump of its clock must not pass them
                await self._members.ready(READY_SECONDS, watched.waits_of)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Without the error: messages in hand are finished, whatever ended the block.
        if self._stack is not None:
            with self._in_hand.saying(self.name):
                await self._stack.aclose()

    async def _open_members(
        self, handlers: Mapping[str, Registered], known: dict[str, Any], stack: AsyncExitStack
    ) -> None:
        kinds: tuple[Any, Any, Any] = (Producer, TransactionProducer, PushConsumer)
        if not trio.lowlevel.in_trio_run():
            from triomq.client.facades import aio

            kinds = (aio.Producer, aio.TransactionProducer, aio.PushConsumer)
        limit: dict[str, Any] = {"send_timeout_seconds": self._send_timeout_seconds}
        options = self._client_options()
        made = kinds[0](self.name, serializer=self._serializer, **limit, **options)
        self._producer = known["producer"] = await stack.enter_async_context(made)
        for group, transaction in self._all_transactions().items():
            if transaction.checker is None:
                name = transaction.execute.__qualname__
                raise ConfigurationError(f"the transaction {name} has no check: decorate a function with @{name}.check")
            execute = by_name(transaction.execute, OF_A_TRANSACTION, known)
            check = by_name(transaction.checker, OF_A_MESSAGE, known)
            made = kinds[1](group, execute, check, **limit, **options)
            if transaction.producer is not None:
                name = transaction.execute.__qualname__
                raise ConfigurationError(f"the transaction {name} runs in another application already")
            transaction.producer = await stack.enter_async_context(made)
            stack.callback(setattr, transaction, "producer", None)
        self._members = Members()
        consumers: list[Any] = []
        threads = stack.enter_context(ExitStack())
        for group, one in handlers.items():
            made = kinds[2](group, serializer=one.serializer, **one.options, **options)
            made.subscribe(one.topic, one.expression)
            name = name_of(one.function)
            handler = f"{name} (group {group!r}, topic {one.topic!r}, at most {one.rules.close_seconds:g} s)"
            made.listen(self._in_hand.counting(handler, await self._call_of(one, known, threads, made)))
            consumers.append(await stack.enter_async_context(made))
            self._members.add(f"{name} (group {group!r})", made)
        # All stop pulling before the first closes, which takes as long as its messages in hand.
        stack.callback(lambda: [consumer.suspend() for consumer in consumers])

    async def _call_of(
        self, one: Registered, known: dict[str, Any], threads: ExitStack, consumer: Any
    ) -> Callable[..., Any]:
        """Return the listener of a handler of a consumer, with what is around it."""
        call = by_name(one.function, OF_A_MESSAGE, known)
        if not one.middleware and one.publish_to is None:
            return call
        call = through(one.middleware, awaited(call, one.rules.concurrency, threads, consumer))
        if one.publish_to is None:
            return call
        make = known["producer"].message
        if one.publish_serializer is not None:
            in_thread = trio.to_thread.run_sync if trio.lowlevel.in_trio_run() else asyncio.to_thread
            await in_thread(one.publish_serializer.connect)
            make = Producer(self.name, serializer=one.publish_serializer, **self._client_options()).message
        return publishing(call, one.publish_to, make, known["producer"].send)

    def _check_unique(self) -> None:
        super()._check_unique()
        if self.name in self._all_transactions():
            raise ConfigurationError(
                f"the producer group {self.name!r} is taken; give each transaction a group of its own"
            )

    def _is_producer_group(self, group: str) -> bool:
        return group == self.name or super()._is_producer_group(group)

    def _closed(self) -> None:
        self._stack = self._producer = None

    def _check_closed(self) -> None:
        if self._stack is not None:
            raise ConfigurationError(f"the application {self.name!r} runs already")
