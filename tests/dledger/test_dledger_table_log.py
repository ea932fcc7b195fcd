"""The tables of a group go through its log: what a new leader has, what a start finds, what is never acknowledged."""

from __future__ import annotations

from errno import ENOSPC
from pathlib import Path
from typing import Any, cast

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection, MemoryFile
from fake_clock import FakeClock
from store_lab import MemberStore, open_member

from triomq.broker.errors import NotReplicated
from triomq.broker.group import table_log as module
from triomq.broker.group.known_ends import KnownEnds
from triomq.broker.group.master_decides import ONLY_MASTER, MasterDecides
from triomq.broker.group.table_log import TableLog
from triomq.broker.message_writer import QUORUM_SECONDS
from triomq.broker.processors.queue_locks import QUEUES_IN_A_STEP, QueueLockProcessor
from triomq.broker.quotas.overrides import Overrides
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.request_modes import RequestModes
from triomq.broker.tables.topics import TopicTable
from triomq.broker.topic_deletion import TopicDeletion
from triomq.protocol.bodies.assignment import POP, RequestMode
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.protocol.errors import RequestRefused
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.settings import SettingError
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC
from triomq.store.upkeep.queue_floors import note_ends, noted_ends

QUEUE = MessageQueue("T", "broker-a", 0)


class Member:
    """A member's store with the tables of its broker."""

    def __init__(self, store: MemberStore, clock: FakeClock, position: MemoryFile | None = None) -> None:
        self.member = store
        self.topics = TopicTable(now_ms=clock, built_in=[TopicConfig(topic_name=AUTO_CREATE_TOPIC, perm=7)])
        self.groups = GroupTable(now_ms=clock)
        self.offsets = OffsetTable()
        self.delays = DelayOffsets()
        self.quotas = Overrides(MemoryFile())
        self.locks = QueueLockTable(clock)
        self.modes = RequestModes()
        self.appended = trio.Event()
        self.position = position if position is not None else MemoryFile()
        self.log = TableLog(
            store.store,
            {
                "topics": self.topics,
                "groups": self.groups,
                "offsets": self.offsets,
                "delays": self.delays,
                "quotas": self.quotas,
                "locks": self.locks,
                "modes": self.modes,
            },
            self.position,
            lambda: self.appended.set(),
            member="n0",
            port=10911,
        )
        store.store.replica.tell(deleted=None, tables=self.log.take)

    async def lead(self, term: int = 1) -> None:
        """Take office in a term, with a quorum that answers at once."""
        self.member.term = term
        self.member.leads = True
        await self.member.dispatch()
        self.member.store.quorum.lead()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.answer)
            await self.log.lead(term)
            nursery.cancel_scope.cancel()
        self.member.store.quorum.accept()

    async def answer(self) -> None:
        """Be a quorum that has at once what is written of the tables."""
        while True:
            await self.appended.wait()
            self.appended = trio.Event()
            self.commit()

    def commit(self) -> None:
        """Write what is appended; a quorum has it."""
        self.member.store.commit()
        self.member.commit_all()

    async def take_from(self, leader: Member, until: int | None = None) -> None:
        """Get the leader's entries, and learn that they are committed."""
        self.member.copy_from(leader.member, until)
        self.member.commit_all()
        await self.member.dispatch()

    def make_topic(self, topic: str) -> None:
        assert self.topics.create_on_send(topic, AUTO_CREATE_TOPIC, "10.0.0.1:1", 4, 0) is not None

    def depose(self) -> None:
        self.member.leads = False
        self.log.follow()
        self.member.store.quorum.follow("n1 leads the group")


async def open_two(root: Path) -> tuple[Member, Member]:
    """Return a leader and a follower."""
    clock = FakeClock(step_ms=1)
    leader = Member(await open_member(root / "a", clock), clock)
    follower = Member(await open_member(root / "b", clock), clock)
    await leader.lead()
    return leader, follower


