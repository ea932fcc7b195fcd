"""The memory budget: frames wait for grants, those who hold much and take nothing leave, and the sums are right."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st
from test_remoting_waiting import CODE, Link, requests
from trio.testing import MockClock

from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import encode_frame
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import TIGHT_HIGH_WATER_BYTES, ConnectionSettings
from triomq.remoting.memory import (
    DEFAULT_LEAST_BYTES,
    DEFAULT_MOST_BYTES,
    FREE_FRAME_BYTES,
    GRACE_SECONDS,
    LEAST_BYTES,
    OVERDRAFT_BYTES,
    SLOWEST_BYTES_PER_SECOND,
    STALLED_SECONDS,
    MemoryBudget,
    Share,
    budget_of,
    memory_bytes,
)
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.turn import Turn

MIB = 1024 * 1024
HERE = HostPort("127.0.0.1", 1)


class Peer:
    """A connection that notes what the budget tells it."""

    def __init__(self, budget: MemoryBudget, ip: str = "10.0.0.1") -> None:
        self.remote = HostPort(ip, 1)
        self.last_active = trio.current_time()
        self.closed_because: str | None = None
        self.reads_on = 0
        self.share = Share(budget, self)

    def may_read(self) -> None:
        self.reads_on += 1

    def close(self, reason: str) -> None:
        self.closed_because = reason
        self.share.leave()

    def begins(self, frame_bytes: int, held_bytes: int = 1000) -> bool:
        return self.share.read_frame(held_bytes, frame_bytes, is_new=False)

    def ends(self) -> None:
        self.share.read_frame(0, 0, is_new=True)


@pytest.fixture
def budget(autojump_clock: MockClock) -> MemoryBudget:
    return MemoryBudget(100 * MIB)


@pytest.fixture
async def watched(budget: MemoryBudget, nursery: trio.Nursery) -> MemoryBudget:
    nursery.start_soon(budget.run)
    return budget


# -- frames ------------------------------------------------------------------------------------------------------------


async def test_long_frames_are_read_up_to_half_of_the_budget_and_the_next_wait(
    budget: MemoryBudget, autojump_clock: MockClock
) -> None:
    peers = [Peer(budget) for _ in range(6)]
    assert [peer.begins(15 * MIB) for peer in peers] == [True] * 3 + [False] * 3
    assert budget.granted_bytes == 45 * MIB
    peers[1].ends()
    assert [peer.reads_on for peer in peers] == [0, 0, 0, 1, 0, 0]
    peers[0].ends()
    peers[3].ends()
    assert [peer.reads_on for peer in peers] == [0, 0, 0, 1, 1, 1]
    for peer in peers:
        peer.ends()
    assert (budget.granted_bytes, budget.held_bytes) == (0, 0)


async def test_short_frames_need_no_grant_unless_memory_is_tight(
    budget: MemoryBudget, autojump_clock: MockClock
) -> None:
    assert Peer(budget).begins(FREE_FRAME_BYTES)
    assert budget.granted_bytes == 0
    Peer(budget).share.set_backlog(51 * MIB)
    assert Peer(budget).begins(FREE_FRAME_BYTES)
    assert budget.granted_bytes == FREE_FRAME_BYTES


async def test_addresses_get_their_grants_in_turn(budget: MemoryBudget, autojump_clock: MockClock) -> None:
    holder = Peer(budget, "10.0.0.9")
    filler = Peer(budget, "10.0.0.1")
    assert holder.begins(25 * MIB)
    assert filler.begins(25 * MIB)
    overdrawn = Peer(budget, "10.0.0.2")
    assert overdrawn.begins(OVERDRAFT_BYTES)
    many = [Peer(budget, "10.0.0.1") for _ in range(3)]
    few = [Peer(budget, "10.0.0.2") for _ in range(2)]
    assert not any(peer.begins(20 * MIB) for peer in many + few)
    overdrawn.ends()
    order = []
    ended = [holder, filler]
    for _ in range(5):
        ended.pop(0).ends()
        new = [peer for peer in many + few if peer.reads_on and peer not in order]
        order += new
        ended += new
    assert [peer.remote.ip[-1] for peer in order] == ["1", "2", "1", "2", "1"]


async def test_what_runs_as_a_task_takes_the_place_of_frames_until_it_has_ended(
    budget: MemoryBudget, autojump_clock: MockClock
) -> None:
    for _ in range(3):
        budget.task_began("10.0.0.1", 16 * MIB)
    sender, stranger = Peer(budget), Peer(budget, "10.0.0.2")
    assert not sender.begins(4 * MIB)
    assert stranger.begins(4 * MIB), "an address that uses nothing gets one from the overdraft"
    stranger.ends()
    assert sender.reads_on == 0
    budget.task_ended("10.0.0.1", 16 * MIB)
    assert sender.reads_on == 1
    sender.ends()
    for _ in range(2):
        budget.task_ended("10.0.0.1", 16 * MIB)
    assert (budget.granted_bytes, budget.task_bytes) == (0, 0)
    budget.task_began("10.0.0.1", OVERDRAFT_BYTES + 51 * MIB)
    assert not stranger.begins(4 * MIB)


async def test_an_address_without_a_grant_gets_one_beyond_the_half_within_the_overdraft(
    budget: MemoryBudget, autojump_clock: MockClock
) -> None:
    greedy = [Peer(budget) for _ in range(4)]
    assert [peer.begins(16 * MIB) for peer in greedy] == [True, True, True, False]
    others = [Peer(budget, f"10.0.0.{number}") for number in range(2, 8)]
    assert [peer.begins(16 * MIB) for peer in others] == [True, True, True, False, False, False]
    assert budget.granted_bytes <= 50 * MIB + OVERDRAFT_BYTES


async def test_a_frame_longer_than_the_half_is_read_alone(budget: MemoryBudget, autojump_clock: MockClock) -> None:
    assert Peer(budget).begins(99 * MIB)
    assert not Peer(budget).begins(MIB)


async def test_a_frame_that_comes_too_slowly_makes_room_for_those_that_wait(
    watched: MemoryBudget, autojump_clock: MockClock
) -> None:
    slow, fast, waiting = (Peer(watched) for _ in range(3))
    assert slow.begins(25 * MIB)
    assert fast.begins(25 * MIB)
    await trio.sleep(10 * GRACE_SECONDS)
    assert slow.closed_because is None, "nobody waits"
    assert not waiting.begins(20 * MIB)
    fast.begins(25 * MIB, held_bytes=20 * MIB)
    await trio.sleep(2)
    assert "too slowly" in str(slow.closed_because)
    assert waiting.reads_on == 1
    assert fast.closed_because is None
    late = 10 * GRACE_SECONDS + 2
    assert late * SLOWEST_BYTES_PER_SECOND < 20 * MIB, "it was fast enough"


async def test_a_grant_is_for_one_frame(watched: MemoryBudget, autojump_clock: MockClock) -> None:
    peer, waiting = Peer(watched), Peer(watched)
    peer.begins(30 * MIB)
    assert not waiting.begins(40 * MIB)
    await trio.sleep(GRACE_SECONDS - 2)
    peer.share.read_frame(1000, 30 * MIB, is_new=True)
    assert waiting.reads_on == 1
    assert peer.share.is_waiting, "the next frame waits behind it"


async def test_who_leaves_waits_no_more(budget: MemoryBudget, autojump_clock: MockClock) -> None:
    peer, waiting, last = (Peer(budget) for _ in range(3))
    peer.begins(50 * MIB)
    waiting.begins(50 * MIB)
    last.begins(50 * MIB)
    waiting.share.leave()
    waiting.share.leave()
    peer.share.leave()
    assert (waiting.reads_on, last.reads_on) == (0, 1)
    waiting.share.set_backlog(100)
    assert budget.held_bytes == 0


# -- what else is held -------------------------------------------------------------------------------------------------


async def test_the_stalled_peer_that_holds_the_most_leaves_first(
    watched: MemoryBudget, autojump_clock: MockClock
) -> None:
    small, big, waits = (Peer(watched) for _ in range(3))
    small.share.set_backlog(20 * MIB)
    big.share.set_backlog(29 * MIB)
    waits.share.keep(10 * MIB)
    assert watched.is_tight
    await trio.sleep(STALLED_SECONDS - 1)
    assert big.closed_because is None
    await trio.sleep(3)
    assert f"the peer left {29 * MIB} bytes" in str(big.closed_because)
    assert not watched.is_tight
    assert small.closed_because is None


async def test_parked_pulls_do_not_make_a_peer_stalled(watched: MemoryBudget, autojump_clock: MockClock) -> None:
    peer = Peer(watched)
    peer.share.keep(60 * MIB)
    await trio.sleep(STALLED_SECONDS + 3)
    assert watched.is_tight
    assert peer.closed_because is None


async def test_a_peer_that_takes_a_little_leaves_when_memory_stays_nearly_used_up(
    watched: MemoryBudget, autojump_clock: MockClock
) -> None:
    slow, tight = Peer(watched), Peer(watched)
    slow.share.set_backlog(70 * MIB)
    tight.share.set_backlog(MIB)
    for _ in range(int(GRACE_SECONDS) - 1):
        await trio.sleep(1)
        slow.last_active = tight.last_active = trio.current_time()
    assert slow.closed_because is None
    for _ in range(3):
        await trio.sleep(1)
        slow.last_active = tight.last_active = trio.current_time()
    assert slow.closed_because is None, "three quarters are not reached"
    slow.share.set_backlog(80 * MIB)
    await trio.sleep(2)
    assert slow.closed_because is not None
    assert tight.closed_because is None


@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from(["backlog", "keep", "waiting", "frame", "end", "leave"]),
            st.integers(0, 3 * MIB),
        ),
        max_size=60,
    )
)
def test_the_sums_are_those_of_the_shares(steps: list[tuple[int, str, int]]) -> None:
    async def run() -> None:
        budget = MemoryBudget(4 * MIB)
        peers = [Peer(budget, f"10.0.0.{number % 2}") for number in range(4)]
        for number, step, count in steps:
            share = peers[number].share
            if step == "leave" or share._has_left:
                share.leave()
            elif step == "backlog":
                share.set_backlog(count)
            elif step == "keep":
                share.keep(count)
            elif step == "waiting":
                share.set_waiting(count)
            elif step == "frame" and not share.is_waiting:
                share.read_frame(count // 2, count, is_new=False)
            elif step == "end":
                share.read_frame(0, 0, is_new=True)
            assert budget.held_bytes == sum(budget._held.values()) >= 0
            assert budget.is_tight == (budget.held_bytes > 2 * MIB)
            assert budget.granted_bytes == sum(granted for granted, _ in budget._granted.values())
        for peer in peers:
            peer.share.leave()
        assert (budget.held_bytes, budget.granted_bytes, budget._waiting, budget._used_by) == (0, 0, {}, {})

    trio.run(run)


async def test_tables_leave_less_to_frames_and_to_the_rest(budget: MemoryBudget, autojump_clock: MockClock) -> None:
    tables = budget.tables.account("tables")
    assert budget.half_bytes == 50 * MIB
    assert tables.fits(50 * MIB)
    assert not tables.fits(50 * MIB + 1)
    tables.set(40 * MIB)
    assert budget.half_bytes == 30 * MIB
    first, second = Peer(budget), Peer(budget, "10.0.0.2")
    assert first.share.read_frame(100, 16 * MIB, is_new=False)
    assert first.share.read_frame(0, 0, is_new=True)
    second.share.keep(31 * MIB)
    assert budget.is_tight
    second.share.keep(-2 * MIB)
    assert not budget.is_tight
    tables.set(90 * MIB)  # a file brought it
    assert budget.half_bytes == 25 * MIB, "some is always left"


# -- connections -------------------------------------------------------------------------------------------------------


class Bench:
    """Connections with one budget, and a processor that notes bodies; its responses have `response_bytes`."""

    def __init__(self, nursery: trio.Nursery, limit_bytes: int) -> None:
        self.nursery = nursery
        self.turn = Turn()
        self.memory = MemoryBudget(limit_bytes)
        self.table = ProcessorTable()
        self.table.register(CODE, self.process)
        self.response_bytes = 100
        self.bodies: list[int] = []
        nursery.start_soon(self.turn.run)

    def process(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        self.bodies.append(len(request.body))
        return new_response(request, body=bytes(self.response_bytes))

    def connect(self) -> Link:
        settings = ConnectionSettings(16 * MIB, 3, memory=self.memory)
        connection = Connection(self.table, self.turn, self.nursery, HERE, HERE, settings)
        connection.transport = link = Link(connection)
        return link

    def read(self, link: Link, data: bytes) -> None:
        self.turn.begin()
        link.connection.receive(data)
        self.turn.end()


async def test_a_connection_is_not_read_while_its_frame_waits_for_memory(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, 4 * MIB)
    first, second = bench.connect(), bench.connect()
    frame = encode_frame(new_request(CODE, body=bytes(3 * MIB // 2)))
    for link in (first, second):
        bench.read(link, frame[:1000])
    assert (first.is_read, second.is_read) == (True, False)
    bench.read(first, frame[1000:])
    assert second.is_read
    bench.read(second, frame[1000:])
    assert bench.bodies == [3 * MIB // 2] * 2
    assert (bench.memory.granted_bytes, bench.memory.held_bytes) == (0, 0)


async def test_less_output_waits_for_a_peer_while_memory_is_tight(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, 2 * MIB)
    bench.response_bytes = 10_000
    other, link = bench.connect(), bench.connect()
    link.stuck = True
    other.connection.hold(MIB + 1)
    bench.read(link, requests(50))
    assert TIGHT_HIGH_WATER_BYTES < len(link.written) < TIGHT_HIGH_WATER_BYTES + 2 * bench.response_bytes
    assert not link.is_read
    other.connection.hold(-MIB - 1)
    link.take_all()
    await trio.testing.wait_all_tasks_blocked()
    assert len(link.answered) == 50, "the usual mark counts again"


async def test_a_peer_that_takes_nothing_makes_no_work_while_memory_is_tight(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its backlog is above the mark of tight memory and below the usual one."""
    bench = Bench(nursery, 2 * MIB)
    bench.response_bytes = TIGHT_HIGH_WATER_BYTES
    other, link = bench.connect(), bench.connect()
    link.stuck = True
    other.connection.hold(MIB + 1)
    bench.read(link, requests(20))
    assert not bench.turn.scheduler.has_waiting
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.bodies) < 5
    link.stuck = False
    link.take_all()
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.bodies) == 20


