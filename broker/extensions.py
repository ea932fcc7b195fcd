"""Extensions: code of others inside the broker, found as entry points (RocketMQ: ServiceProvider, PluginFactory).

    group of entry points            what the entry point is                          RocketMQ
    triomq.request_hooks             factory(configuration) -> RequestHook            RPCHook
    triomq.send_hooks                factory(configuration) -> SendHook               SendMessageHook
    triomq.consume_hooks             factory(configuration) -> ConsumeHook            ConsumeMessageHook
    triomq.access_validators         factory(configuration) -> AccessValidator        AccessValidator
    triomq.transaction_stores        factory(own, configuration) -> TransactionStore  TransactionalMessageService
    triomq.transaction_listeners     factory(own, configuration) -> CheckListener     ...CheckListener
    triomq.message_stores            factory(next, configuration) -> StorePlugin      AbstractPluginMessageStore

Code comes in only when it is both installed beside the broker and named in its configuration: `extensions` names entry
points (comma list, `*` for all that are installed), `messageStorePlugIn` those of message stores, the first one
outermost. Neither key can be changed over the network, and no request can name code. What cannot be loaded ends the
start with one line. Programs that embed a broker hand their extensions to BrokerController instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog

from triomq.broker import optional
from triomq.broker.configuration import Configuration
from triomq.broker.hooks import ConsumeHook, Hooks, RequestHook, SendHook
from triomq.daemon.errors import StartError
from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from opentelemetry.trace import TracerProvider

    from triomq.broker.transactions.interfaces import CheckListener, TransactionStore
    from triomq.store.message_store import DefaultMessageStore

log = structlog.get_logger("triomq.broker.extensions")

ALL: Final = "*"
_LISTS: Final = {
    "triomq.request_hooks": "request_hooks",
    "triomq.send_hooks": "send_hooks",
    "triomq.consume_hooks": "consume_hooks",
    "triomq.access_validators": "access_validators",
}
_SINGLE: Final = {
    "triomq.transaction_stores": "transaction_store",
    "triomq.transaction_listeners": "transaction_listener",
}
STORES: Final = "triomq.message_stores"


class AccessValidator(Protocol):
    """An additional access check after the broker's own; used with aclEnable."""

    def validate(self, remote: HostPort, request: RemotingCommand) -> None:
        """Check a request. Raises broker.errors.AccessDenied, or RequestRefused."""


class StorePlugin:
    """A store in front of another one: methods that a subclass does not define go to the next store.

    It takes the place of a DefaultMessageStore and is called like one: on the event loop, with `append` for every
    message and `commit` for every turn.
    """

    def __init__(self, next_store: Any) -> None:
        self.next = next_store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.next, name)


@dataclass
class Extensions:
    """The extensions of one broker; none by default. Stores are factories, outermost first."""

    request_hooks: list[RequestHook] = field(default_factory=list)
    send_hooks: list[SendHook] = field(default_factory=list)
    consume_hooks: list[ConsumeHook] = field(default_factory=list)
    access_validators: list[AccessValidator] = field(default_factory=list)
    transaction_store: Callable[[TransactionStore, Configuration], TransactionStore] | None = None
    transaction_listener: Callable[[CheckListener, Configuration], CheckListener] | None = None
    message_stores: Sequence[Callable[[Any, Configuration], Any]] = ()
    tracer_provider: TracerProvider | None = None
    """Where the broker's own spans go, instead of tracesEndpoint."""

    @classmethod
    def load(cls, configuration: Configuration) -> Extensions:
        """Return the extensions that the configuration names. Raises StartError."""
        wanted = _names(configuration.broker.extensions)
        stores = _names(configuration.broker.message_store_plug_in)
        loaded = cls()
        if wanted:
            loaded._load_hooks(wanted, configuration)
        if stores:
            loaded.message_stores = [_store(name) for name in stores]
        return loaded

    def _load_hooks(self, wanted: list[str], configuration: Configuration) -> None:
        found: set[str] = set()
        for group in (*_LISTS, *_SINGLE):
            for point in _installed(group):
                if ALL not in wanted and point.name not in wanted:
                    continue
                found.add(point.name)
                factory = _loaded(point)
                if group in _LISTS:
                    getattr(self, _LISTS[group]).append(_made(point, factory, configuration))
                elif getattr(self, _SINGLE[group]) is not None:
                    raise StartError(f"extensions: more than one {group} is wanted; name one of them")
                else:
                    setattr(self, _SINGLE[group], factory)
                log.info("extension loaded", group=group, extension=point.name, code=point.value)
        missing = [name for name in wanted if name != ALL and name not in found]
        if missing:
            raise StartError(
                f"extensions: {missing[0]!r} is not installed; install the distribution that has it beside the broker, "
                f"or take it out of the configuration (installed: {_listing((*_LISTS, *_SINGLE))})"
            )

    def hooks(self) -> Hooks:
        return Hooks(self.request_hooks, self.send_hooks, self.consume_hooks)

    def wrap_store(self, store: DefaultMessageStore, configuration: Configuration) -> DefaultMessageStore:
        """Return the store with all plug-ins in front of it."""
        wrapped: Any = store
        for factory in reversed(self.message_stores):
            wrapped = _called(factory, "messageStorePlugIn", wrapped, configuration)
        return wrapped  # type: ignore[no-any-return]

    def wrap_transactions(self, own: TransactionStore, configuration: Configuration) -> TransactionStore:
        if self.transaction_store is None:
            return own
        store: TransactionStore = _called(self.transaction_store, "transaction store", own, configuration)
        return store

    def wrap_listener(self, own: CheckListener, configuration: Configuration) -> CheckListener:
        if self.transaction_listener is None:
            return own
        listener: CheckListener = _called(self.transaction_listener, "transaction listener", own, configuration)
        return listener


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _installed(group: str) -> Iterable[EntryPoint]:
    return sorted(optional.installed.entry_points(group=group), key=lambda point: (point.name, point.value))


def _listing(groups: Iterable[str]) -> str:
    return ", ".join(sorted({point.name for group in groups for point in _installed(group)})) or "none"


def _store(name: str) -> Any:
    for point in _installed(STORES):
        if point.name == name:
            return _loaded(point)
    raise StartError(
        f"messageStorePlugIn: {name!r} is not installed as an entry point of {STORES} "
        f"(installed: {_listing((STORES,))}); Java classes cannot be loaded"
    )


def _loaded(point: EntryPoint) -> Any:
    try:
        return point.load()
    except Exception as error:
        raise StartError(
            f"extension {point.name!r} ({point.group}, {point.value}) cannot be loaded: {_reason(error)}"
        ) from error


def _made(point: EntryPoint, factory: Any, configuration: Configuration) -> Any:
    return _called(factory, f"extension {point.name!r} ({point.group}, {point.value})", configuration)


def _called(factory: Any, what: str, *arguments: Any) -> Any:
    try:
        return factory(*arguments)
    except StartError:
        raise
    except Exception as error:
        raise StartError(f"{what} cannot be created: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
