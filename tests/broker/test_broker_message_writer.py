"""Many puts in one commit: each is finished once, with the outcome of its own commit."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
import trio
from broker_fakes import FakeConnection
from broker_store_lab import Lab, open_lab

from triomq.broker import message_writer
from triomq.broker.message_writer import PendingPut
from triomq.broker.processors.send import SendAnswer
from triomq.protocol.command import new_request
from triomq.store.config import BrokerRole, FlushDiskType
from triomq.store.disk.files import Data
from triomq.store.results import PutStatus
from triomq.store.watermark import Watermark

pytestmark = pytest.mark.skipif(
    not str(message_writer.__file__).endswith(".py"), reason="compiled classes have no interpreted subclasses"
)

OK, REFUSED, LATE = PutStatus.PUT_OK, PutStatus.SERVICE_NOT_AVAILABLE, PutStatus.FLUSH_DISK_TIMEOUT


class Put(PendingPut):
    """Notes when it is finished; may start another put then."""

    def __init__(self, notes: list[tuple[str, PutStatus]], name: str, then: tuple[Lab, str] | None = None) -> None:
        super().__init__()
        self._notes = notes
        self._name = name
        self._then = then
        self.has_body = True

    def release_body(self) -> None:
        self.has_body = False

    def finish(self) -> None:
        self._notes.append((self._name, self.result.status))
        if self._then is not None:
            lab, name = self._then
            put(lab, self._notes, name)


def put(lab: Lab, notes: list[tuple[str, PutStatus]], *names: str, wait: bool = True, then: str = "") -> None:
    for name in names:
        pending = Put(notes, name, (lab, then) if then else None)
        lab.writer.put(lab.message("T", name.encode(), 0, {}), wait, pending)


def break_log(lab: Lab, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Make the next write of the log fail."""
    original = lab.store.files.pwrite
    failures = [code]

    def pwrite(fd: int, data: Data, at: int) -> None:
        if failures:
            raise OSError(failures.pop(), "as asked")
        original(fd, data, at)

    monkeypatch.setattr(lab.store.files, "pwrite", pwrite)