async def test_what_a_connection_holds_counts_and_is_given_back(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    bench = Bench(nursery, 100 * MIB)
    bench.response_bytes = MIB
    link = bench.connect()
    link.stuck = True
    bench.read(link, requests(10))
    assert bench.memory.held_bytes == link.backlog_bytes + 6 * 1024, "four responses, and six requests that wait"
    link.connection.hold(77)
    bench.read(link, b"\x00\x00\x10\x00half")
    assert bench.memory.held_bytes == link.backlog_bytes + 6 * 1024 + 77 + 8
    for _ in range(2):
        link.take_all()
        await trio.testing.wait_all_tasks_blocked()
    link.take_all()
    assert bench.memory.held_bytes == 77 + 8
    link.connection.close("enough")
    link.connection.hold(-77)
    assert bench.memory.held_bytes == 0


async def test_long_requests_that_run_as_tasks_hold_no_more_than_half_of_the_budget(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """However many a peer sends at once; they are handled as those before them end, also if their peer has gone."""
    bench = Bench(nursery, 16 * MIB)
    first, second = bench.connect(), bench.connect()
    most_bytes = 0
    ended = []

    async def slow(_: Connection, request: RemotingCommand) -> RemotingCommand:
        nonlocal most_bytes
        most_bytes = max(most_bytes, bench.memory.task_bytes)
        await trio.sleep(1)
        ended.append(len(request.body))
        return new_response(request)

    bench.table.register(2, slow)
    frame = encode_frame(new_request(2, body=bytes(MIB)))
    unread = {first: frame * 20, second: frame * 20}
    with trio.fail_after(60):
        while any(unread.values()):
            for link in unread:
                while link.is_read and unread[link]:
                    bench.read(link, unread[link][: 64 * 1024])
                    unread[link] = unread[link][64 * 1024 :]
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.5)
        first.connection.close("enough")
        await trio.sleep(5)
    assert 6 * MIB < most_bytes <= 9 * MIB
    assert len(ended) >= 30
    assert (bench.memory.task_bytes, bench.memory.held_bytes, bench.memory.granted_bytes) == (0, 0, 0)


async def test_the_requests_of_tasks_count(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    bench = Bench(nursery, 100 * MIB)
    link = bench.connect()

    async def slow(_: Connection, request: RemotingCommand) -> RemotingCommand:
        await trio.sleep(1)
        return new_response(request)

    bench.table.register(2, slow)
    bench.read(link, encode_frame(new_request(2, body=bytes(5000))))
    assert bench.memory.held_bytes == 1024 + 5000
    await trio.sleep(2)
    assert bench.memory.held_bytes == 0


# -- how much there is -------------------------------------------------------------------------------------------------


def test_the_default_is_a_share_of_the_machine_within_bounds() -> None:
    for machine_bytes, limit_bytes in ((1, DEFAULT_LEAST_BYTES), (1 << 60, DEFAULT_MOST_BYTES), (1 << 33, 1 << 30)):
        assert budget_of(0, 16 * MIB, machine_bytes).limit_bytes == limit_bytes
    assert budget_of(0, 16 * MIB).limit_bytes == budget_of(0, 16 * MIB, memory_bytes()).limit_bytes
    assert budget_of(200 * MIB, 16 * MIB).limit_bytes == 200 * MIB
    assert budget_of(1, 16 * MIB).limit_bytes == LEAST_BYTES
    assert budget_of(200 * MIB, 300 * MIB).limit_bytes == 600 * MIB, "a frame of the longest size has room"


@pytest.mark.parametrize(
    ("cgroup", "files", "limit_bytes"),
    [
        ("0::/a/b\n", {"sys/fs/cgroup/a/b/memory.max": "max", "sys/fs/cgroup/a/memory.max": "5000"}, 5000),
        ("0::/a/b\n", {"sys/fs/cgroup/memory.max": "6000"}, 6000),
        ("0::/a\n", {"sys/fs/cgroup/a/memory.max": "7000", "sys/fs/cgroup/memory.max": "8000"}, 7000),
        ("5:memory,x:/c\n", {"sys/fs/cgroup/memory/c/memory.limit_in_bytes": "9000"}, 9000),
        ("5:memory:/c\n4:cpu:/d\n", {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9500"}, 9500),
        ("0::/\n", {"sys/fs/cgroup/memory.max": "max"}, None),
        ("nonsense\n", {}, None),
        (None, {}, None),
    ],
)
def test_the_limit_of_a_control_group_counts(
    tmp_path: Path, cgroup: str | None, files: dict[str, str], limit_bytes: int | None
) -> None:
    if cgroup is not None:
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text + "\n")
    machine_bytes = memory_bytes(tmp_path / "nothing")
    assert machine_bytes > 64 * MIB
    assert memory_bytes(tmp_path) == (machine_bytes if limit_bytes is None else limit_bytes)
