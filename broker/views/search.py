"""What a list of messages is narrowed to: by tag, SQL92 expression, and text in the body. A search looks at a bounded
number of messages, and knows whether it stopped early."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from triomq.broker.errors import EvaluationError, FilterError
from triomq.broker.filters.sql92 import compile_expression
from triomq.broker.views.bodies import plain_begin
from triomq.protocol import property_names as names
from triomq.protocol.errors import BodyError

if TYPE_CHECKING:
    from triomq.broker.filters.expression import BooleanExpression
    from triomq.broker.views.found import Found

MOST_LOOKED: Final = 10_000
MOST_SECONDS: Final = 10.0
MOST_BODY_BYTES: Final = 256 * 1024
"""Of each body that is searched for a text."""


class Search:
    """One search. `error` says why its expression is not one; then nothing matches."""

    def __init__(self, query: dict[str, str], clock: Callable[[], float] = time.monotonic) -> None:
        self.tag = query.get("tag", "").strip()
        self.sql = query.get("sql", "").strip()
        self.text = query.get("text", "")
        self.error = ""
        self.looked = 0
        self.is_stopped = False
        self.until_ms = 0
        """When the message that the search examined last was stored."""
        self._tags = frozenset(tag.strip() for tag in self.tag.split("||")) - {""}
        self._text = self.text.encode(errors="replace").lower()
        self._tree: BooleanExpression | None = None
        self._clock = clock
        self._began = clock()
        if self.sql:
            try:
                self._tree = compile_expression(self.sql)
            except FilterError as error:
                self.error = str(error)

    @property
    def is_narrow(self) -> bool:
        """Return whether there is anything to search for."""
        return bool(self._tags or self.sql or self._text)

    def may_look(self, most: int) -> bool:
        """Return whether to look at another message. `most` is the bound without a search."""
        if not self.is_narrow:
            return self.looked < most
        self.is_stopped = self.looked >= MOST_LOOKED or self._clock() - self._began > MOST_SECONDS
        return not self.is_stopped

    def wants(self, found: Found) -> bool:
        """Return whether the message is one of those searched for."""
        if self.error or (self._tags and found.properties.get(names.TAGS) not in self._tags):
            return False
        return self._satisfies(found) and (not self._text or self._has_text(found))

    def _satisfies(self, found: Found) -> bool:
        try:
            return self._tree is None or self._tree.evaluate(found.properties) is True
        except EvaluationError:
            return False

    def _has_text(self, found: Found) -> bool:
        """Return whether the beginning of a body has the text; letters of ASCII match in either case."""
        try:
            begin, _ = plain_begin(found.body, found.fields.sys_flag, MOST_BODY_BYTES)
        except BodyError:
            begin = found.body[:MOST_BODY_BYTES]
        return self._text in begin.lower()