async def test_a_follower_has_what_the_leader_changed(tmp_path: Path) -> None:
    leader, follower = await open_two(tmp_path)
    leader.make_topic("T")
    leader.groups.find("G")
    leader.offsets.commit("G", "T", 3, 17)
    leader.delays.set(2, 5)
    leader.quotas.change("account alice bytesIn=1000")
    leader.locks.lock("G", [QUEUE], "client")
    leader.modes.set("T", "G", RequestMode(topic="T", consumer_group="G", mode=POP))
    leader.log.write()
    leader.commit()
    await follower.take_from(leader)
    assert follower.topics.get("T") == leader.topics.get("T") is not None
    assert follower.groups.get("G") == leader.groups.get("G") is not None
    assert follower.offsets.query("G", "T", 3) == 17
    assert follower.delays.get(2) == 5
    assert follower.quotas.text() == leader.quotas.text() != ""
    assert follower.locks.holder("G", QUEUE) == "client"
    assert follower.modes.get("T", "G") == leader.modes.get("T", "G") is not None
    with pytest.raises(RequestRefused):
        follower.modes.set("T", "G", RequestMode(topic="T", consumer_group="G"))

    leader.groups.delete("G")
    leader.offsets.remove("G")
    leader.locks.unlock("G", [QUEUE], "client")
    leader.modes.group_gone("G")
    leader.log.write()
    leader.commit()
    await follower.take_from(leader)
    assert follower.groups.get("G") is None
    assert follower.offsets.query("G", "T", 3) == -1
    assert follower.locks.holder("G", QUEUE) is None
    assert not len(follower.modes)


async def test_the_entry_of_a_topic_lies_in_front_of_its_first_message(tmp_path: Path) -> None:
    leader, follower = await open_two(tmp_path)
    before = leader.member.ledger.end_index
    leader.make_topic("T")
    leader.member.put()
    leader.commit()
    await follower.take_from(leader, until=before + 1)
    assert follower.topics.get("T") is not None and follower.member.bodies() == []
    await follower.take_from(leader)
    assert follower.member.bodies() == leader.member.bodies() != []


async def test_a_follower_takes_nothing_that_no_quorum_has(tmp_path: Path) -> None:
    leader, follower = await open_two(tmp_path)
    leader.make_topic("T")
    leader.member.store.commit()
    follower.member.copy_from(leader.member)
    await follower.member.dispatch()
    assert follower.topics.get("T") is None


async def test_a_change_is_acknowledged_when_a_quorum_has_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, _ = await open_two(tmp_path)
    settled = trio.Event()

    async def commit_an_offset() -> None:
        leader.offsets.commit("G", "T", 0, 5)
        await leader.offsets.settled()
        settled.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit_an_offset)
        await trio.testing.wait_all_tasks_blocked()
        leader.member.store.commit()
        await trio.testing.wait_all_tasks_blocked()
        assert not settled.is_set() and not leader.log.is_settled
        leader.commit()
        await settled.wait()
    assert leader.log.is_settled


