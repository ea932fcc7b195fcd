"""A message takes about as many calls of Python functions as when they were last counted, the fake broker's among them.

A change that makes the path of a message a quarter longer fails on any machine, however busy. If it is worth its calls,
enter the new figure here. Work inside of one call is not counted: `benchmarks.python_facades --cpu` measures that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

import triomq
from triomq.client.core.results import ConsumeFromWhere
from triomq.protocol import record
from triomq.protocol.message import MessageExt

RECEIVED = 43
LISTENED = 44
SENT = 90
TOLERANCE = 1.25

FIRST, COUNT = 64, 512
CLIENT = str(Path(triomq.client.__file__).parent)
PROTOCOL = str(Path(record.__file__).parent)


class Calls:
    """Counts calls of Python functions of client/ and protocol/ while it is on."""

    def __init__(self) -> None:
        self.count = 0

    def _see(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith((CLIENT, PROTOCOL)):
            self.count += 1

    def on(self) -> None:
        sys.setprofile(self._see)

    def off(self) -> None:
        sys.setprofile(None)

    def seen(self, number: int) -> bool:
        """Note that message `number` is there; return whether it was the last that counts."""
        if number == FIRST:
            self.on()
        elif number == FIRST + COUNT:
            self.off()
        return number == FIRST + COUNT

    @property
    def for_each(self) -> float:
        return self.count / COUNT


@pytest.fixture
def calls() -> Iterator[Calls]:
    made = Calls()
    yield made
    made.off()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster.installed(monkeypatch, "T")
    made.brokers["a"].store("T", 0, *[b"%d" % number for number in range(FIRST + COUNT + 64)])
    return made


def consumer() -> triomq.PushConsumer:
    made = triomq.PushConsumer("G", name_server=NAME_SERVER, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    made.subscribe("T")
    return made


needs_fast_path = pytest.mark.skipif(record._take_messages is None, reason="plain Python takes more calls")


@needs_fast_path
def test_a_loop_takes_the_calls_that_it_took(cluster: FakeCluster, calls: Calls) -> None:
    async def main() -> None:
        number = 0
        async with consumer() as opened:
            async for _ in opened:
                number += 1
                if calls.seen(number):
                    return

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert 0 < calls.for_each <= RECEIVED * TOLERANCE, f"{calls.for_each:.1f} calls; {RECEIVED} are known"


@needs_fast_path
def test_a_listener_takes_the_calls_that_it_took(cluster: FakeCluster, calls: Calls) -> None:
    number = 0
    done = trio.Event()

    async def handle(_: MessageExt) -> None:
        nonlocal number
        number += 1
        if calls.seen(number):
            done.set()

    async def main() -> None:
        async with consumer() as opened:
            opened.listen(handle)
            await done.wait()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert 0 < calls.for_each <= LISTENED * TOLERANCE, f"{calls.for_each:.1f} calls; {LISTENED} are known"


def test_send_many_takes_the_calls_that_it_took(cluster: FakeCluster, calls: Calls) -> None:
    async def main() -> None:
        async with triomq.Producer("P", name_server=NAME_SERVER) as producer:
            await producer.send(triomq.Message("T", b"first"))
            calls.on()
            await producer.send_many([triomq.Message("T", b"body") for _ in range(COUNT)], in_flight=32)
            calls.off()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert 0 < calls.for_each <= SENT * TOLERANCE, f"{calls.for_each:.1f} calls; {SENT} are known"
