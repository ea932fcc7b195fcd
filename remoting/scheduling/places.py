"""The order of requests that take effect later than they arrive: each takes its place when it arrives.

Tasks begin in any order, and one that waits for a file is overtaken by those that do not. A processor whose change must
wait for something (its file is written first, it is made in steps) takes a place as a plain function, and returns the
coroutine that waits for it. Only the event loop touches the places; there are as many as requests in progress.
"""

from __future__ import annotations

from collections.abc import Hashable

import trio


class Places:
    """Who goes first. What is in progress under one of its keys keeps those that come later from beginning."""

    def __init__(self) -> None:
        self._last: dict[Hashable, trio.Event] = {}

    def is_free(self, *keys: Hashable) -> bool:
        return self._last.keys().isdisjoint(keys)

    def take(self, *keys: Hashable) -> Place:
        """Take a place behind all that have one of these keys."""
        place = Place(self, keys, [self._last[key] for key in keys if key in self._last])
        self._last.update(dict.fromkeys(keys, place.ended))
        return place

    def give_back(self, place: Place) -> None:
        place.ended.set()
        for key in place.keys:
            if self._last.get(key) is place.ended:
                del self._last[key]


class Place:
    """A place in the order: `async with` it waits for its turn, and gives it back."""

    def __init__(self, places: Places, keys: tuple[Hashable, ...], before: list[trio.Event]) -> None:
        self.keys = keys
        self.ended = trio.Event()
        self._places = places
        self._before = before

    async def __aenter__(self) -> None:
        try:
            for event in self._before:
                await event.wait()
        except BaseException:
            self._places.give_back(self)
            raise

    async def __aexit__(self, *_: object) -> None:
        self._places.give_back(self)
