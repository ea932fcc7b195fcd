"""The memory that the peers of one server can make it hold (maxRequestBytes), and who waits or leaves when it is used.

Tables take what they take of it, up to half (table_memory.py). Of the rest one half is for frames that are longer than
a read or two, and for requests that run as tasks, which such frames become. A long frame needs a grant for the size
that it announces, before its rest is read. While it waits, its socket is not read, and TCP slows its sender. The
addresses get grants in turn, and one that has neither frame nor task gets one even when the half is used up, as far as
`OVERDRAFT_BYTES` goes. A frame that arrives too slowly while others wait costs its connection.

The other half is for everything else that peers leave: the beginnings of other frames, requests that wait for a later
turn or run as tasks, responses not taken, parked pulls. The `Share` of each connection reports it. Beyond it memory is
*tight*: connections stop at a lower high water mark, shorter frames need grants, and those that take nothing lose their
connection, the one that holds the most first.

Only the event loop touches it.
"""

from __future__ import annotations

import os
from collections import deque
from pathlib import Path
from typing import Final, Protocol

import trio

from triomq.protocol.address import HostPort
from triomq.remoting.log import get_logger
from triomq.remoting.table_memory import TableMemory

log = get_logger("triomq.remoting.memory")

LEAST_BYTES: Final = 64 * 1024 * 1024
SHARE_OF_MACHINE: Final = 8
DEFAULT_LEAST_BYTES: Final = 128 * 1024 * 1024
DEFAULT_MOST_BYTES: Final = 2 * 1024**3

FREE_FRAME_BYTES: Final = 256 * 1024
TIGHT_FREE_FRAME_BYTES: Final = 16 * 1024
OVERDRAFT_BYTES: Final = 48 * 1024 * 1024

CHECK_SECONDS: Final = 1.0
STALLED_SECONDS: Final = 5.0
"""Who has been silent for so long loses its connection while memory is tight, if it left anything."""

GRACE_SECONDS: Final = 10.0
"""How long a frame may be slower than `SLOWEST_BYTES_PER_SECOND`, and memory tight, before an active peer is closed."""

SLOWEST_BYTES_PER_SECOND: Final = 64 * 1024


class Owner(Protocol):
    """A connection, as its share sees it."""

    remote: HostPort
    last_active: float

    def may_read(self) -> None:
        """Continue to read a long frame, for which there is memory now."""

    def close(self, reason: str) -> None: ...


class Share:
    """What one connection holds."""

    __deletable__ = ("owner",)  # for mypyc
    __slots__ = (
        "_backlog_bytes",
        "_budget",
        "_has_left",
        "_kept_bytes",
        "_waiting_bytes",
        "frame_bytes",
        "has_grant",
        "is_waiting",
        "owner",
    )

    def __init__(self, budget: MemoryBudget, owner: Owner) -> None:
        self._budget = budget
        self.owner = owner
        self.frame_bytes = 0
        self.has_grant = False
        self.is_waiting = False
        self._has_left = False
        self._backlog_bytes = 0
        self._waiting_bytes = 0
        self._kept_bytes = 0

    @property
    def stuck_bytes(self) -> int:
        """What is held until the peer takes or sends something."""
        return self._backlog_bytes + (0 if self.has_grant or self.is_waiting else self.frame_bytes)

    def read_frame(self, held_bytes: int, needed_bytes: int, *, is_new: bool) -> bool:
        """Note the state of the incomplete frame after a read (`is_new`: a frame was completed). Return whether the
        rest of it may be read; if not, `owner.may_read` is called later."""
        if is_new and self.has_grant:
            self.has_grant = False
            self._budget.finished(self)
        self.frame_bytes = held_bytes
        if needed_bytes > self._budget.free_frame_bytes and not self.has_grant and not self.is_waiting:
            self._budget.admit(self, needed_bytes)
        self._note()
        return not self.is_waiting

    def granted(self) -> None:
        """Read on (called by the budget)."""
        self.has_grant = True
        if self.is_waiting:
            self.is_waiting = False
            self._note()
            self.owner.may_read()

    def set_backlog(self, count: int) -> None:
        """Note how many bytes of responses the peer has not taken."""
        self._backlog_bytes = count
        self._note()

    def set_waiting(self, count: int) -> None:
        """Note how many bytes the requests have that wait for a later turn."""
        self._waiting_bytes = count
        self._note()

    def keep(self, count: int) -> None:
        """Count these bytes (a negative number: no longer) as kept for the peer, in whatever form."""
        self._kept_bytes += count
        self._note()

    def leave(self) -> None:
        """The connection is closed; it holds nothing any more, but for requests that still run as tasks."""
        if not self._has_left:
            self._budget.left(self)
            self._has_left = True
            del self.owner  # which refers to this share

    def _note(self) -> None:
        if self._has_left:
            return
        frame_bytes = 0 if self.has_grant else self.frame_bytes
        self._budget.set_held(self, self._backlog_bytes + self._waiting_bytes + self._kept_bytes + frame_bytes)