async def test_all_puts_of_a_commit_finish_with_it_in_order(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        notes: list[tuple[str, PutStatus]] = []
        lab.is_committing = False
        put(lab, notes, "a", "b", "c")
        assert notes == []
        lab.store.commit()
        assert notes == [("a", OK), ("b", OK), ("c", OK)]
        put(lab, notes, "d")
        lab.store.commit()
        lab.store.commit()
        assert notes[3:] == [("d", OK)]
        assert lab.bodies("T") == [b"a", b"b", b"c", b"d"]


async def test_a_put_made_by_one_that_is_finished_belongs_to_the_next_commit(tmp_path: Path) -> None:
    async with open_lab(tmp_path) as lab:
        notes: list[tuple[str, PutStatus]] = []
        lab.is_committing = False
        put(lab, notes, "a", then="again")
        put(lab, notes, "b")
        lab.store.commit()
        assert notes == [("a", OK), ("b", OK)]
        lab.store.commit()
        assert notes[2:] == [("again", OK)]


async def test_a_commit_that_fails_refuses_its_puts_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lab(tmp_path) as lab:
        notes: list[tuple[str, PutStatus]] = []
        lab.is_committing = False
        put(lab, notes, "before")
        lab.store.commit()
        put(lab, notes, "a", "b", then="again")
        break_log(lab, monkeypatch, errno.ENOSPC)
        lab.store.commit()
        assert notes == [("before", OK), ("a", REFUSED), ("b", REFUSED)]
        lab.store.commit()
        assert notes[3:] == [("again", OK), ("again", OK)]
        assert lab.bodies("T") == [b"before", b"again", b"again"]


async def test_synchronous_puts_wait_for_the_flush_of_their_commit(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout_ms": 1000}
    async with open_lab(tmp_path, store=store) as lab, trio.open_nursery() as nursery:
        notes: list[tuple[str, PutStatus]] = []
        lab.is_committing = False
        nursery.start_soon(lab.writer.run)
        put(lab, notes, "a", "b")
        put(lab, notes, "in memory is enough", wait=False)
        lab.store.commit()
        put(lab, notes, "c")
        lab.store.commit()
        assert notes == [("in memory is enough", OK)]
        await trio.sleep(2)
        assert notes[1:] == [("a", LATE), ("b", LATE), ("c", LATE)], "nobody flushes here"
        put(lab, notes, "d", "e")
        lab.store.commit()
        await nursery.start(lab.store.run)
        await trio.sleep(0.5)
        assert notes[4:] == [("d", OK), ("e", OK)]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("store", "wait", "has_body"),
    [
        ({}, True, True),
        ({"flush_disk_type": FlushDiskType.SYNC_FLUSH}, False, True),
        ({"flush_disk_type": FlushDiskType.SYNC_FLUSH}, True, False),
        ({"broker_role": BrokerRole.SYNC_MASTER}, True, False),
    ],
)
async def test_a_put_that_may_wait_long_gives_its_body_back(
    tmp_path: Path, store: dict[str, object], wait: bool, has_body: bool
) -> None:
    """A disk or a slave that hangs would hold ten thousand of them in memory."""
    async with open_lab(tmp_path, store=store) as lab:
        pending = Put([], "a")
        lab.writer.put(lab.message("T", b"a", 0, {}), wait, pending)
        assert pending.has_body is has_body
        assert lab.bodies("T") == [b"a"]


async def test_the_body_of_a_send_stays_for_hooks_that_see_its_response() -> None:
    for on_answer, body in ((None, b""), (lambda *_: None, b"message")):
        connection, request = FakeConnection(), new_request(10, body=b"message")
        connection.on_answer = on_answer
        SendAnswer(None, connection, request, "T", 0).release_body()  # type: ignore[arg-type]
        assert request.body == body


async def test_synchronous_puts_into_a_broken_store_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_lab(tmp_path, store={"flush_disk_type": FlushDiskType.SYNC_FLUSH}) as lab:
        notes: list[tuple[str, PutStatus]] = []
        lab.is_committing = False
        put(lab, notes, "a", "b")
        break_log(lab, monkeypatch, errno.EIO)
        lab.store.commit()
        put(lab, notes, "c")
        assert notes == [("a", REFUSED), ("b", REFUSED), ("c", REFUSED)]


async def test_what_is_on_disk_is_not_kept_until_its_deadline(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    store = {"flush_disk_type": FlushDiskType.SYNC_FLUSH, "sync_flush_timeout_ms": 1_000_000}
    async with open_lab(tmp_path, store=store) as lab, trio.open_nursery() as nursery:
        notes: list[tuple[str, PutStatus]] = []
        lab.is_committing = False
        nursery.start_soon(lab.writer.run)
        await nursery.start(lab.store.run)
        for number in range(20):
            put(lab, notes, f"{number}a", f"{number}b")
            lab.store.commit()
            await trio.sleep(0.5)
        assert [status for _, status in notes] == [OK] * 40
        assert lab.writer.waiting_for_disk <= 1
        nursery.cancel_scope.cancel()


class Slaves:
    """One slave that is close enough, and the end of its log."""

    def __init__(self) -> None:
        self.replicated = Watermark()

    def is_near(self, end_offset: int) -> bool:
        return True


async def test_a_put_waits_for_its_last_byte_on_the_slave(tmp_path: Path) -> None:
    async with open_lab(tmp_path, store={"broker_role": BrokerRole.SYNC_MASTER}) as lab:
        slaves = Slaves()
        lab.writer = message_writer.MessageWriter(lab.configuration, lab.store, lab._wake, slaves)
        notes: list[tuple[str, PutStatus]] = []
        lab.is_committing = False
        first, second = Put(notes, "a"), Put(notes, "b")
        for pending in (first, second):
            lab.writer.put(lab.message("T", b"x", 0, {}), True, pending)
        lab.store.commit()
        slaves.replicated.advance(first.result.last_offset)
        assert notes == [], "the slave lacks the first one's last byte"
        slaves.replicated.advance(first.result.last_offset + 1)
        assert notes == [("a", OK)]
        slaves.replicated.advance(second.result.last_offset)
        assert notes == [("a", OK)], "and now the second one's"
        slaves.replicated.advance(second.result.last_offset + 1)
        assert notes == [("a", OK), ("b", OK)]
        third, fourth = Put(notes, "c"), Put(notes, "d")
        for pending in (third, fourth):
            lab.writer.put(lab.message("T", b"x", 0, {}), True, pending)
        lab.store.commit()
        slaves.replicated.advance(fourth.result.last_offset)
        assert notes[2:] == [("c", OK)], "one report that passes the third and lacks a byte of the fourth"
        slaves.replicated.advance(fourth.result.last_offset + 1)
        assert notes[2:] == [("c", OK), ("d", OK)]
