"""Objects that belong to the process that made them: they hold connections, threads or tasks."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex


class ProcessBound:
    """Base of classes whose objects can be neither pickled nor copied; the TypeError says what to do instead. Without
    it, a copy would share half of the original's state and fail later, somewhere else."""

    __slots__ = ()

    _instead: ClassVar[str] = "make a new one in the process that uses it"

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__} objects belong to this process and its connections and cannot be pickled or "
            f"copied: {self._instead}"
        )