async def test_a_change_that_a_deposed_leader_made_is_not_acknowledged(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, _ = await open_two(tmp_path)
    leader.offsets.commit("G", "T", 0, 5)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def depose() -> None:
            await trio.testing.wait_all_tasks_blocked()
            leader.member.store.commit()
            leader.depose()

        with pytest.raises(NotReplicated, match="n1 leads the group"):
            await leader.offsets.settled()
    with pytest.raises(NotReplicated, match="n1 leads the group"):
        await leader.offsets.settled()


async def test_without_a_quorum_a_change_is_refused_after_a_while(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, _ = await open_two(tmp_path)
    leader.groups.find("G")
    with pytest.raises(NotReplicated, match="no quorum"):
        await leader.groups.wait_saved()


async def test_a_new_leader_gives_all_its_tables_and_removes_what_it_lacks(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, follower = await open_two(tmp_path)
    leader.make_topic("T")
    follower.topics.log = None
    follower.topics.update(TopicConfig(topic_name="Lost"))
    await leader.lead()
    await follower.take_from(leader)
    assert follower.topics.get("T") is not None and follower.topics.get("Lost") is None
    assert not follower.topics.is_deleted("Lost"), "it may be made again like any new topic"
    assert follower.log.is_whole and follower.log.begun is not None and follower.log.begun.term == 1


async def test_a_leader_takes_office_when_a_quorum_has_its_tables(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Else it acknowledges what is no change, and so no record: the next leader, which kept what no quorum got when it
    was deposed, would deny it."""
    leader, follower = await open_two(tmp_path)
    leader.locks.lock("G", [QUEUE], "client")
    leader.log.write()
    leader.commit()
    await follower.take_from(leader)
    leader.locks.unlock("G", [QUEUE], "client")
    leader.log.write()
    leader.depose()

    follower.member.term, follower.member.leads = 2, True
    follower.member.store.quorum.lead()
    with trio.move_on_after(3 * QUORUM_SECONDS) as scope:
        await follower.log.lead(2)
    assert scope.cancelled_caught, "no quorum has its tables"
    await follower.lead(3)
    assert follower.locks.lock("G", [QUEUE], "client") == [QUEUE], "renewed, and nothing is written"
    await leader.take_from(follower)
    assert leader.locks.holder("G", QUEUE) == "client"


async def test_a_leader_whose_store_refuses_its_tables_tries_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, _ = await open_two(tmp_path)
    refusals = leader.member.store.refusals
    refusals.set("log", "too many open files")
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def mend() -> None:
            await trio.sleep(2.5 * module.RETRY_SECONDS)
            refusals.set("log", None)

        begin = trio.current_time()
        await leader.lead(2)
    assert trio.current_time() - begin == pytest.approx(3 * module.RETRY_SECONDS)


async def test_tables_that_did_not_arrive_whole_remove_nothing(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, follower = await open_two(tmp_path)
    follower.topics.log = None
    follower.topics.update(TopicConfig(topic_name="Kept"))
    await leader.lead()
    take = follower.log.take
    replica = follower.member.store.replica
    replica.tell(deleted=None, tables=lambda body: take(body) if b'"part"' not in body else None)
    await follower.take_from(leader)
    assert follower.topics.get("Kept") is not None and not follower.log.is_whole


async def test_a_start_takes_from_the_log_what_the_files_lack(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, follower = await open_two(tmp_path)
    leader.make_topic("T")
    await leader.lead()
    await follower.take_from(leader)
    await follower.log.note_position(trio.lowlevel.checkpoint)
    leader.make_topic("U")
    leader.commit()
    await follower.take_from(leader)
    restarted = Member(follower.member, FakeClock(step_ms=1), follower.position)
    await restarted.log.load()
    assert restarted.topics.get("T") is None, "the files have it"
    assert restarted.topics.get("U") is not None
    assert restarted.log.is_whole


async def test_a_start_follows_nobody_who_led_before_it(tmp_path: Path) -> None:
    leader, follower = await open_two(tmp_path)
    await follower.take_from(leader)
    assert follower.log.begun is not None
    restarted = Member(follower.member, FakeClock(step_ms=1))
    await restarted.log.load()
    assert restarted.log.is_whole and restarted.log.begun is None


async def test_the_position_is_noted_when_the_files_are_written(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, follower = await open_two(tmp_path)
    await leader.lead()
    await follower.take_from(leader)

    async def fail() -> None:
        raise OSError("disk")

    with pytest.raises(OSError, match="disk"):
        await follower.log.note_position(fail)
    assert follower.position.texts == []
    await follower.log.note_position(trio.lowlevel.checkpoint)
    end = follower.member.log.committed_offset
    assert follower.position.text == f'{{"physicalOffset":{end},"whole":true}}'


async def test_while_tables_arrive_the_position_stays_where_they_begin(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, follower = await open_two(tmp_path)
    await leader.lead()
    await follower.take_from(leader)
    end = follower.member.log.committed_offset
    await leader.lead(2)
    await follower.take_from(leader, until=leader.member.ledger.end_index - 1)
    await follower.log.note_position(trio.lowlevel.checkpoint)
    assert follower.member.log.committed_offset > end
    assert f'"physicalOffset":{end},' in follower.position.text


async def test_a_change_whose_write_failed_is_written_again_in_front_of_later_messages(tmp_path: Path) -> None:
    leader, follower = await open_two(tmp_path)
    propose = leader.member.log.propose

    def refuse_once(ticket: object, write: Any) -> int:
        leader.member.log.propose = propose
        raise OSError(ENOSPC, "No space left on device")

    leader.member.log.propose = refuse_once
    leader.make_topic("T")
    leader.member.store.commit()
    leader.member.put()
    leader.commit()
    await follower.take_from(leader, until=leader.member.ledger.end_index - 1)
    assert follower.topics.get("T") is not None and follower.member.bodies() == []


async def test_tables_are_written_again_before_retention_takes_them(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, _ = await open_two(tmp_path)
    await leader.lead()
    kinds: list[str] = []
    append = leader.log._append

    def watched(record: Any, entries: Any) -> bool:
        kinds.append(record.kind)
        return append(record, entries)

    leader.log._append = watched  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.answer)
        nursery.start_soon(leader.log.run_as_leader)
        await trio.sleep(2 * module.LOOK_SECONDS)
        assert module.BEGIN not in kinds, "they are in the log"
        while leader.member.store.appended_offset < 3 * leader.member.log.file_size_bytes:
            leader.member.put(body=b"x" * 500)
        await trio.sleep(2 * module.LOOK_SECONDS)
        assert kinds.count(module.BEGIN) == 1
        nursery.cancel_scope.cancel()


async def test_tables_behind_the_oldest_file_are_written_again_only_when_it_is_gone(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, _ = await open_two(tmp_path)
    store, log = leader.member.store, leader.member.log

    def fill(files: float) -> None:
        end = store.appended_offset + files * log.file_size_bytes
        while store.appended_offset < end:
            leader.member.put(body=b"x" * 100)

    fill(1)
    assert log.file_size_bytes < store.appended_offset < 2 * log.file_size_bytes
    await leader.lead(2)
    fill(1.5)
    leader.commit()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.answer)
        nursery.start_soon(leader.log.run_as_leader)
        filled_to = store.appended_offset
        await trio.sleep(2 * module.LOOK_SECONDS)
        assert store.appended_offset == filled_to
        log.detach_first()
        await trio.sleep(2 * module.LOOK_SECONDS)
        assert store.appended_offset > filled_to
        nursery.cancel_scope.cancel()


async def test_tables_that_a_look_could_not_write_are_written_by_the_next(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, _ = await open_two(tmp_path)
    leader.make_topic("T")
    await leader.lead(2)
    kinds: list[str] = []
    append = leader.log._append

    def refuses_the_first_end(record: Any, entries: Any) -> bool:
        kinds.append(record.kind)
        is_refused = record.kind == module.END and kinds.count(module.END) == 1
        return not is_refused and append(record, entries)

    leader.log._append = refuses_the_first_end  # type: ignore[method-assign]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.answer)
        while leader.member.store.appended_offset < 3 * leader.member.log.file_size_bytes:
            leader.member.put(body=b"x" * 500)
        nursery.start_soon(leader.log.run_as_leader)
        await trio.sleep(1.5 * module.LOOK_SECONDS)
        first = list(kinds)
        assert first[0] == module.BEGIN and first[-1] == module.END and first.count(module.END) == 1
        await trio.sleep(module.LOOK_SECONDS)
        assert kinds == first * 2
        nursery.cancel_scope.cancel()


async def test_only_the_master_executes_what_goes_through_the_log(tmp_path: Path) -> None:
    leader, _ = await open_two(tmp_path)
    is_confirmed = True
    decides = MasterDecides(leader.member.store, lambda: is_confirmed)
    connection = cast(Any, FakeConnection())
    for code in ONLY_MASTER:
        decides(connection, new_request(code))
    is_confirmed = False
    for code in ONLY_MASTER:
        with pytest.raises(RequestRefused, match="another member may lead the group by now"):
            decides(connection, new_request(code))
    decides(connection, new_request(RequestCode.PULL_MESSAGE))
    leader.depose()
    for code in ONLY_MASTER:
        with pytest.raises(RequestRefused, match="n1 leads the group"):
            decides(connection, new_request(code))
    decides(connection, new_request(RequestCode.PULL_MESSAGE))


async def test_a_follower_makes_no_topic_and_no_group(tmp_path: Path) -> None:
    _, follower = await open_two(tmp_path)
    with pytest.raises(RequestRefused, match="another member"):
        follower.make_topic("T")
    assert follower.groups.find("G") is not None, "its clients are served"
    assert follower.groups.get("G") is None


async def test_a_new_master_counts_the_locks_as_renewed(tmp_path: Path) -> None:
    leader, follower = await open_two(tmp_path)
    leader.locks.lock("G", [QUEUE], "client")
    leader.log.write()
    leader.commit()
    await follower.take_from(leader)
    follower.locks.time_jumped(-120)
    assert follower.locks.holder("G", QUEUE) is None, "nobody told the follower of renewals"
    follower.locks.renew_all()
    assert follower.locks.holder("G", QUEUE) == "client"


async def test_a_lock_that_no_quorum_has_is_not_granted(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    leader, _ = await open_two(tmp_path)
    processor = QueueLockProcessor(leader.locks)
    body = LockBatchRequestBody(client_id="client", consumer_group="G", mq_set=frozenset([QUEUE]))
    request = new_request(RequestCode.LOCK_BATCH_MQ, body=body.encode())
    with pytest.raises(NotReplicated, match="no quorum"):
        await processor.lock(cast(Any, FakeConnection()), request)


async def test_an_entry_that_no_record_can_hold_keeps_no_other_from_the_log(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, follower = await open_two(tmp_path)
    for queue_id in range(1000):
        leader.offsets.commit("Long", "T", queue_id, 10_000_000)
    leader.offsets.commit("G", "T", 0, 5)
    leader.log.write()
    leader.commit()
    await follower.take_from(leader)
    assert follower.offsets.query("G", "T", 0) == 5
    assert follower.offsets.query("Long", "T", 0) == -1, "4 KiB are all that a file of this log holds"
    assert leader.log.is_settled
    follower.topics.log = None
    follower.topics.update(TopicConfig(topic_name="Stale"))
    await leader.lead()
    await follower.take_from(leader)
    assert follower.topics.get("Stale") is None, "all parts that there are have arrived"
    assert follower.log.is_whole


async def test_a_change_that_the_store_refuses_is_written_once_it_takes_something_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    leader, follower = await open_two(tmp_path)
    refusals = leader.member.store.refusals
    async with trio.open_nursery() as nursery:
        nursery.start_soon(leader.log.run_as_leader)
        refusals.set("log", "too many open files")
        leader.offsets.commit("G", "T", 0, 5)
        await trio.sleep(10 * module.SOON_SECONDS)
        refusals.set("log", None)
        await trio.sleep(3 * module.SOON_SECONDS)
        nursery.cancel_scope.cancel()
    leader.commit()
    await follower.take_from(leader)
    assert follower.offsets.query("G", "T", 0) == 5


async def office_taken(member: Member) -> None:
    """Take office as GroupRoles does."""
    store = member.member.store
    await store.quorum.catch_up()
    store.quorum.lead()
    member.member.commit_all()
    await store.quorum.catch_up()
    await KnownEnds(store, member.topics, member.offsets, member.delays).keep()
    store.quorum.accept()
    member.member.leads = True


async def test_no_queue_begins_below_what_its_groups_have_committed(tmp_path: Path) -> None:
    """Of T no member has a message or a queue file any more; its group has had 30."""
    leader, follower = await open_two(tmp_path)
    leader.make_topic("T")
    leader.offsets.commit("G", "T", 0, 30)
    leader.offsets.commit("H", "T", 0, 12)
    leader.offsets.commit("G", "Deleted", 0, 9)
    leader.delays.set(2, 5)
    leader.log.write()
    leader.commit()
    await follower.take_from(leader)
    leader.depose()
    files, paths = follower.member.store.contents.files, follower.member.store.contents.paths
    note_ends(files, paths, {("T", 1): 7, ("T", 0): 3})
    await office_taken(follower)
    assert follower.member.put().queue_offset == 30
    assert follower.member.put(queue_id=1).queue_offset == 7
    assert follower.member.put(queue_id=2).queue_offset == 0
    follower.member.commit_all()
    assert [follower.member.first_offset(), len(follower.member.bodies_from(30))] == [30, 1]
    assert follower.member.store.reading.max_offset("Deleted", 0) == 0
    assert follower.member.store.reading.max_offset("SCHEDULE_TOPIC_XXXX", 1) == 5
    assert noted_ends(files, paths) == {}
    await leader.take_from(follower)
    assert leader.member.bodies_from(30) == follower.member.bodies_from(30)


async def test_a_queue_with_messages_behind_the_committed_end_is_not_raised(tmp_path: Path) -> None:
    leader, follower = await open_two(tmp_path)
    leader.make_topic("T")
    leader.offsets.commit("G", "T", 0, 30)
    leader.log.write()
    leader.commit()
    await follower.take_from(leader)
    leader.member.put()
    leader.member.store.commit()
    follower.member.copy_from(leader.member)
    leader.depose()
    await office_taken(follower)
    assert follower.member.bodies() == [b"hello"]
    assert follower.member.put().queue_offset == 1


async def test_a_deletion_whose_leader_is_deposed_meanwhile_deletes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, _ = await open_two(tmp_path)
    leader.make_topic("T")
    leader.member.put()
    leader.commit()

    async def saved_and_deposed() -> None:
        leader.depose()

    monkeypatch.setattr(leader.topics, "wait_saved", saved_and_deposed)
    deletion = TopicDeletion(leader.topics, leader.offsets, leader.member.store)
    with pytest.raises(RequestRefused, match="not deleted: another member of the group is its master"):
        await deletion.begin("T")
    assert leader.topics.get("T") is not None and leader.topics.being_deleted() == []
    assert leader.member.store.reading.max_offset("T", 0) == 1


async def test_a_member_that_does_not_lead_changes_no_quota(tmp_path: Path) -> None:
    leader, _ = await open_two(tmp_path)
    leader.quotas.change("account alice bytesIn=1000")
    leader.depose()
    for change in (leader.quotas.check, leader.quotas.change):
        with pytest.raises(SettingError, match="another member of the group is its master"):
            change("account alice bytesIn=2000")
    assert "1000" in leader.quotas.text()


async def test_a_member_that_is_deposed_amid_a_request_locks_no_more_queues(tmp_path: Path) -> None:
    leader, _ = await open_two(tmp_path)
    queues = frozenset(MessageQueue("T", "broker-a", number) for number in range(3 * QUEUES_IN_A_STEP))
    body = LockBatchRequestBody(consumer_group="G", client_id="client", mq_set=queues).encode()
    processor = QueueLockProcessor(leader.locks)
    work = processor.lock(cast(Any, FakeConnection()), new_request(RequestCode.LOCK_BATCH_MQ, body=body))
    leader.depose()
    with pytest.raises(RequestRefused, match="another member of the group is its master"):
        await work
    assert sum(leader.locks.holder("G", queue) is not None for queue in queues) == QUEUES_IN_A_STEP
