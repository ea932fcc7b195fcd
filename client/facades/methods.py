"""How a class of the trio client becomes a class of a facade: one description of each method, with its own signature.

    class ProducerFacade(Facade):                           # the table, for both facades
        send = waiting(core.Producer.send)

    class Producer(AioFacade, ProducerFacade): ...          # producer.send(...) is a coroutine
    class Producer(BlockingFacade, ProducerFacade): ...     # producer.send(...) blocks

A facade object holds an object of the trio client (`_core`), which lives in the portal's thread. Parameters, types and
docstrings are those of the trio class: type checkers read them from the descriptors below, `help` and editors at run
time from the functions that the descriptors return.
"""

from __future__ import annotations

import inspect
import types
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_origin, overload

from triomq.client.core.errors import ClientClosed
from triomq.client.facades.callbacks import Put, Threads
from triomq.client.facades.portal import OpenContext, Portal, release
from triomq.client.facades.sending import Steps
from triomq.client.instance.handlers import is_async
from triomq.client.instance.opening import ThreadWaits, inside
from triomq.remoting.process_bound import ProcessBound

P = ParamSpec("P")
T = TypeVar("T")


class Facade(ProcessBound):
    """An object of the trio client that lives in the portal's thread; base of both facades."""

    def __init__(self, core: Any) -> None:
        self._core = core
        self._portal: Portal | None = None
        self._held: OpenContext | None = None
        self._home: Portal | None = None
        self._closed: Future[None] | None = None
        """Done when this object is closed; None while it is open, or was never opened."""
        self._threads = Threads(getattr(core, "thread_waits", None) or ThreadWaits())

    @abstractmethod
    def _wait(self, method: Callable[..., Awaitable[Any]], args: Any, kwargs: Any) -> Any:
        """Run an async method of the core, and wait for it as this facade does."""

    @abstractmethod
    def _drive(self, steps: Steps) -> Any:
        """Make the calls of the core that a generator wants, as `_wait` does."""

    def _opening(self, portal: Portal) -> None:
        """Called before this object is opened in the portal's thread."""
        self._home = portal

    def _check_start(self) -> Future[None] | None:
        """Return what to wait for before this object may be opened, if anything. Raises ClientClosed."""
        if self._portal is not None:
            raise ClientClosed(f"this {type(self).__name__} is already open")
        if self._closed is not None and self._is_inside:
            raise ClientClosed(f"this {type(self).__name__} closes when its function that runs here has ended")
        return self._closed

    def _closing(self) -> None:
        """Called by the task or thread that closes this object, before it is closed."""

    def _begin_to_close(self, *, failed: bool) -> Callable[[], None] | None:
        """Return what closes this object, to be called once and in any thread; None if it closes already, or is
        closed."""
        portal, held = self._portal, self._held
        if portal is None or held is None:
            return None
        self._portal = self._held = None
        closed: Future[None] = Future()
        self._closed = closed
        self._closing()
        return partial(self._close, portal, held, failed, closed)

    @property
    def _is_inside(self) -> bool:
        """Whether the caller is a function that this object has called: closing waits for it."""
        return inside.get() is self._core or (self._home is not None and self._home.is_here)

    def _close(self, portal: Portal, held: OpenContext, failed: bool, closed: Future[None]) -> None:
        try:
            portal.leave(held, failed=failed).result()
        finally:
            self._threads.stop()
            release(portal)
            closed.set_result(None)

    def _callback(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what the core can call in trio for a function of the application."""
        if is_async(function):
            return function

        async def call(*args: Any) -> Any:
            result = await self._threads.call(function, args, home=self._put_home)
            # A plain function may return an awaitable (a lambda around an async function).
            return await self._callback(awaiting)(result) if inspect.isawaitable(result) else result

        return call

    def _away(self, function: Callable[..., Any]) -> Put | Threads | None:
        """Return where a function of the application runs; None: in the portal's thread."""
        return None if is_async(function) else self._threads

    def _put_home(self, call: Callable[[], object]) -> None:
        if self._home is None:
            raise ClientClosed("not open")
        self._home.put(call)

    def _call(self, function: Callable[..., T], *args: Any) -> T:
        """Run a plain function: at once while this object is closed, in the portal's thread when it is open."""
        return function(*args) if self._portal is None else self._portal.call(function, *args)

    def _opened(self) -> Portal:
        if self._portal is None:
            raise ClientClosed(f"this {type(self).__name__} is closed: {self._how_to_open}")
        self._portal.check_process()
        return self._portal

    _how_to_open = "use it inside `with`, or call start()"


async def awaiting(result: Awaitable[Any]) -> Any:
    """Await what a function returned."""
    return await result


class AioKind(Facade):
    """Marks facades whose waiting methods are coroutines of asyncio."""


class BlockingKind(Facade):
    """Marks facades whose waiting methods block."""


class waiting(Generic[P, T]):
    """An async method of the core: a coroutine function or a blocking one, by the kind of the facade."""

    def __init__(self, method: Callable[Concatenate[Any, P], Awaitable[T]]) -> None:
        name = method.__name__

        @wraps(method)
        def block(facade: Facade, /, *args: Any, **kwargs: Any) -> Any:
            return facade._wait(getattr(facade._core, name), args, kwargs)

        # Frameworks ask whether a function is one of these before they call it.
        @wraps(method)
        async def wait(facade: Facade, /, *args: Any, **kwargs: Any) -> Any:
            return await facade._wait(getattr(facade._core, name), args, kwargs)

        self._block: Callable[..., Any] = block
        self._wait: Callable[..., Any] = wait

    @overload
    def __get__(self, facade: None, kind: type[Facade]) -> Callable[..., Any]: ...

    @overload
    def __get__(self, facade: AioKind, kind: type[Facade]) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, facade: BlockingKind, kind: type[Facade]) -> Callable[P, T]: ...

    def __get__(self, facade: Facade | None, kind: type[Facade]) -> Callable[..., Any]:
        call = self._wait if issubclass(kind, AioKind) else self._block
        return call if facade is None else types.MethodType(call, facade)


