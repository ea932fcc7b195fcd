"""The numbers of fairness: three classes of work, what each may use at a time, and why.

    class         who                                            share   time at a time        bytes at a time
    ------------  ---------------------------------------------  ------  --------------------  ------------------------
    interactive   clients with one question at a time; sends     -       50 ms                 256 KiB a read
    bulk          pulls; clients with a window of requests       1/4     5 ms; 0.1 ms or more  2 MiB; contended 256 KiB
    background    steps of the tasks that requests started       a step  0.5 ms a pass         -

The loop is *contended* while interactive work is there. Then the other classes use what it leaves, and at least their
share, which is a part of the time that interactive work took since they last ran. `scheduler.py` applies the table.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct


class WorkClass(Struct, frozen=True, eq=False):
    """A row of the table. `share`: what it gets although interactive work waits, as a part of the time which that took.
    `quota_seconds`: the longest that it runs at a time, `least_seconds` the shortest while the loop is contended.
    `quota_bytes`, and `contended_bytes` while the loop is contended: what it may read (interactive) or respond (bulk)
    at a time; 0: not bounded, because its bytes are counted elsewhere."""

    name: str
    share: float
    quota_seconds: float
    least_seconds: float
    quota_bytes: int
    contended_bytes: int


INTERACTIVE: Final = WorkClass(
    name="interactive",
    share=1.0,
    # A turn sends its responses at its end, and no other task runs before. After this time the rest waits for the next
    # turn: whole sockets stay unread, so that senders see TCP back-pressure, and so do the other requests of one read.
    quota_seconds=0.05,
    least_seconds=0.05,
    # One system call for a whole window of requests. It can bring more than a thousand of them (7 ms of pulls), which
    # is why the time is also looked at between two requests of a read.
    quota_bytes=256 * 1024,
    contended_bytes=256 * 1024,
)

BULK: Final = WorkClass(
    name="bulk",
    # Producers keep four fifths of the loop while a consumer catches up. With a thousand pulls in flight and no bound,
    # each turn took tens of milliseconds, and producers that wait for their responses came to a stand.
    share=0.25,
    # Alone: a tenth of the longest turn, so who asks next waits little. Contended: to begin a slice costs a pass of the
    # loop, which takes about as long as the shortest one.
    quota_seconds=0.005,
    least_seconds=0.0001,
    # To join and send a megabyte takes a millisecond, which comes after the time of the slice.
    quota_bytes=2 * 1024 * 1024,
    contended_bytes=256 * 1024,
)

BACKGROUND: Final = WorkClass(
    name="background",
    # One step of each pass, whatever waits: otherwise tasks would starve beside a busy client.
    share=0.0,
    # A thousand short reports then hold other clients up no longer than one. The task quota of Seastar is the same.
    quota_seconds=0.0005,
    least_seconds=0.0,
    quota_bytes=0,
    contended_bytes=0,
)

CONTENDED_SECONDS: Final = 0.1
"""How long after interactive work more of it is expected: a send after a send, a question after a question."""

# A client is interactive when this number of its reads in a row took everything that it had sent, and each brought few
# requests and cost little. A client with a window of many requests is bulk even if they are cheap: beside others like
# it, small pieces would only make all of them dearer.
INTERACTIVE_READS: Final = 8
INTERACTIVE_READ_REQUESTS: Final = 16
INTERACTIVE_READ_SECONDS: Final = 0.0005

# What bulk clients may send in a turn while there are interactive ones: half a millisecond, like the steps of a pass,
# one client after another. Pieces this small keep a read of one of them from being a turn by itself.
BULK_READ_SECONDS: Final = 0.0005
BULK_READ_BYTES: Final = 16 * 1024

# While this number of bulk requests of a connection wait, or requests of this size, it is not read; below the half it
# is read again. A consumer that catches up has a thousand pulls in flight: sends behind them still overtake them.
READ_AHEAD_REQUESTS: Final = 1024
READ_AHEAD_BYTES: Final = 2 * 1024 * 1024
READ_AGAIN_BELOW: Final = 0.5

TURNS_IN_A_ROW: Final = 8
"""Turns without a pass of the loop between them. To poll again costs a tenth of a pass; the bound keeps other tasks
from starving."""

MOST_STEPS_CALLED: Final = 64
"""Tasks that are called for one pass. The loop runs them in any order, so few of them should come for nothing."""