class MemoryBudget:
    """See the module's docstring. `run` must run while peers are served. `granted_bytes` are the announced sizes of the
    frames that have a grant, `held_bytes` everything else, of which `task_bytes` are the requests that run as tasks."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.tables = TableMemory(limit_bytes // 2)
        self.held_bytes = 0
        self.granted_bytes = 0
        self.task_bytes = 0
        self.is_tight = False
        self._held: dict[Share, int] = {}
        self._granted: dict[Share, tuple[int, float]] = {}
        self._used_by: dict[str, int] = {}  # address -> number of its frames with a grant and of its tasks
        self._waiting: dict[str, deque[tuple[Share, int]]] = {}
        self._tight_since: float | None = None
        self._pressed = trio.Event()

    @property
    def half_bytes(self) -> int:
        """Half of what the tables leave, but no less than a quarter of the budget."""
        return (self.limit_bytes - min(self.tables.held_bytes, self.limit_bytes // 2)) // 2

    @property
    def free_frame_bytes(self) -> int:
        """The longest frame that needs no grant."""
        return TIGHT_FREE_FRAME_BYTES if self.is_tight else FREE_FRAME_BYTES

    def set_held(self, holder: Share, held_bytes: int) -> None:
        """Note what a connection holds now, apart from a frame with a grant."""
        before = self._held.get(holder, 0)
        if held_bytes:
            self._held[holder] = held_bytes
        elif before:
            del self._held[holder]
        self.held_bytes += held_bytes - before
        if (self.held_bytes > self.half_bytes) != self.is_tight:
            self.is_tight = not self.is_tight
            if self.is_tight:
                self._tight_since = trio.current_time()
                self._pressed.set()
                log.warning("much memory held by clients", held_bytes=self.held_bytes, limit_bytes=self.limit_bytes)

    def admit(self, holder: Share, frame_bytes: int) -> None:
        """Grant a frame of this size to a connection, or let it wait for the grant."""
        address = holder.owner.remote.ip
        if address not in self._waiting and self._fits(address, frame_bytes):
            self._grant(holder, frame_bytes)
        else:
            holder.is_waiting = True
            self._waiting.setdefault(address, deque()).append((holder, frame_bytes))
            self._pressed.set()

    def finished(self, holder: Share) -> None:
        """Take back the grant of a frame that is complete, or of a connection that is closed."""
        granted = self._granted.pop(holder, None)
        if granted is None:
            return
        self.granted_bytes -= granted[0]
        self._one_less(holder.owner.remote.ip)
        self._serve()

    def task_began(self, address: str, size_bytes: int) -> None:
        """Count a request of this size, which runs as a task. It must be counted until it ends, whatever becomes of its
        connection: `task_ended`."""
        self.task_bytes += size_bytes
        self._used_by[address] = self._used_by.get(address, 0) + 1

    def task_ended(self, address: str, size_bytes: int) -> None:
        self.task_bytes -= size_bytes
        self._one_less(address)
        self._serve()

    def _one_less(self, address: str) -> None:
        self._used_by[address] -= 1
        if not self._used_by[address]:
            del self._used_by[address]

    def left(self, holder: Share) -> None:
        """Forget a connection that was closed."""
        address = holder.owner.remote.ip
        queue = self._waiting.get(address)
        if queue is not None:
            kept = deque(each for each in queue if each[0] is not holder)
            if kept:
                self._waiting[address] = kept
            else:
                del self._waiting[address]
        self.set_held(holder, 0)
        self.finished(holder)

    def _fits(self, address: str, frame_bytes: int) -> bool:
        after = self.granted_bytes + self.task_bytes + frame_bytes
        half = self.half_bytes
        if after <= half or not self._used_by:
            return True
        return address not in self._used_by and after <= half + OVERDRAFT_BYTES

    def _grant(self, holder: Share, frame_bytes: int) -> None:
        self._granted[holder] = (frame_bytes, trio.current_time())
        self.granted_bytes += frame_bytes
        address = holder.owner.remote.ip
        self._used_by[address] = self._used_by.get(address, 0) + 1
        holder.granted()

    def _serve(self) -> None:
        """Give grants to those that wait, one address after another."""
        while self._waiting:
            address = next(iter(self._waiting))
            queue = self._waiting[address]
            holder, frame_bytes = queue[0]
            if not self._fits(address, frame_bytes):
                return
            del self._waiting[address]
            queue.popleft()
            if queue:
                self._waiting[address] = queue  # at the end
            self._grant(holder, frame_bytes)

    async def run(self) -> None:
        """Look for those that must leave, while memory is tight or frames wait; runs until cancelled."""
        while True:
            await self._pressed.wait()
            while self.is_tight or self._waiting:
                await trio.sleep(CHECK_SECONDS)
                self._check(trio.current_time())
            self._pressed = trio.Event()

    def _check(self, now: float) -> None:
        if self._waiting:
            for holder, (frame_bytes, since) in list(self._granted.items()):
                late_seconds = now - since - GRACE_SECONDS
                if late_seconds > 0 and holder.frame_bytes < late_seconds * SLOWEST_BYTES_PER_SECOND:
                    holder.owner.close(
                        f"a frame of {frame_bytes} bytes came too slowly while others wait for memory (maxRequestBytes)"
                    )
        if not self.is_tight:
            return
        has_lasted = self._tight_since is not None and now - self._tight_since > GRACE_SECONDS
        for holder in sorted(self._held, key=lambda holder: holder.stuck_bytes, reverse=True):  # a copy: some leave
            if not self.is_tight or not holder.stuck_bytes:
                break
            is_full = has_lasted and self.held_bytes > self.half_bytes * 3 // 2
            if is_full or now - holder.owner.last_active > STALLED_SECONDS:
                holder.owner.close(
                    f"the peer left {holder.stuck_bytes} bytes while memory is short (maxRequestBytes is "
                    f"{self.limit_bytes})"
                )


def budget_of(configured_bytes: int, max_frame_bytes: int, machine_bytes: int | None = None) -> MemoryBudget:
    """Return the budget of a server. `configured_bytes` 0 means a share of the memory that this process may use:
    `machine_bytes`, or None to find out."""
    limit_bytes = configured_bytes
    if not limit_bytes:
        share = (memory_bytes() if machine_bytes is None else machine_bytes) // SHARE_OF_MACHINE
        limit_bytes = min(max(share, DEFAULT_LEAST_BYTES), DEFAULT_MOST_BYTES)
    return MemoryBudget(max(limit_bytes, LEAST_BYTES, 2 * max_frame_bytes))


def memory_bytes(root: Path = Path("/")) -> int:
    """Return the memory that this process may use: that of the machine, or the limit of its control group if that is
    lower."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        groups = [line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()]
    except OSError:
        groups = []
    for _, controllers, path in (group for group in groups if len(group) == 3):
        if not controllers:
            top, name = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, name = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):  # in a container the own path may not be there, its limit is at the top
            limits += _limit_in(folder / name)
            if folder == top:
                break
    return min(limits)


def _limit_in(file: Path) -> list[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdigit() else []
