"""Handlers, local transactions and what they need, as a module registers them: for an application, or in a router that
applications include.

    orders = Router()

    @orders.consumer("Orders", group="billing")
    async def bill(value: Order) -> None: ...

    app.include(orders)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar, Unpack

from triomq.client.app.arguments import check_names_arguments
from triomq.client.app.around import Middleware, check_middleware
from triomq.client.app.options import HandlerOptions, check_consumer_options
from triomq.client.core.consume_rules import ConsumeRules
from triomq.client.core.errors import ClientClosed, ConfigurationError
from triomq.client.core.group_names import check_group
from triomq.client.core.results import TransactionSendResult
from triomq.client.payloads.serializer import Serializer
from triomq.protocol.message import Message
from triomq.remoting.process_bound import ProcessBound

F = TypeVar("F", bound=Callable[..., Any])

OF_A_MESSAGE: dict[str, Callable[..., Any]] = {
    "message": lambda message: message,
    "value": lambda message: message.value,
}
OF_A_TRANSACTION: dict[str, Callable[..., Any]] = {
    "message": lambda message, _: message,
    "argument": lambda _, argument: argument,
}


class Transaction(ProcessBound):
    """A local transaction of an application; see `TrioMQ.transaction`."""

    def __init__(self, execute: Callable[..., Any]) -> None:
        self.execute = execute
        self.checker: Callable[..., Any] | None = None
        self.producer: Any = None

    def check(self, function: F) -> F:
        """Decorate the function that looks up how the transaction of a message ended, when the broker asks."""
        check_names_arguments(function, OF_A_MESSAGE)
        self.checker = function
        return function

    async def send(self, message: Message, argument: Any = None) -> TransactionSendResult:
        """Store the half message, run the transaction, send its outcome: `TransactionProducer.send_in_transaction`."""
        if self.producer is None:
            raise ClientClosed(f"the application of transaction {self.execute.__qualname__} does not run")
        return await self.producer.send_in_transaction(message, argument)  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Registered:
    """A handler, as it was registered. `options` are those of its `PushConsumer`."""

    function: Callable[..., Any]
    topic: str
    expression: str
    serializer: Serializer[Any] | None
    publish_to: str | None
    publish_serializer: Serializer[Any] | None
    options: dict[str, Any]
    middleware: tuple[Middleware, ...] = ()
    """Of the routers that it came through, the outermost first; complete when the application opens."""

    @property
    def rules(self) -> ConsumeRules:
        return self.options.get("rules") or ConsumeRules()


class Router(ProcessBound):
    """Handlers of a module, for `TrioMQ.include` or another router's `include`.

    `serializer`: for the handlers here that name none; without it, the one of the application.
    """

    __slots__ = ("_consumers", "_included", "_middleware", "_providers", "_serializer", "_transactions")

    _is_application: ClassVar[bool] = False

    def __init__(self, *, serializer: Serializer[Any] | None = None) -> None:
        self._serializer = serializer
        self._consumers: dict[str, Registered] = {}
        self._transactions: dict[str, Transaction] = {}
        self._providers: dict[str, Callable[[], Any]] = {}
        self._middleware: list[Middleware] = []
        self._included: list[Router] = []

    def consumer(
        self,
        topic: str,
        expression: str = "*",
        *,
        group: str,
        retries: int | None = None,
        serializer: Serializer[Any] | None = None,
        **options: Unpack[HandlerOptions],
    ) -> Callable[[F], F]:
        """Decorate the function that handles the messages of a topic. It gets what its parameters name: `message`
        (MessageExt), `value` (what the serializer made of the body), `producer`, `app`, and what `provides` provides.

        Values are of the type that `value`, or the message as `MessageExt[Order]`, is annotated with: the application
        does not start if its serializer makes others, and a serializer without a type makes these.

        `expression`: "*" or tags separated by "||". `retries`: deliveries after the first before a message goes to the
        dead letter topic. `publish_to`: the topic to which the application's producer sends what the handler returns,
        with the keys of the message, before that counts as consumed; a `Message` is sent as it is, None is not sent.
        `publish_serializer` writes it, if the application's serializer is one for other values. The other options are
        those of `PushConsumer`. Raises ConfigurationError for an option that does not exist, and for a function that
        cannot be called by names.
        """
        check_group(group, "consumer")
        check_consumer_options(options)
        self._check_closed()
        if group in self._all_consumers():
            raise ConfigurationError(f"the group {group!r} has a handler already; give each handler a group of its own")
        own: dict[str, Any] = {**options}
        publish_to = own.pop("publish_to", None)
        publish_serializer = own.pop("publish_serializer", None)
        if publish_serializer is not None and publish_to is None:
            raise ConfigurationError("publish_serializer needs publish_to, the topic to which results are sent")
        if retries is not None:
            own["rules"] = replace(own.get("rules") or ConsumeRules(), max_reconsume_times=retries)

        def register(function: F) -> F:
            check_names_arguments(function, OF_A_MESSAGE)
            self._consumers[group] = Registered(
                function=function,
                topic=topic,
                expression=expression,
                serializer=serializer,
                publish_to=publish_to,
                publish_serializer=publish_serializer,
                options=own,
            )
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
        if self._is_producer_group(group):
            raise ConfigurationError(f"the producer group {group!r} is taken; give each transaction a group of its own")

        def register(function: Callable[..., Any]) -> Transaction:
            check_names_arguments(function, OF_A_TRANSACTION)
            return self._transactions.setdefault(group, Transaction(function))

        return register

    def provides(self, function: F) -> F:
        """Decorate a function whose result handlers get as the argument of its name. It runs once, when the application
        opens. It may be `async def`, or an async generator, which continues when the application closes. It gets what
        its parameters name: `app`, and what was provided before."""
        self._check_closed()
        self._providers[function.__name__] = function
        return function

    def middleware(self, function: F) -> F:
        """Decorate an async function that each message passes on its way to a handler of this application, or router:

            @app.middleware
            async def timed(message, call_next):
                began = perf_counter()
                try:
                    return await call_next(message)
                finally:
                    log.info("%s took %.3f s", message.msg_id, perf_counter() - began)

        The first one is the outermost, and those of an application are around those of its routers. What it returns is
        the handler's result, what it raises the handler's error.
        """
        check_middleware(function)
        self._check_closed()
        self._middleware.append(function)
        return function

    def include(self, router: Router) -> None:
        """Have the handlers, transactions, middleware and what is provided of a router here as well, also those that it
        gets before the application opens. Raises ConfigurationError for a group, or something provided, that is here
        already."""
        if not isinstance(router, Router) or router._is_application:
            raise ConfigurationError(f"include takes a Router, not {router!r}")
        self._check_closed()
        if self is router or self in router._routers() or router in self._routers():
            raise ConfigurationError("this router is included already")
        self._included.append(router)
        try:
            self._check_unique()
        except ConfigurationError:
            self._included.remove(router)
            raise

    # All that is registered here and in what is included.

    def _routers(self) -> Iterator[Router]:
        """Yield this router and all that it includes."""
        yield self
        for router in self._included:
            yield from router._routers()

    def _all_consumers(self) -> dict[str, Registered]:
        """Return the handlers by group."""
        found = {group: self._with_own(one) for group, one in self._consumers.items()}
        for router in self._included:
            found |= {group: self._with_own(one) for group, one in router._all_consumers().items()}
        return found

    def _with_own(self, registered: Registered) -> Registered:
        return replace(
            registered,
            serializer=registered.serializer or self._serializer,
            middleware=(*self._middleware, *registered.middleware),
        )

    def _all_transactions(self) -> dict[str, Transaction]:
        return {group: one for router in self._routers() for group, one in router._transactions.items()}

    def _all_providers(self) -> dict[str, Callable[..., Any]]:
        return {name: one for router in self._routers() for name, one in router._providers.items()}

    def _check_unique(self) -> None:
        """Raise ConfigurationError for what several of these routers register: one would replace the other."""
        seen: set[tuple[str, str]] = set()
        for router in self._routers():
            groups = [("the group {} has a handler", name) for name in router._consumers]
            groups += [("the producer group {} has a transaction", name) for name in router._transactions]
            groups += [("{} is provided", name) for name in router._providers]
            for text, name in groups:
                if (text, name) in seen:
                    raise ConfigurationError(f"{text.format(repr(name))} already, in another router")
                seen.add((text, name))

    def _is_producer_group(self, group: str) -> bool:
        return group in self._all_transactions()

    def _check_closed(self) -> None:
        """Raise ConfigurationError when it is too late to register something."""