class here(waiting[P, T]):
    """An async method of the core whose steps a generator describes (sending.py), so that functions of the application
    run where it calls. `needed` returns whether a call has any; if not the core does all of it."""

    def __init__(
        self,
        method: Callable[Concatenate[Any, P], Awaitable[T]],
        steps: Callable[..., Steps],
        needed: Callable[[Mapping[str, Any]], bool] = lambda _: True,
    ) -> None:
        super().__init__(method)
        block_at_once, wait_at_once = self._block, self._wait

        @wraps(method)
        def block(facade: Facade, /, *args: Any, **kwargs: Any) -> Any:
            if not needed(kwargs):
                return block_at_once(facade, *args, **kwargs)
            return facade._drive(steps(facade._core, *args, **kwargs))

        @wraps(method)
        async def wait(facade: Facade, /, *args: Any, **kwargs: Any) -> Any:
            if not needed(kwargs):
                return await wait_at_once(facade, *args, **kwargs)
            return await facade._drive(steps(facade._core, *args, **kwargs))

        self._block, self._wait = block, wait


def plain(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A plain method of the core: called at once while the facade is closed, in the portal's thread when it is open."""
    name = method.__name__

    @wraps(method)
    def call(facade: Facade, /, *args: P.args, **kwargs: P.kwargs) -> T:
        function: Callable[..., T] = getattr(facade._core, name)
        return facade._call(partial(function, *args, **kwargs))

    return call


def direct(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A plain method of the core that touches nothing of the portal's: called in the caller's thread."""
    name = method.__name__

    @wraps(method)
    def call(facade: Facade, /, *args: P.args, **kwargs: P.kwargs) -> T:
        function: Callable[..., T] = getattr(facade._core, name)
        return function(*args, **kwargs)

    return call


def constructs(core: Callable[P, Any]) -> Callable[[Callable[..., None]], Callable[Concatenate[Any, P], None]]:
    """Give an `__init__` the signature of the trio class that it constructs."""

    def typed(function: Callable[..., None]) -> Callable[Concatenate[Any, P], None]:
        plain_core = get_origin(core) or core  # of a generic class with its type variable
        function.__doc__ = plain_core.__doc__
        function.__wrapped__ = plain_core.__init__  # type: ignore[attr-defined]
        return function

    return typed
