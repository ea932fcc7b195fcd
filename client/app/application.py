"""The application object: handlers of topics, local transactions and what they need, opened and closed together.

    app = TrioMQ("shop", name_server="127.0.0.1:9876", serializer=Json(Order))

    @app.consumer("Orders", group="billing", retries=3)
    async def bill(value: Order, producer: Producer) -> None: ...

    api = FastAPI(lifespan=app.lifespan)        # or: async with app: ...; or: triomq run shop:app

In an asyncio program the handlers that are `async def` run in its event loop, in a trio program in trio; plain ones run
in threads. What is provided opens first, then producers, then consumers; they close in reverse.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import replace
from inspect import isasyncgenfunction, isawaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

import trio

from triomq.client.app.arguments import by_name, check_names_arguments
from triomq.client.app.in_hand import InHand
from triomq.client.app.options import ConsumerOptions, check_application_options, check_consumer_options, unsettable
from triomq.client.app.producer_kinds import OfKinds
from triomq.client.app.testing import NameServed, Replaced, check_replacements
from triomq.client.app.value_types import serializer_for
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.config import ClientConfig, ClientOptions
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import ClientClosed, ConfigurationError
from triomq.client.core.group_names import check_group
from triomq.client.core.results import TransactionSendResult
from triomq.client.core.type_variables import T
from triomq.client.instance.handlers import name_of
from triomq.client.payloads.serializer import Serializer
from triomq.client.produce.producer import Producer
from triomq.client.produce.transaction_producer import TransactionProducer
from triomq.protocol.message import Message
from triomq.remoting.process_bound import ProcessBound

if TYPE_CHECKING:
    from triomq.client.app.producer_kinds import P
    from triomq.client.facades import aio

F = TypeVar("F", bound=Callable[..., Any])

_OF_A_MESSAGE = {"message": lambda message: message, "value": lambda message: message.value}
_OF_A_TRANSACTION = {"message": lambda message, _: message, "argument": lambda _, argument: argument}


class Transaction(ProcessBound):
    """A local transaction of an application; see `TrioMQ.transaction`."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self.execute = execute
        self.checker: Callable[..., Any] | None = None
        self.producer: Any = None

    def check(self, function: F) -> F:
        """Decorate the function that looks up how the transaction of a message ended, when the broker asks."""
        check_names_arguments(function, _OF_A_MESSAGE)
        self.checker = function
        return function

    async def send(self, message: Message, argument: Any = None) -> TransactionSendResult:
        """Store the half message, run the transaction, send its outcome: `TransactionProducer.send_in_transaction`."""
        if self.producer is None:
            raise ClientClosed(f"the application of transaction {self.execute.__qualname__} does not run")
        return await self.producer.send_in_transaction(message, argument)  # type: ignore[no-any-return]


