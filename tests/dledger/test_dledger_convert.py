"""Converting a plain log to the ledger of a member, and back: what stays, what moves, and what a killed one leaves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from file_faults import FaultyFiles
from store_lab import MemberStore, open_member
from store_support import abandon, inline, message, small_settings

from triomq.broker.transactions.records import replacement_in
from triomq.dledger.convert.conversion import Report, to_ledger, to_plain
from triomq.dledger.convert.half_places import HalfPlaces
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.ledger_log import LedgerLog
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.wire import codes
from triomq.protocol import properties, sys_flag
from triomq.protocol.record import read_fields
from triomq.protocol.system_topics import TRANS_HALF_TOPIC
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.errors import StoreError, StoreLocked, StoreRefused
from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep.progress import Silence, State

FOREVER = 1 << 62


class Member:
    """The store of a member that leads its group alone."""

    def __init__(self, root: Path) -> None:
        self.ledger: Ledger

        def make_log(pool: OpenFiles, paths: Layout, file_size_bytes: int) -> LedgerLog:
            self.ledger = Ledger(pool.files, f"{root}/dledger-n0", file_size_bytes, pool=pool)
            made = LedgerLog(self.ledger)
            made.propose = self._propose
            return made

        self.store = DefaultMessageStore(
            small_settings(root), now_ms=FakeClock(step_ms=1), offload=inline, make_log=make_log
        )

    def _propose(self, ticket: object, write: Callable[[int], None]) -> int:
        write(2)
        return codes.SUCCESS

    async def lead(self) -> None:
        await self.store.load()
        await self.store.quorum.catch_up()
        self.store.quorum.lead()
        self.store.quorum.accept()

    def commit(self) -> None:
        self.store.commit()
        self.store.quorum.committed(self.ledger.end_of(self.ledger.end_index))

    async def close(self, committed: int | None = None) -> None:
        self.ledger.save_checkpoint(self.ledger.end_index if committed is None else committed)
        await self.store.close()


async def plain_store(root: Path, **changes: Any) -> DefaultMessageStore:
    store = DefaultMessageStore(small_settings(root, **changes), now_ms=FakeClock(step_ms=1), offload=inline)
    await store.load()
    return store


async def filled(root: Path) -> None:
    """Make a plain store of several files: two queues, keys, long and short messages, tables of its broker."""
    store = await plain_store(root)
    for number in range(120):
        body = b"%d" % number * (1 + number % 40)
        store.append(message(queue_id=number % 2, body=body, keys=f"k{number}", uniq_key=f"U{number}", tags="a"))
    store.commit()
    await store.close()
    (root / "config").mkdir()
    (root / "config" / "consumerOffset.json").write_text('{"offsetTable":{"T@G":{0:40,1:7}}}')
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"T":{}}}')
    (root / "config" / "copied.json").write_text("{}")


def messages(store: DefaultMessageStore, topic: str = "T", queue_id: int = 0) -> list[dict[str, Any]]:
    """Return everything of each message but where it lies."""
    found: list[dict[str, Any]] = []
    at = store.reading.min_offset(topic, queue_id)
    while records := store.reading.get_messages(topic, queue_id, at, 100).records:
        for data in records:
            fields = read_fields(data, 0, len(data))
            values = {name: getattr(fields, name) for name in fields.__slots__}
            del values["physical_offset"]
            found.append({**values, "body": data[fields.body_at : fields.body_at + fields.body_length]})
        at += len(records)
    return found


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


async def convert(make: Any, source: Path, target: Path, files: Files | None = None) -> Report:
    report = await make(small_settings(source), str(target), "n0", Silence(), files)
    assert isinstance(report, Report)
    return report


async def test_a_round_trip_keeps_messages_queue_offsets_keys_and_tables(tmp_path: Path) -> None:
    plain, ledger, back = tmp_path / "plain", tmp_path / "ledger", tmp_path / "back"
    await filled(plain)
    before = files_of(plain)
    report = await convert(to_ledger, plain, ledger)
    assert (report.records, report.queues, report.left_out) == (120, 2, [])
    assert files_of(plain) == before, "the source stays as it was"
    member = Member(ledger)
    await member.lead()
    converted = [messages(member.store, "T", queue_id) for queue_id in (0, 1)]
    assert all(len(found) == 60 for found in converted)
    assert [found["queue_offset"] for found in converted[0]] == list(range(60))
    assert member.store.reading.offsets_by_key("T", "k77", 10, 0, FOREVER)
    await member.close()
    await convert(to_plain, ledger, back)
    original, again = await plain_store(plain), await plain_store(back)
    for queue_id in (0, 1):
        assert messages(original, "T", queue_id) == messages(again, "T", queue_id) == converted[queue_id]
    for number in range(120):
        for key in (f"k{number}", f"U{number}"):
            found = again.reading.offsets_by_key("T", key, 10, 0, FOREVER)
            assert found == original.reading.offsets_by_key("T", key, 10, 0, FOREVER), "the same bytes, the same places"
            assert len(found) == 1
    assert again.append(message()).queue_offset == 60
    offsets = (plain / "config" / "consumerOffset.json").read_bytes()
    assert (back / "config" / "consumerOffset.json").read_bytes() == offsets
    assert not (ledger / "config" / "copied.json").exists(), "it speaks of physical offsets"


class Heard(Silence):
    """Remembers what a conversion shows of the log."""

    every_ms = 0

    def __init__(self) -> None:
        self.shown: list[tuple[int, int]] = []

    def tell(self, state: State) -> None:
        if state.what == "converting the log":
            self.shown.append((state.done_bytes, state.left_bytes))


async def test_only_tables_are_converted_and_what_is_not_the_stores_is_left_alone(tmp_path: Path) -> None:
    plain, ledger, back = tmp_path / "plain", tmp_path / "ledger", tmp_path / "back"
    await filled(plain)
    for name in ("config/topics.json~", "config/.topics.json.swp", "consumequeue/notes", "commitlog/x.bak"):
        (plain / name).write_text("not yours")
    for name in ("config/lost+found", "config/quotas.json", "consumequeue/lost+found", "commitlog/lost+found"):
        (plain / name).mkdir()
    before = files_of(plain)
    for target in (ledger, back):
        (target / "lost+found").mkdir(parents=True)
    report = await convert(to_ledger, plain, ledger)
    assert (report.records, report.queues, report.left_out) == (120, 2, [])
    (ledger / "dledger-n0/data/x.bak").write_text("not yours")
    report = await convert(to_plain, ledger, back)
    assert (report.records, report.queues, report.left_out) == (120, 2, [])
    assert sorted(path.name for path in (back / "config").iterdir()) == ["consumerOffset.json", "topics.json"]
    assert files_of(plain) == before


async def grown(root: Path, count: int) -> MemberStore:
    """Make the store of a member that was a plain broker before, still open: `filled`, and as a leader `count` messages
    more in its two queues."""
    await filled(root)
    member = await open_member(root)
    await member.lead()
    for number in range(count):
        body = b"%d" % number * (1 + number % 40)
        member.put(queue_id=number % 2, body=body, keys=f"new{number}", uniq_key=f"N{number}")
    member.commit_all()
    await member.dispatch()
    return member


async def close_member(member: MemberStore) -> None:
    member.save_committed()
    await member.store.close()


async def test_a_store_that_grew_from_a_plain_one_is_converted_with_both_logs(tmp_path: Path) -> None:
    member = await grown(tmp_path / "grown", 90)
    wanted = [messages(member.store, "T", queue_id) for queue_id in (0, 1)]
    assert [len(found) for found in wanted] == [105, 105]
    await close_member(member)
    before = files_of(tmp_path / "grown")
    report = await convert(to_plain, tmp_path / "grown", tmp_path / "plain")
    assert (report.records, report.queues, report.left_out) == (210, 2, [])
    assert files_of(tmp_path / "grown") == before, "the source stays as it was"
    store = await plain_store(tmp_path / "plain")
    assert [messages(store, "T", queue_id) for queue_id in (0, 1)] == wanted
    for key in ("k0", "U119", "new0", "N89"):
        assert len(store.reading.offsets_by_key("T", key, 10, 0, FOREVER)) == 1
    assert store.append(message()).queue_offset == 105
    offsets = (tmp_path / "grown" / "config" / "consumerOffset.json").read_bytes()
    assert (tmp_path / "plain" / "config" / "consumerOffset.json").read_bytes() == offsets


async def test_a_member_without_entries_is_converted_with_its_older_log(tmp_path: Path) -> None:
    await filled(tmp_path / "grown")
    await (await open_member(tmp_path / "grown")).store.close()
    report = await convert(to_plain, tmp_path / "grown", tmp_path / "plain")
    assert (report.records, report.left_out) == (120, [])


async def test_what_the_older_log_has_lost_is_left_out_and_what_follows_is_converted(tmp_path: Path) -> None:
    member = await grown(tmp_path / "grown", 90)
    await close_member(member)
    plain = tmp_path / "grown" / "commitlog"
    with (plain / f"{4096:020d}").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 20)
    (plain / f"{0:020d}").unlink()  # as retention does
    report = await convert(to_plain, tmp_path / "grown", tmp_path / "plain")
    assert 150 < report.records < 209 and "damaged from" in report.left_out[0]
    store = await plain_store(tmp_path / "plain")
    assert messages(store, "T", 1)[-1]["queue_offset"] == 104 and messages(store, "T", 1)[-1]["body"] == b"89" * 10
    assert store.reading.min_offset("T", 0) > 0


async def test_committed_messages_name_half_messages_of_the_older_log_where_they_are_now(tmp_path: Path) -> None:
    store = await plain_store(tmp_path / "grown")
    for number in range(3):
        store.append(message(body=b"x" * 60))
        first = store.append(half(f"U{number}"))
    store.commit()
    await store.close()
    member = await open_member(tmp_path / "grown")
    await member.lead()
    member.put(body=b"x" * 60)
    second = member.store.append(half("U9"))
    for each in (first, second):
        at = each.physical_offset
        member.put("Real", sys_flag=sys_flag.TRANSACTION_COMMIT, prepared_transaction_offset=at, uniq_key="U")
    member.commit_all()
    await member.dispatch()
    await close_member(member)
    await convert(to_plain, tmp_path / "grown", tmp_path / "plain")
    plain = await plain_store(tmp_path / "plain")

    def records(topic: str) -> list[bytes]:
        return [bytes(data) for data in plain.reading.get_messages(topic, 0, 0, 10).records]

    places = [read_fields(data, 0, len(data)).physical_offset for data in records(TRANS_HALF_TOPIC)]
    named = [read_fields(data, 0, len(data)).prepared_transaction_offset for data in records("Real")]
    assert named == places[2:] and len(named) == 2


async def test_the_progress_goes_from_the_older_log_to_the_end_of_the_ledger(tmp_path: Path) -> None:
    member = await grown(tmp_path / "grown", 2000)
    end = member.ledger.end_pos
    await close_member(member)
    heard = Heard()
    await to_plain(small_settings(tmp_path / "grown"), str(tmp_path / "plain"), "n0", heard)
    assert len(heard.shown) == 2, "one for each 1024 records"
    assert all(0 < done < end and end <= done + left <= end + 4096 for done, left in heard.shown)
    assert heard.shown[0][0] < heard.shown[1][0]


async def test_an_older_log_that_the_ledger_does_not_continue_is_refused(tmp_path: Path) -> None:
    member = await grown(tmp_path / "grown", 9)
    await close_member(member)
    max((tmp_path / "grown" / "commitlog").iterdir()).unlink()
    with pytest.raises(StoreRefused, match="not the one that this member began with"):
        await convert(to_plain, tmp_path / "grown", tmp_path / "plain")
    assert not (tmp_path / "plain").exists()


async def test_two_conversions_of_one_log_make_the_same_bytes(tmp_path: Path) -> None:
    await filled(tmp_path / "plain")
    for name in ("a", "b"):
        await convert(to_ledger, tmp_path / "plain", tmp_path / name)
    assert files_of(tmp_path / "a" / "dledger-n0") == files_of(tmp_path / "b" / "dledger-n0")


async def test_a_converted_member_gives_out_the_next_queue_offsets(tmp_path: Path) -> None:
    await filled(tmp_path / "plain")
    await convert(to_ledger, tmp_path / "plain", tmp_path / "ledger")
    member = Member(tmp_path / "ledger")
    await member.lead()
    result = member.store.append(message(body=b"new"))
    member.commit()
    assert result.queue_offset == 60
    assert messages(member.store)[-1]["body"] == b"new"


async def test_a_converted_member_knows_the_term_of_its_entries_so_that_the_first_leader_has_a_larger_one(
    tmp_path: Path,
) -> None:
    """Index and term name an entry: a leader of the same term would give out the names of converted ones again."""
    await filled(tmp_path / "plain")
    await convert(to_ledger, tmp_path / "plain", tmp_path / "ledger")
    member = Member(tmp_path / "ledger")
    await member.lead()
    term, vote = TermFiles(Files(), f"{tmp_path}/ledger/dledger-n0").load_term()
    assert member.ledger.end_term == term == 1
    assert vote is None
    await member.close()


async def test_log_files_keep_the_age_of_their_messages(tmp_path: Path) -> None:
    await filled(tmp_path / "plain")
    await convert(to_ledger, tmp_path / "plain", tmp_path / "ledger")
    first = sorted((tmp_path / "ledger" / "dledger-n0" / "data").iterdir())[0]
    assert abs(first.stat().st_mtime - 1_700_000_000) < 10, "retention goes by it"


async def test_queues_whose_messages_are_gone_keep_their_next_queue_offset(tmp_path: Path) -> None:
    store = await plain_store(tmp_path / "plain")
    for number in range(30):
        store.append(message("Old", body=b"x" * 100))
        if number < 3:
            store.append(message("Rare", body=b"x" * 100))
    while store.contents.log.next_offset < 3 * 4096:
        store.append(message("T", body=b"y" * 100))
    store.append(message("Rare", body=b"late"))
    store.commit()
    gone = 0
    while store.contents.log.min_offset < 8192:
        store.files.unlink(store.contents.log.detach_first().path)
        gone += 1
    await store.close()
    assert gone == 2
    await convert(to_ledger, tmp_path / "plain", tmp_path / "ledger")
    member = Member(tmp_path / "ledger")
    await member.lead()
    reading = member.store.reading
    assert reading.max_offset("Old", 0) == 30 and messages(member.store, "Old") == []
    assert [found["body"] for found in messages(member.store, "Rare")] == [b"late"]
    assert reading.max_offset("Rare", 0) == 4
    assert member.store.append(message("Old")).queue_offset == 30
    member.commit()
    abandon(member.store)
    again = Member(tmp_path / "ledger")
    again.ledger = member.ledger
    await again.lead()
    assert again.store.append(message("Old")).queue_offset == 31
    member.ledger.close()


async def test_only_what_the_member_knew_to_be_committed_is_converted(tmp_path: Path) -> None:
    member = Member(tmp_path / "ledger")
    await member.lead()
    for number in range(40):
        member.store.append(message(body=b"%d" % number))
    member.store.commit()
    member.store.quorum.committed(member.ledger.end_of(29))
    await member.close(committed=29)
    report = await convert(to_plain, tmp_path / "ledger", tmp_path / "plain")
    assert report.records == 30
    assert "10 entries behind index 29" in report.left_out[0]
    store = await plain_store(tmp_path / "plain")
    assert [found["body"] for found in messages(store)] == [b"%d" % number for number in range(30)]


async def test_the_record_that_opens_a_term_is_left_out(tmp_path: Path) -> None:
    member = Member(tmp_path / "ledger")
    await member.lead()
    member.store.append(message(body=b"one"))
    member.commit()
    member.ledger.append_opening(2, 1_700_000_000_000, b"\0" * 8)
    member.commit()
    await member.close()
    report = await convert(to_plain, tmp_path / "ledger", tmp_path / "plain")
    assert (report.records, report.left_out) == (1, [])


def half(uniq_key: str, replaces: int | None = None) -> Any:
    table = {"REAL_TOPIC": "T", "REAL_QID": "0", "UNIQ_KEY": uniq_key}
    if replaces is not None:
        table = {"TRAN_REPLACES_OFFSET": str(replaces), **table, "TRANSACTION_CHECK_TIMES": "1"}
    return message(TRANS_HALF_TOPIC, uniq_key=uniq_key, properties=properties.encode(table))


async def test_records_name_half_messages_where_they_are_now(tmp_path: Path) -> None:
    """A copy names the half message that it replaces, a committed message its own, also when the digits grow."""
    store = await plain_store(tmp_path / "plain")
    first = store.append(half("U1"))
    for _ in range(4):
        store.append(message(body=b"x" * 60))
    second = store.append(half("U2"))
    assert second.physical_offset < 1000
    copy = store.append(half("U2", replaces=second.physical_offset))
    commit = sys_flag.TRANSACTION_COMMIT
    for at in (first.physical_offset, copy.physical_offset, 77):
        store.append(message("Real", sys_flag=commit, prepared_transaction_offset=at, uniq_key="U1"))
    store.commit()
    await store.close()
    await convert(to_ledger, tmp_path / "plain", tmp_path / "ledger")
    member = Member(tmp_path / "ledger")
    await member.lead()
    reading = member.store.reading

    def records(topic: str) -> list[bytes]:
        return [bytes(data) for data in reading.get_messages(topic, 0, 0, 10).records]

    halves = records(TRANS_HALF_TOPIC)
    places = [read_fields(data, 0, len(data)).physical_offset for data in halves]
    assert places[1] >= 1000, "one digit more"
    replaced = replacement_in(halves[2])
    assert replaced is not None and replaced.physical_offset == places[1] and replaced.uniq_key == "U2"
    text = properties.parse_bytes(read_fields(halves[2], 0, len(halves[2])).properties)
    assert list(text) == ["TRAN_REPLACES_OFFSET", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY", "TRANSACTION_CHECK_TIMES"]
    named = [replacement_in(data) for data in records("Real")]
    assert [found.physical_offset for found in named if found] == [places[0], places[2], 0]
    await member.close()
    await convert(to_plain, tmp_path / "ledger", tmp_path / "back")
    original, back = await plain_store(tmp_path / "plain"), await plain_store(tmp_path / "back")
    for topic in ("T", TRANS_HALF_TOPIC):
        assert messages(original, topic) == messages(back, topic)


def test_places_of_half_messages_are_found_in_memory_and_in_the_file(tmp_path: Path) -> None:
    places = HalfPlaces(Files(), f"{tmp_path}/halves", in_memory=8)
    for number in range(100):
        places.add(number * 10, number * 11)
    assert [places.find(number * 10) for number in range(100)] == [number * 11 for number in range(100)]
    assert [places.find(at) for at in (5, 95, 791, 979, 991, 5000)] == [None] * 6
    places.close()
    assert list(tmp_path.iterdir()) == []


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize("make", [to_ledger, to_plain])
async def test_a_target_is_refused_until_its_log_and_tables_are_whole(tmp_path: Path, make: Any) -> None:
    await filled(tmp_path / "plain")
    await convert(to_ledger, tmp_path / "plain", tmp_path / "ledger")
    source = tmp_path / ("plain" if make is to_ledger else "ledger")
    refused = started = last = marked = 0
    is_done = False
    while not is_done:
        target = tmp_path / f"target-{last}"
        files = FaultyFiles()
        files.fail(Killed(), "pwrite", "create", "rename", "unlink", after=last)
        try:
            await convert(make, source, target, files)
            is_done = True
        except Killed:
            pass
        store = Member(target).store if make is to_ledger else None
        if target.exists() and any(target.iterdir()):
            try:
                if store is None:
                    store = await plain_store(target)
                else:
                    await store.load()
            except StoreRefused as error:
                assert "has not ended" in str(error)
                marked += (target / "unfinished").read_bytes() == b"a conversion into this directory has not ended\n"
                with pytest.raises(StoreRefused, match="not empty"):
                    await convert(make, source, target)
                refused += 1
            else:
                assert [len(messages(store, "T", queue_id)) for queue_id in (0, 1)] == [60, 60]
                started += 1
                abandon(store)
        last += 1 if last < 20 else 3
    assert refused > 10 and started > 5
    assert marked == refused - 1, "who finds the file can read what it says, once it is written"


async def test_what_cannot_be_a_source_or_a_target_is_refused(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    await filled(plain)
    used = tmp_path / "used"
    used.mkdir()
    (used / "something").touch()
    for make, source, target, reason in (
        (to_ledger, plain, used, "not empty"),
        (to_ledger, plain, plain / "inside", "in the source"),
        (to_ledger, used, tmp_path / "new", "does not exist"),
        (to_plain, plain, tmp_path / "new", "does not exist"),
        (to_plain, tmp_path / "nowhere", tmp_path / "new", "does not exist"),
    ):
        with pytest.raises(StoreRefused, match=reason):
            await convert(make, source, target)
        assert not (tmp_path / "new").exists()
    running = await plain_store(plain)
    with pytest.raises(StoreLocked):
        await convert(to_ledger, plain, tmp_path / "new")
    await running.close()


async def test_a_ledger_that_is_damaged_in_front_of_its_committed_end_is_named(tmp_path: Path) -> None:
    await filled(tmp_path / "plain")
    await convert(to_ledger, tmp_path / "plain", tmp_path / "ledger")
    with (tmp_path / "ledger" / "dledger-n0" / "data" / f"{0:020d}").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 200)
    with pytest.raises(StoreError, match="no entry 6 can be read"):
        await convert(to_plain, tmp_path / "ledger", tmp_path / "new")


async def test_a_damaged_record_of_a_plain_log_is_left_out_and_said(tmp_path: Path) -> None:
    await filled(tmp_path / "plain")
    with (tmp_path / "plain" / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(1000)
        file.write(b"\xff" * 20)
    report = await convert(to_ledger, tmp_path / "plain", tmp_path / "ledger")
    assert report.records == 119 and "damaged from" in report.left_out[0]


async def test_a_message_that_is_too_long_for_a_ledger_ends_the_conversion(tmp_path: Path) -> None:
    size = 8 << 20
    settings = small_settings(tmp_path / "plain", mapped_file_size_commit_log_bytes=size, max_message_size_bytes=size)
    store = DefaultMessageStore(settings, now_ms=FakeClock(step_ms=1), offload=inline)
    await store.load()
    store.append(message(body=b"x" * 4_300_000))
    store.commit()
    await store.close()
    with pytest.raises(StoreRefused, match="more than an entry"):
        await to_ledger(settings, str(tmp_path / "ledger"), "n0", Silence())
