"""The stop of a daemon, part by part. What fails while one part stops does not keep those behind it from stopping.

    stopping = Stopping()
    with stopping.part("the clients"):
        async with trio.open_nursery() as clients: ...
    with stopping.part("the tables"):
        persist()
    stopping.finish()

A part is a block of code that runs or ends something. `finish` raises what the parts raised as one error, so that the
process ends with the code of a failure. Cancellation is no failure: `part` passes it on to the scope that asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog
import trio

log = structlog.get_logger("triomq.daemon.stopping")


class Stopping:
    """See the module's docstring. It holds what failed, with the names of the parts."""

    def __init__(self) -> None:
        self._failures: list[tuple[str, BaseException]] = []

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Keep what the block raises for `finish`, and log it. Cancellation is raised."""
        try:
            yield
        except (Exception, BaseExceptionGroup, SystemExit, KeyboardInterrupt) as error:
            if isinstance(error, BaseExceptionGroup) and error.subgroup(trio.Cancelled) is not None:
                raise
            self._failures.append((name, error))
            log.info("part failed", part=name, exc_info=error)  # the end of the process reports it

    def finish(self) -> None:
        """Raise a group with the errors of all parts that failed, if there are any."""
        if self._failures:
            names = ", ".join(dict.fromkeys(name for name, _ in self._failures))
            raise BaseExceptionGroup(f"failed: {names}", [error for _, error in self._failures])