class TrioMQ(ProcessBound, OfKinds[T, "P"]):
    """An application: consumers, transactions and a producer that open and close together. Use it as `async with app`,
    as the lifespan of a FastAPI or Starlette application, or with `triomq run module:app`.

    `name`: the producer's group. `serializer`: for the producer, and for consumers that name none. `backend`: what
    `triomq run` starts it in, and of which kind its producer is for type checkers. `send_timeout_seconds`: the limit of
    one send, for the producer and the transactions. The other parameters are those of `ClientConfig`.

    All of them are given here, and none can be set later; `testing` points the application at another cluster.
    """

    __slots__ = (
        "__weakref__",
        "_consumers",
        "_in_hand",
        "_options",
        "_producer",
        "_providers",
        "_replaced",
        "_send_timeout_seconds",
        "_serializer",
        "_stack",
        "_transactions",
        "backend",
        "name",
    )

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
        self.name = name
        self.backend = backend
        self._send_timeout_seconds = send_timeout_seconds
        self._serializer = serializer
        self._options = options
        self._consumers: dict[str, tuple[Callable[..., Any], str, str, dict[str, Any]]] = {}
        self._transactions: dict[str, Transaction] = {}
        self._providers: dict[str, Callable[[], Any]] = {}
        self._producer: P | None = None
        self._stack: AsyncExitStack | None = None
        self._in_hand = InHand()
        self._replaced: Replaced | None = None

    def __setattr__(self, name: str, value: object) -> None:
        try:
            super().__setattr__(name, value)
        except AttributeError:
            # A test that sets `app.name_server` would send to where the application really is, unnoticed.
            raise AttributeError(unsettable(name, [each for each in dir(self) if each[0] != "_"])) from None

    def consumer(
        self,
        topic: str,
        expression: str = "*",
        *,
        group: str,
        retries: int | None = None,
        serializer: Serializer[Any] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> Callable[[F], F]:
        """Decorate the function that handles the messages of a topic. It gets what its parameters name: `message`
        (MessageExt), `value` (what the serializer made of the body), `producer`, `app`, and what `provides` provides.

        Values are of the type that `value`, or the message as `MessageExt[Order]`, is annotated with: the application
        does not start if its serializer makes others, and a serializer without a type makes these.

        `expression`: "*" or tags separated by "||". `retries`: deliveries after the first before a message goes to the
        dead letter topic. The other options are those of `PushConsumer`. Raises ConfigurationError for an option that
        does not exist, and for a function that cannot be called by names.
        """
        check_group(group, "consumer")
        check_consumer_options(options)
        self._check_closed()
        if group in self._consumers:
            raise ConfigurationError(f"the group {group!r} has a handler already; give each handler a group of its own")
        if retries is not None:
            options["rules"] = replace(options.get("rules") or ConsumeRules(), max_reconsume_times=retries)

        def register(function: F) -> F:
            check_names_arguments(function, _OF_A_MESSAGE)
            settings = {"serializer": serializer or self._serializer, **options}
            self._consumers[group] = (function, topic, expression, settings)
            return function

        return register

    def transaction(self, group: str) -> Callable[[Callable[..., Any]], Transaction]:
        """Decorate a local transaction, which returns a LocalTransactionState; the result sends messages in it.

            @app.transaction("payments")
            async def pay(message, argument): ...
            @pay.check
            async def was_paid(message): ...
            await pay.send(Message("Payments", b"..."), argument)

        Both get what their parameters name, as handlers do.
        """
        check_group(group, "producer")
        self._check_closed()
        if group == self.name or group in self._transactions:
            raise ConfigurationError(f"the producer group {group!r} is taken; give each transaction a group of its own")

        def register(function: Callable[..., Any]) -> Transaction:
            check_names_arguments(function, _OF_A_TRANSACTION)
            return self._transactions.setdefault(group, Transaction(function))

        return register

    def provides(self, function: F) -> F:
        """Decorate a function whose result handlers get as the argument of its name. It runs once, when the application
        opens. It may be `async def`, or an async generator, which continues when the application closes. It gets what
        its parameters name: `app`, and what was provided before."""
        self._check_closed()
        self._providers[function.__name__] = function
        return function

    @property
    def producer(self) -> P:
        """The producer, while the application runs: in asyncio a `triomq.aio.Producer`, in trio a `triomq.Producer`."""
        if self._producer is None:
            raise ClientClosed(f"the application {self.name!r} does not run: use `async with app`, or its lifespan")
        return self._producer

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
        check_replacements(replaced.provides, self._providers)
        merged: ClientOptions = {**self._options, **replaced.options}
        ClientConfig(**merged)
        before, self._replaced = self._replaced, replaced
        try:
            yield self
        finally:
            self._replaced = before

    def _client_options(self) -> ClientOptions:
        return self._options if self._replaced is None else {**self._options, **self._replaced.options}

    @asynccontextmanager
    async def lifespan(self, _application: object = None) -> AsyncIterator[None]:
        """Run while a FastAPI or Starlette application does: `FastAPI(lifespan=app.lifespan)`."""
        async with self:
            yield

    async def __aenter__(self) -> Self:
        self._check_closed()
        for function, _, _, settings in self._consumers.values():
            settings["serializer"] = serializer_for(function, settings["serializer"])
        self._stack = AsyncExitStack()
        async with self._stack as stack:
            stack.callback(self._closed)
            known: dict[str, Any] = {"app": self}
            replaced = {} if self._replaced is None else self._replaced.provides
            for name, provider in {**self._providers, **replaced}.items():
                provide = by_name(provider, {}, known)
                if isasyncgenfunction(provider):
                    known[name] = await stack.enter_async_context(asynccontextmanager(provide)())
                else:
                    value = provide()
                    known[name] = await value if isawaitable(value) else value
            await self._open_members(known, stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Without the error: messages in hand are finished, whatever ended the block.
        if self._stack is not None:
            with self._in_hand.saying(self.name):
                await self._stack.aclose()

    async def _open_members(self, known: dict[str, Any], stack: AsyncExitStack) -> None:
        kinds: tuple[Any, Any, Any] = (Producer, TransactionProducer, PushConsumer)
        if not trio.lowlevel.in_trio_run():
            from triomq.client.facades import aio

            kinds = (aio.Producer, aio.TransactionProducer, aio.PushConsumer)
        limit: dict[str, Any] = {"send_timeout_seconds": self._send_timeout_seconds}
        options = self._client_options()
        made = kinds[0](self.name, serializer=self._serializer, **limit, **options)
        self._producer = known["producer"] = await stack.enter_async_context(made)
        for group, transaction in self._transactions.items():
            if transaction.checker is None:
                name = transaction.execute.__qualname__
                raise ConfigurationError(f"the transaction {name} has no check: decorate a function with @{name}.check")
            execute = by_name(transaction.execute, _OF_A_TRANSACTION, known)
            check = by_name(transaction.checker, _OF_A_MESSAGE, known)
            made = kinds[1](group, execute, check, **limit, **options)
            transaction.producer = await stack.enter_async_context(made)
        consumers: list[Any] = []
        for group, (function, topic, expression, settings) in self._consumers.items():
            made = kinds[2](group, **settings, **options)
            made.subscribe(topic, expression)
            seconds = (settings.get("rules") or ConsumeRules()).close_seconds
            handler = f"{name_of(function)} (group {group!r}, topic {topic!r}, at most {seconds:g} s)"
            made.listen(self._in_hand.counting(handler, by_name(function, _OF_A_MESSAGE, known)))
            consumers.append(await stack.enter_async_context(made))
        # All stop pulling before the first closes, which takes as long as its messages in hand.
        stack.callback(lambda: [consumer.suspend() for consumer in consumers])

    def _closed(self) -> None:
        self._stack = self._producer = None
        for transaction in self._transactions.values():
            transaction.producer = None

    def _check_closed(self) -> None:
        if self._stack is not None:
            raise ConfigurationError(f"the application {self.name!r} runs already")
