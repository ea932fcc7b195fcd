"""Puts are refused for as long as their cause lasts, and not for longer."""

from __future__ import annotations

from pathlib import Path

import trio
from file_faults import FULL, WRITES, FaultyFiles
from store_support import message, open_store

from triomq.store.refusals import Refusals
from triomq.store.results import PutStatus

REFUSED = PutStatus.SERVICE_NOT_AVAILABLE


def test_the_oldest_cause_is_the_one_that_is_named() -> None:
    refusals = Refusals()
    refusals.set("a", "first")
    refusals.set("b", "second")
    refusals.set("a", "still first")
    assert (refusals.first, refusals.texts()) == ("still first", {"a": "still first", "b": "second"})
    refusals.set("a", None)
    assert refusals.first == "second"


async def test_a_refused_put_looks_whether_its_cause_has_ended() -> None:
    refusals = Refusals()
    refusals.look_with("a", lambda: refusals.set("a", None))
    refusals.set("a", "passes")
    refusals.set("b", "stays")
    assert refusals.after_a_look() == "stays"
    refusals.set("b", None)
    assert refusals.after_a_look() is None


async def test_a_look_that_costs_much_pauses(autojump_clock: trio.testing.MockClock) -> None:
    refusals, looks = Refusals(), list[float]()
    refusals.look_with("a", lambda: looks.append(trio.current_time()), 0.1)
    refusals.set("a", "lasts")
    for _ in range(30):
        assert refusals.after_a_look() == "lasts"
        await trio.sleep(0.01)
    assert 3 <= len(looks) <= 4


async def test_a_put_writes_what_a_full_disk_kept_back(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """No task of the store runs here: the put itself finds the space."""
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files)
    files.fail(FULL, *WRITES, where="consumequeue/")
    assert store.append(message()).is_ok
    store.commit()
    single, batch = message(), message()
    refused = store.append(single)
    assert refused.status is REFUSED and "a consume queue cannot be written" in refused.reason
    assert store.append_batch(batch, []).status is REFUSED
    files.mend()
    await trio.sleep(0.1)
    assert store.append(message()).is_ok
    store.commit()
    assert store.refusal is None
    await store.close()
