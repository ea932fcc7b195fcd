"""The properties of many records at once: Arrow splits the stored texts (protocol.properties) into names and values."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
from pyarrow import compute

from triomq.protocol import properties

_INDICES: Final[dict[tuple[int, int], Any]] = {}


def every(step: int, first: int, count: int) -> Any:
    """Return the `count` indices first, first + step, ... Cached: there are few combinations of step and first."""
    indices = _INDICES.get((step, first))
    if indices is None or len(indices) < count:
        wanted = max(count, 1024)
        indices = _INDICES[step, first] = pa.array(range(first, first + step * wanted, step), pa.int32())
    return indices.slice(0, count)


def as_text(raw: Any) -> Any:
    """Return a binary array as strings; invalid UTF-8 becomes U+FFFD."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([item.decode("utf-8", "replace") for item in raw.to_pylist()], pa.string())


class PropertyColumns:
    """The properties of `count` records. `offsets`: where the pairs of each record begin in `names` and `values`."""

    def __init__(self, raw: Any) -> None:
        """`raw` is a binary array of stored texts, at least one."""
        self.count = len(raw)
        table = _well_formed(as_text(raw))
        if table is not None:
            self._set(*table)
        if table is None or self._has_names_twice():
            self._set(*_one_by_one(raw))

    def _set(self, offsets: Any, names: Any, values: Any) -> None:
        self.offsets = offsets
        self.names = names
        self.values = values
        self._codes = names.dictionary_encode()
        self._rows = compute.list_parent_indices(pa.ListArray.from_arrays(offsets, names))

    def _has_names_twice(self) -> bool:
        """Return whether any record has the same name twice."""
        places = compute.multiply(self._rows, len(self._codes.dictionary))
        places = compute.add(places, self._codes.indices.cast(pa.int64()))
        return bool(compute.count_distinct(places).as_py() < len(places))

    def value_of(self, name: str) -> Any:
        """Return one property as a string array; null for records without it."""
        code = compute.index(self._codes.dictionary, name).as_py()
        if code < 0:
            return pa.nulls(self.count, pa.string())
        is_it = compute.equal(self._codes.indices, code)
        found = self.values.filter(is_it)
        if len(found) == self.count:
            return found
        return found.take(compute.index_in(every(1, 0, self.count), value_set=self._rows.filter(is_it)))


def _well_formed(text: Any) -> tuple[Any, Any, Any] | None:
    """Return offsets, names and values; None when a pair is malformed."""
    if compute.any(compute.ends_with(text, properties.PROPERTY_SEPARATOR)).as_py():
        text = compute.utf8_rtrim(text, properties.PROPERTY_SEPARATOR)
    pairs = compute.split_pattern(text, properties.PROPERTY_SEPARATOR)
    count = len(pairs.values)
    halves = compute.split_pattern(pairs.values, properties.NAME_VALUE_SEPARATOR, max_splits=1).values
    if len(halves) != 2 * count or compute.min(compute.binary_length(halves)).as_py() == 0:
        return None
    return pairs.offsets, halves.take(every(2, 0, count)), halves.take(every(2, 1, count))


def _one_by_one(raw: Any) -> tuple[Any, Any, Any]:
    names: list[str] = []
    values: list[str] = []
    offsets = [0]
    for text in raw.to_pylist():
        table = properties.parse_bytes(text)
        names += table
        values += table.values()
        offsets.append(len(names))
    return pa.array(offsets, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string())
