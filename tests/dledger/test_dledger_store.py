"""A store over the ledger of a group: what is committed, who gives out queue offsets, and what a start finds."""

from __future__ import annotations

from pathlib import Path

import trio
import trio.testing
from broker_fakes import FakeConnection, MemoryFile
from broker_store_lab import WallClock as DelayClock
from fake_clock import FakeClock
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from store_lab import MemberStore, open_member
from store_support import abandon, inline, message, small_settings

from triomq.broker import redirection
from triomq.broker.configuration import Configuration
from triomq.broker.delay import DelayedDelivery
from triomq.broker.message_writer import MessageWriter, PendingPut, WatchedPut
from triomq.broker.pulls.long_polling import LongPolling, ParkedPull
from triomq.broker.spans.puts import TracingWriter
from triomq.broker.spans.recorder import Recorder
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.topics import TopicTable
from triomq.broker.undeliverable import Undeliverable
from triomq.protocol import stored_properties
from triomq.protocol.command import new_request
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.record import BatchUnit
from triomq.remoting.processor_table import Pool
from triomq.store.results import PutStatus


async def test_a_message_can_be_read_when_a_quorum_has_it_and_not_before(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    first, second = member.put(body=b"one"), member.put(body=b"two")
    assert (first.queue_offset, second.queue_offset) == (0, 1)
    assert first.physical_offset == 48, "the record lies behind the header of its entry"
    waits: list[Exception | None] = []
    member.store.acknowledged.call_beyond(first.last_offset, waits.append)
    assert member.bodies() == [] and not waits
    member.commit_all(until=0)
    assert member.bodies() == [b"one"] and waits == [None]
    member.commit_all()
    assert member.bodies() == [b"one", b"two"]


async def test_a_pull_that_a_leader_holds_gets_what_the_next_leader_commits(tmp_path: Path) -> None:
    """So a leader that becomes a follower need not send the pulls that it holds elsewhere."""
    clock = FakeClock(step_ms=1)
    former, new = await open_member(tmp_path / "n0", clock), await open_member(tmp_path / "n1", clock)
    answered: list[ParkedPull] = []
    polling = LongPolling(former.store, Pool("pull", 10))
    await former.lead()
    header = PullMessageRequestHeader(
        consumer_group="G",
        topic="T",
        queue_id=0,
        queue_offset=0,
        max_msg_nums=32,
        sys_flag=2,
        commit_offset=0,
        suspend_timeout_millis=15_000,
        sub_version=0,
    )
    end = trio.current_time() + 15
    polling.hold_for_news(ParkedPull(FakeConnection(), new_request(11), header, end, answered.append), None)
    former.leads = False
    former.store.quorum.follow("n1 leads the group")
    await new.lead()
    new.put(body=b"of the next leader")
    former.copy_from(new)
    assert answered == []
    former.commit_all()
    await former.dispatch()
    assert len(answered) == 1 and former.bodies() == [b"of the next leader"]


async def test_a_put_is_complete_when_a_quorum_has_it_although_others_of_its_commit_are_sooner(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    settings = small_settings(tmp_path, enable_dleger_commit_log=True)
    writer = MessageWriter(Configuration(store=settings), member.store, lambda: None)
    puts = [WatchedPut(lambda result: None) for _ in range(3)]
    for put in puts:
        writer.put(message(), True, put)
    member.store.commit()
    member.commit_all(until=0)
    assert not puts[1].is_finished and not puts[2].is_finished
    member.commit_all()
    assert [put.is_finished and put.result.is_ok for put in puts] == [True, True, True]


async def leader_with_delayed(tmp_path: Path, *bodies: bytes) -> tuple[MemberStore, DelayedDelivery, DelayOffsets]:
    """Return a leader that has messages of these bodies on level 1, and what delivers them, which does not run yet."""
    clock = DelayClock()
    member = await MemberStore(tmp_path, clock).load()
    await member.lead()
    configuration = Configuration(store=small_settings(tmp_path, enable_dleger_commit_log=True))
    writer = MessageWriter(configuration, member.store, lambda: None)
    for body in bodies:
        delayed = message(body=body, properties=b"DELAY\x011")
        redirection.delay(delayed, "1", member.store.delay_levels)
        writer.put(delayed, False, PendingPut())
    member.store.commit()
    member.commit_all()
    topics, offsets = TopicTable(MemoryFile(), now_ms=clock), DelayOffsets(offload=inline)
    undeliverable = Undeliverable(writer, topics)
    delivery = DelayedDelivery(configuration, member.store, writer, offsets, topics, undeliverable, now_ms=clock)
    return member, delivery, offsets


async def test_delayed_messages_are_delivered_once_when_a_quorum_has_them(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    member, delivery, offsets = await leader_with_delayed(tmp_path, b"one", b"two")
    async with trio.open_nursery() as nursery:
        await nursery.start(delivery.run)
        await trio.sleep(5)
        assert (member.bodies(), offsets.get(1)) == ([], 0), "no quorum has them"
        member.commit_all()
        await trio.sleep(5)
        assert (member.bodies(), offsets.get(1)) == ([b"one", b"two"], 2)
        assert member.ledger.end_index == 3
        nursery.cancel_scope.cancel()


async def test_a_deposed_leader_moves_no_delay_offset_past_what_no_quorum_is_known_to_have(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    member, delivery, offsets = await leader_with_delayed(tmp_path, b"one")
    async with trio.open_nursery() as nursery:
        await nursery.start(delivery.run)
        await trio.sleep(2)
        assert member.ledger.end_index == 1
        member.leads = False
        member.store.quorum.follow("n1 leads the group")
        await trio.sleep(1)
        assert offsets.get(1) == 0
        assert member.ledger.end_index == 1
        nursery.cancel_scope.cancel()


async def test_the_quorum_is_a_phase_of_a_traced_put(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    settings = small_settings(tmp_path, enable_dleger_commit_log=True)
    spans = Recorder(provider, FakeClock(), "broker-a")
    writer = TracingWriter(Configuration(store=settings), member.store, lambda: None, spans=spans)
    put = WatchedPut(lambda result: None)
    traced = message()
    traced.properties = stored_properties.of({"traceparent": f"00-{1:032x}-{2:016x}-01"})
    writer.put(traced, True, put)
    member.store.commit()
    assert [span.name for span in exporter.get_finished_spans()] == ["append"]
    member.commit_all()
    assert put.is_finished and put.result.is_ok
    assert [span.name for span in exporter.get_finished_spans()][1:] == ["replicate", f"store {traced.topic}"]


async def test_a_log_that_the_leader_replaces_takes_what_was_derived_from_the_old_one(tmp_path: Path) -> None:
    clock = FakeClock(step_ms=1)
    leader, member = await open_member(tmp_path / "a", clock), await open_member(tmp_path / "b", clock)
    for each, body in ((leader, b"right"), (member, b"wrong")):
        await each.lead()
        for _ in range(80):
            each.put(body=body * 10)
        each.commit_all()
    leader.store.files.unlink(leader.log.detach_first().path)
    for queue in leader.store.contents.queues:
        queue.correct_min_offset(leader.log.min_offset)
    member.leads = False
    member.store.quorum.follow("n1 leads the group")
    member.ledger.reset(leader.ledger.entry(leader.ledger.begin_index))
    member.store.quorum.replaced(member.ledger.begin_pos)
    member.copy_from(leader)
    member.commit_all()
    await member.dispatch()
    found = [body for body in member.bodies_from(leader.first_offset()) if body]
    assert found == leader.bodies_from(leader.first_offset()) and set(found) == {b"right" * 10}
    await member.lead()
    assert member.put().queue_offset == 80


async def test_messages_that_the_group_does_not_take_give_back_their_queue_offsets(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    member.put(body=b"one")
    member.leads = False
    lost = member.put(body=b"two")
    assert lost.status is PutStatus.SERVICE_NOT_AVAILABLE and "does not lead" in str(lost.reason)
    member.leads = True
    assert member.put(body=b"three").queue_offset == 1
    member.commit_all()
    assert member.bodies() == [b"one", b"three"]


async def test_a_member_that_follows_refuses_messages_and_answers_those_that_wait(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    assert member.put().status is PutStatus.SERVICE_NOT_AVAILABLE, "nobody leads yet"
    await member.lead()
    written = member.put()
    answers: list[Exception | None] = []
    member.store.acknowledged.call_beyond(written.last_offset, answers.append)
    member.leads = False
    member.store.quorum.follow("n1 leads the group")
    assert "may be stored, or not" in str(answers[0])
    refused = member.put()
    assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE and refused.reason == "n1 leads the group"


async def test_a_follower_has_the_bytes_and_the_queues_of_its_leader(tmp_path: Path) -> None:
    clock = FakeClock(step_ms=1)
    leader, follower = await open_member(tmp_path / "a", clock), await open_member(tmp_path / "b", clock)
    await leader.lead()
    for number in range(60):  # more than one file
        leader.put(queue_id=number % 2, body=b"%d" % number * 20, keys=f"k{number}")
    units = [BatchUnit(0, b"unit %d" % number, b"") for number in range(30)]
    leader.store.append_batch(message(queue_id=1), units)
    leader.store.commit()
    leader.commit_all()
    follower.copy_from(leader)
    assert follower.bodies() == []
    follower.store.quorum.committed(follower.ledger.end_of(50))
    await follower.dispatch()
    assert follower.bodies() == leader.bodies()[:26]
    follower.commit_all()
    await follower.dispatch()
    for queue_id in (0, 1):
        assert follower.bodies("T", queue_id) == leader.bodies("T", queue_id) != []
    found = [member.store.reading.offsets_by_key("T", "k7", 10, 0, 1 << 62) for member in (leader, follower)]
    assert found[0] == found[1] != []
    for part in ("dledger-n0/data", "consumequeue/T/0", "consumequeue/T/1"):
        names = sorted(path.name for path in (tmp_path / "a" / part).iterdir())
        assert names == sorted(path.name for path in (tmp_path / "b" / part).iterdir())
        await leader.store.flushing.flush_thoroughly()
        await follower.store.flushing.flush_thoroughly()
        for name in names:
            assert (tmp_path / "a" / part / name).read_bytes() == (tmp_path / "b" / part / name).read_bytes()


async def test_a_new_leader_counts_the_records_that_are_not_committed_yet(tmp_path: Path) -> None:
    clock = FakeClock(step_ms=1)
    leader, follower = await open_member(tmp_path / "a", clock), await open_member(tmp_path / "b", clock)
    await leader.lead()
    for number in range(5):
        leader.put(body=b"%d" % number)
    follower.copy_from(leader)
    follower.commit_all(until=1)
    follower.term = 2
    await follower.lead()
    new = follower.put(body=b"new")
    assert new.queue_offset == 5
    assert follower.bodies() == [b"0", b"1"]
    follower.commit_all()
    await follower.dispatch()
    assert follower.bodies() == [b"0", b"1", b"2", b"3", b"4", b"new"]


async def test_what_a_new_leader_appends_is_dispatched_behind_what_it_found(tmp_path: Path) -> None:
    """The queue entries follow the log also when the older records must be read back, and the file ends in between."""
    clock = FakeClock(step_ms=1)
    leader, follower = await open_member(tmp_path / "a", clock), await open_member(tmp_path / "b", clock)
    await leader.lead()
    while leader.ledger.end_pos < 4096 - 200:
        leader.put(body=b"x" * 40)
    follower.copy_from(leader)
    await follower.lead()
    assert follower.put(body=b"y" * 100).physical_offset == 4096 + 48
    follower.commit_all()
    await follower.dispatch()
    assert follower.bodies()[-2:] == [b"x" * 40, b"y" * 100]
    assert follower.put(body=b"z").queue_offset == len(follower.bodies())


async def test_a_cut_takes_back_what_was_derived(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    for number in range(4):
        member.put(body=b"%d" % number, keys=f"k{number}")
    member.commit_all()
    member.leads = False
    member.store.quorum.follow("n1 leads the group")
    member.ledger.cut(1)
    member.store.quorum.shortened(member.ledger.end_of(1))
    assert member.bodies() == [b"0", b"1"]
    assert member.store.committed.value == member.ledger.end_pos
    await member.lead()
    assert member.put(body=b"new").queue_offset == 2
    member.commit_all()
    assert member.bodies() == [b"0", b"1", b"new"]


async def test_a_start_after_a_clean_stop_reads_nothing(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    for number in range(30):
        member.put(body=b"%d" % number)
    member.commit_all(until=27)
    member.save_committed()
    await member.store.close()
    again = await open_member(tmp_path)
    report = again.store.recovery_report
    assert report is not None and report.was_clean and report.records == 0
    assert again.bodies() == [b"%d" % number for number in range(28)]
    await again.lead()
    assert again.put().queue_offset == 30


async def test_a_start_after_a_kill_finds_what_was_committed_and_the_rest_when_it_is_again(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    for number in range(30):
        member.put(body=b"%d" % number, keys=f"k{number}")
    member.commit_all(until=9)
    member.ledger.save_checkpoint(9)
    member.commit_all(until=19)
    abandon(member.store)
    again = await open_member(tmp_path)
    assert again.bodies() == [b"%d" % number for number in range(10)], "the last note says that"
    again.commit_all()
    await again.dispatch()
    assert again.bodies() == [b"%d" % number for number in range(30)]
    assert again.store.reading.offsets_by_key("T", "k29", 10, 0, 1 << 62)
    await again.lead()
    assert again.put().queue_offset == 30


async def test_a_sync_counts_for_the_rules_and_a_cut_during_it_does_not(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    member.put(body=b"one")
    member.put(body=b"two")
    assert member.ledger.synced_index == -1
    target = member.log.begin_sync()
    member.ledger.cut(0)
    assert member.log.end_sync(target) == member.ledger.end_of(0)
    assert member.ledger.synced_index == 0
    member.put(body=b"three")
    await member.store.flushing.flush_log()
    assert member.ledger.synced_index == 1 and member.store.flushed.value == member.ledger.end_pos


async def test_retention_moves_the_beginning_of_the_ledger(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    for _ in range(100):
        member.put(body=b"x" * 60)
    member.commit_all()
    second = member.log.sequence.files[1].start
    file = member.log.detach_first()
    member.store.files.unlink(file.path)
    assert member.store.reading.min_physical_offset == second
    assert member.ledger.entry(member.ledger.begin_index).pos == second
    assert member.store.reading.earliest_log_time() > 0
    member.save_committed()
    await member.store.close()
    again = await open_member(tmp_path)
    assert again.ledger.begin_index == member.ledger.begin_index
    await again.lead()
    assert again.put().queue_offset == 100


async def test_an_entry_that_members_of_rocketmq_cannot_take_is_refused(tmp_path: Path) -> None:
    size = 8 << 20
    member = await open_member(tmp_path, mapped_file_size_commit_log_bytes=size, max_message_size_bytes=size)
    await member.lead()
    assert member.put(body=b"x" * 4_194_304).status is PutStatus.MESSAGE_ILLEGAL
    assert member.put(body=b"x" * 4_000_000).is_ok


async def test_tables_are_covered_when_a_quorum_has_what_they_speak_of(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    member.put()
    covered: list[bool] = []
    async with trio.open_nursery() as nursery:

        async def cover() -> None:
            covered.append(await member.store.cover())

        nursery.start_soon(cover)
        await trio.testing.wait_all_tasks_blocked()
        assert not covered
        member.commit_all()
    assert covered == [True]


async def test_the_checkpoint_has_the_time_of_the_newest_message_that_a_quorum_has(tmp_path: Path) -> None:
    member = await open_member(tmp_path)
    await member.lead()
    member.put()
    member.commit_all()
    newest = member.put()
    member.put()
    member.commit_all(until=1)
    await member.store.flushing.flush_thoroughly()
    assert member.store.contents.checkpoint.queues_ms == newest.store_timestamp
