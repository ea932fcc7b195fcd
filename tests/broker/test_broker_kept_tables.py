"""Topics, groups and offsets: the tables that are persisted in files."""

import json
from typing import Any

import pytest
import trio
from broker_fakes import MemoryFile
from fake_clock import FakeClock
from golden_data import golden_expectation, golden_store
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.errors import TableFull, TableTooLarge
from triomq.broker.tables.built_in_topics import built_in_topics
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicEvents, TopicTable
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig, SubscriptionGroupWrapper
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from triomq.protocol.errors import RequestRefused
from triomq.protocol.system_topics import GroupTooLong, TopicTooLong

NOW = 1_700_000_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


def topic_table(clock: FakeClock, file: MemoryFile | None = None, **more: Any) -> TopicTable:
    built_in = built_in_topics(cluster="C", broker_name="b-a", default_queue_count=8)
    return TopicTable(file, now_ms=clock, built_in=built_in, **more)


# -- topics ----------------------------------------------------------------------------------------------------------


def test_built_in_topics() -> None:
    topics = {
        topic.topic_name: (topic.read_queue_nums, topic.perm)
        for topic in built_in_topics(
            cluster="C", broker_name="b-a", default_queue_count=8, broker_topic_enable=False, trace_topic="TRACE"
        )
    }
    assert topics == {
        "SELF_TEST_TOPIC": (1, 6),
        "TBW102": (8, 7),
        "BenchmarkTest": (1024, 6),
        "C": (16, 7),
        "b-a": (1, 1),
        "OFFSET_MOVED_EVENT": (1, 6),
        "SCHEDULE_TOPIC_XXXX": (18, 6),
        "TRACE": (1, 6),
        "C_REPLY_TOPIC": (1, 6),
    }


def test_topic_created_on_send_takes_the_smaller_queue_count_and_is_announced(clock: FakeClock) -> None:
    file = MemoryFile()
    announced: list[int] = []
    table = topic_table(clock, file)
    table.tell(TopicEvents(made_by_use=lambda: announced.append(table.data_version.counter)))
    topic = table.create_on_send("T", "TBW102", "1.2.3.4:5", 4, 0)
    assert topic == TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4, perm=6)
    assert table.create_on_send("U", "TBW102", "1.2.3.4:5", 400, 1) == TopicConfig(
        topic_name="U", read_queue_nums=8, write_queue_nums=8, perm=6, topic_sys_flag=1
    )
    assert table.create_on_send("T", "TBW102", "1.2.3.4:5", 9, 0) is topic
    assert announced == [1, 2]
    assert '"U":{' in file.text


def test_topic_is_not_created_without_a_template_to_inherit_from(clock: FakeClock) -> None:
    table = topic_table(clock)
    assert table.create_on_send("T", "nosuch", "1.2.3.4:5", 4, 0) is None
    assert table.create_on_send("T", "BenchmarkTest", "1.2.3.4:5", 4, 0) is None
    assert table.get("T") is None
    retry = table.create_on_send("%RETRY%G", "BenchmarkTest", "1.2.3.4:5", 4, 0)
    assert retry is not None
    assert (retry.write_queue_nums, retry.perm) == (1, 6)


def test_template_of_an_old_file_is_closed_when_creation_is_off(clock: FakeClock) -> None:
    file = MemoryFile()
    topic_table(clock, file).update(TopicConfig(topic_name="any"))
    table = TopicTable(file, now_ms=clock, auto_create=lambda: False)
    table.load()
    assert table.create_on_send("T", "TBW102", "1.2.3.4:5", 4, 0) is None
    template = table.get("TBW102")
    assert template is not None
    assert template.perm == 6


def test_topics_are_kept_as_rocketmq_keeps_them(clock: FakeClock) -> None:
    file = MemoryFile()
    table = TopicTable(file, now_ms=clock)
    table.update(TopicConfig(topic_name="TopicTest", read_queue_nums=4, write_queue_nums=4))
    assert file.text == (
        '{\n\t"dataVersion":{\n\t\t"counter":1,\n\t\t"timestamp":1700000000000\n\t},\n\t"topicConfigTable":{\n'
        '\t\t"TopicTest":{\n\t\t\t"order":false,\n\t\t\t"perm":6,\n\t\t\t"readQueueNums":4,\n'
        '\t\t\t"topicFilterType":"SINGLE_TAG",\n\t\t\t"topicName":"TopicTest",\n\t\t\t"topicSysFlag":0,\n'
        '\t\t\t"writeQueueNums":4\n\t\t}\n\t}\n}'
    )
    again = TopicTable(file, now_ms=FakeClock(1))
    again.load()
    assert again.get("TopicTest") == table.get("TopicTest")
    assert again.data_version == DataVersion(counter=1, timestamp=NOW)


def test_torn_topic_file_falls_back_to_the_one_before(clock: FakeClock) -> None:
    file = MemoryFile()
    table = TopicTable(file, now_ms=clock)
    table.update(TopicConfig(topic_name="T"))
    file.save(file.text[:40])
    again = TopicTable(file, now_ms=clock)
    again.load()
    assert again.get("T") is not None


def test_order_topics(clock: FakeClock) -> None:
    table = topic_table(clock)
    table.update(TopicConfig(topic_name="T"))
    assert table.update_order_topics({"T", "elsewhere"})
    assert table.is_ordered("T")
    version = table.data_version
    assert not table.update_order_topics({"T"})
    assert table.data_version == version
    assert table.update_order_topics(set())
    assert not table.is_ordered("T")


def test_the_topic_table_never_outgrows_what_one_frame_carries(clock: FakeClock) -> None:
    table = topic_table(clock, max_table_bytes=lambda: 20_000)
    with pytest.raises(TableTooLarge, match="maxTopicTableBytes"):
        for number in range(100):
            # Control characters and quotes need the most space when encoded.
            name = f"%RETRY%{number}" + '\x01"\u4e2d' * 20
            table.create_on_send_back(name, 2**31 - 1, 2**31 - 1, 2**31 - 1)
    assert len(table.wrapper().encode()) == len(table.encode())
    assert len(table.encode()) <= table.sent_bytes + 200 <= 20_200
    first = "%RETRY%0" + '\x01"\u4e2d' * 20
    table.update(TopicConfig(topic_name=first, perm=4))
    assert table.half_topic().topic_name == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert table.check_max_time_topic()
    for name in list(table.names()):
        table.delete(name)
    assert table.sent_bytes == 0


def test_a_topic_file_above_the_limit_is_kept_and_takes_no_more(clock: FakeClock) -> None:
    file = MemoryFile()
    before = TopicTable(file, now_ms=clock)
    for number in range(10):
        before.update(TopicConfig(topic_name=f"T{number}"))
    table = TopicTable(file, now_ms=clock, max_table_bytes=lambda: 1000)
    table.load()
    assert table.get("T9") is not None
    with pytest.raises(TableTooLarge):
        table.update(TopicConfig(topic_name="T10"))


@pytest.mark.parametrize("name", ["t" * 128, "%RETRY%" + "g" * 256, "%DLQ%" + "g" * 256])
def test_a_topic_name_has_its_longest(clock: FakeClock, name: str) -> None:
    table = topic_table(clock)
    with pytest.raises(TopicTooLong):
        table.create_on_send_back(name, 1, 6, 0)
    assert table.create_on_send_back(name[:-1], 1, 6, 0).topic_name == name[:-1]


def test_the_table_of_groups_never_outgrows_what_one_frame_carries(clock: FakeClock) -> None:
    table = GroupTable(now_ms=clock, max_table_bytes=lambda: 20_000)
    with pytest.raises(TableTooLarge, match="maxGroupTableBytes"):
        for number in range(100):
            wide = -(2**31) + number
            name = f"{number}" + '\x01"\u4e2d' * 20
            table.update(SubscriptionGroupConfig(group_name=name, retry_max_times=wide, retry_queue_nums=wide))
    assert len(table.encode()) <= table.sent_bytes + 200 <= 20_200
    with pytest.raises(GroupTooLong):
        table.find("g" * 256)
    for name in list(table.names()):
        table.delete(name)
    assert table.sent_bytes == 0


def test_topic_delete_limit_and_replacement(clock: FakeClock) -> None:
    table = TopicTable(now_ms=clock, max_topics=1)
    table.update(TopicConfig(topic_name="T"))
    with pytest.raises(TableFull, match="topics is full"):
        table.update(TopicConfig(topic_name="U"))
    table.update(TopicConfig(topic_name="T", perm=4))
    assert table.delete("T")
    assert not table.delete("T")
    master = TopicConfigSerializeWrapper(
        data_version=DataVersion(counter=9, timestamp=5), topic_config_table={"M": TopicConfig(topic_name="M")}
    )
    assert table.replace_all(master)
    assert not table.replace_all(master)
    assert list(table.names()) == ["M"]


@pytest.mark.parametrize("group", ["../../evil", "a/b", "nul\0"])
def test_names_that_are_no_directory_are_refused(clock: FakeClock, group: str) -> None:
    table = topic_table(clock)
    with pytest.raises(RequestRefused, match="cannot be stored"):
        table.create_on_send_back(f"%RETRY%{group}", 1, 6, 0)
    assert table.get(f"%RETRY%{group}") is None
    assert table.create_on_send_back("%RETRY%a.b", 1, 6, 0) is not None, "odd, but harmless"


def test_topics_made_for_transactions(clock: FakeClock) -> None:
    table = topic_table(clock)
    assert table.half_topic().topic_name == "RMQ_SYS_TRANS_HALF_TOPIC"
    assert table.check_max_time_topic().write_queue_nums == 1
    assert table.create_on_send_back("%DLQ%G", 1, 6, 0).perm == 6


# -- groups ----------------------------------------------------------------------------------------------------------


def test_groups_come_into_being_by_use(clock: FakeClock) -> None:
    file = MemoryFile()
    table = GroupTable(file, now_ms=clock)
    assert "TOOLS_CONSUMER" in table.names()
    assert table.get("G") is None
    assert table.find("G") == SubscriptionGroupConfig(group_name="G")
    assert table.data_version.counter == 1
    assert '"G":{' in file.text
    again = GroupTable(file, now_ms=clock)
    again.load()
    assert again.get("G") == table.get("G")


def test_without_auto_creation_only_system_groups_are_made(clock: FakeClock) -> None:
    table = GroupTable(now_ms=clock, auto_create=lambda: False)
    assert table.find("G") is None
    assert table.find("CID_RMQ_SYS_X") is not None


def test_group_changes(clock: FakeClock) -> None:
    table = GroupTable(now_ms=clock, max_groups=8)
    table.update(SubscriptionGroupConfig(group_name="G", retry_max_times=3))
    with pytest.raises(TableFull, match="subscription groups is full"):
        table.find("H")
    assert table.disable_consuming("G")
    assert not table.disable_consuming("G")
    config = table.get("G")
    assert config is not None
    assert not config.consume_enable
    assert config.retry_max_times == 3
    assert table.delete("G")
    assert not table.delete("G")
    mine = SubscriptionGroupConfig(group_name="M", retry_max_times=5)
    wrapper = SubscriptionGroupWrapper(subscription_group_table={"M": mine}, data_version=DataVersion(counter=49))
    assert table.replace_all(wrapper)
    assert (list(table.names()), table.get("M")) == (["M"], mine)
    assert table.replace_all(SubscriptionGroupWrapper(data_version=DataVersion(counter=50)))
    assert list(table.names()) == []


# -- offsets ---------------------------------------------------------------------------------------------------------


def test_offsets_are_stored_as_they_come() -> None:
    table = OffsetTable()
    assert table.query("G", "T", 0) == -1
    table.commit("G", "T", 0, 5)
    table.commit("G", "T", 1, 7)
    table.commit("G", "T", 0, 3)
    table.commit("G", "%RETRY%G", 0, 1)
    table.commit("H", "T", 0, 9)
    assert table.query("G", "T", 0) == 3
    assert table.queues("G", "T") == {0: 3, 1: 7}
    assert sorted(table.topics_of_group("G")) == ["%RETRY%G", "T"]
    assert sorted(table.groups_of_topic("T")) == ["G", "H"]
    assert table.smallest_of_all_groups("T", without=["H"]) == {0: [3], 1: [7]}


async def test_offsets_are_kept_with_bare_numeric_keys_and_only_written_when_changed() -> None:
    file = MemoryFile()
    table = OffsetTable(file)
    assert not await table.persist()
    table.commit("G", "%RETRY%G", 0, 1)
    table.commit("G", "T", 0, 5)
    table.commit("G", "T", 1, 7)
    assert await table.persist()
    assert not await table.persist()
    assert file.text == '{\n\t"offsetTable":{\n\t\t"%RETRY%G@G":{0:1\n\t\t},\n\t\t"T@G":{0:5,1:7\n\t\t}\n\t}\n}'
    again = OffsetTable(file)
    again.load()
    assert again.queues("G", "T") == {0: 5, 1: 7}
    assert not await again.persist()


def test_quoted_keys_are_read_as_well_and_torn_files_are_not() -> None:
    table = OffsetTable(MemoryFile('{"offsetTable":{"T@G":{"0":5}}}', '{"offsetTable":{"T@G":{0:'))
    table.load()
    assert table.query("G", "T", 0) == 5


async def test_offsets_of_light_queues_are_kept_apart() -> None:
    file = MemoryFile()
    table = OffsetTable(file, enable_lmq=True)
    table.commit("%LMQ%g", "%LMQ%q", 7, 3)
    table.commit("G", "T", 0, 5)
    assert table.query("%LMQ%g", "%LMQ%q", 0) == 3
    assert table.queues("%LMQ%g", "%LMQ%q") == {0: 3}
    await table.persist()
    assert file.text == (
        '{\n\t"lmqOffsetTable":{\n\t\t"%LMQ%q@%LMQ%g":3\n\t},\n\t"offsetTable":{\n\t\t"T@G":{0:5\n\t\t}\n\t}\n}'
    )
    again = OffsetTable(file, enable_lmq=True)
    again.load()
    assert again.query("%LMQ%g", "%LMQ%q", 0) == 3
    assert again.encode() == again.wrapper().encode()
    again.remove("%LMQ%g")
    assert again.query("%LMQ%g", "%LMQ%q", 0) == -1


def test_clone_remove_and_merge_offsets() -> None:
    table = OffsetTable()
    table.commit("G", "T", 0, 5)
    table.commit("H", "T", 3, 1)
    table.clone("G", "H", "T")
    assert table.queues("H", "T") == {0: 5}
    table.clone("nobody", "H", "T")
    assert table.queues("H", "T") == {0: 5}, "cloning nothing takes nothing away"
    table.remove("G")
    assert table.is_empty() is False
    assert table.queues("G", "T") == {}
    table.merge({"T@H": {1: 1}})
    assert table.queues("H", "T") == {1: 1}


async def test_names_that_look_like_entries_are_names() -> None:
    file = MemoryFile()
    table = OffsetTable(file)
    groups = ["G{1:2", "G,3:", 'G"{4:5', "G\\", 'G\\"{6:', "{7:8}", " 9:"]
    for number, group in enumerate(groups):
        table.commit(group, "T", number, number)
        table.commit(group, "T", 77, -1)
    await table.persist()
    again = OffsetTable(file)
    again.load()
    assert again.wrapper() == table.wrapper()


@pytest.mark.parametrize("spaced", ["{ 0 : 5 , 1 : 7 }", "{0:5,\n\t1:7}", '{"0":5,1:7}', "{-1:5,0:5,1:7}"])
def test_any_spelling_of_number_keys_is_read(spaced: str) -> None:
    table = OffsetTable(MemoryFile('{"offsetTable": {"T@G": ' + spaced + ', "U@G": {}}}'))
    table.load()
    assert (table.query("G", "T", 0), table.query("G", "T", 1), table.query("G", "U", 0)) == (5, 7, -1)


def test_offset_indexes_follow_every_change() -> None:
    table = OffsetTable(MemoryFile('{"offsetTable":{"T@G":{0:5},"U@G":{0:5},"T@H":{0:1}}}'))
    table.load()
    assert table.topics_of_group("G") == ["T", "U"]
    assert table.groups_of_topic("T") == ["G", "H"]
    table.remove("G", "T")
    assert table.topics_of_group("G") == ["U"]
    assert table.groups_of_topic("T") == ["H"]
    table.merge({"V@H": {0: 1}})
    assert table.groups_of_topic("V") == ["H"]
    table.remove("H")
    table.remove("G")
    assert table.groups_of_topic("T") == table.groups_of_topic("V") == table.topics_of_group("G") == []
    assert table.is_empty()


def test_offset_limits() -> None:
    table = OffsetTable(max_entries=1, max_queues_per_entry=1)
    table.commit("G", "T", 0, 5)
    with pytest.raises(TableFull, match="consumer offsets is full"):
        table.commit("H", "T", 0, 5)
    with pytest.raises(TableFull, match="offsets of T@G is full"):
        table.commit("G", "T", 1, 5)


def test_the_table_of_offsets_never_outgrows_its_bytes() -> None:
    table = OffsetTable(max_table_bytes=lambda: 10_000)
    with pytest.raises(TableTooLarge, match="maxOffsetTableBytes"):
        for number in range(1000):
            table.commit(f'G{number}\x01"\u4e2d', "T", 2**31 - 1, -(2**63))
    with pytest.raises(TableTooLarge):
        for queue_id in range(1000):
            table.commit('G0\x01"\u4e2d', "T", queue_id, 2**62)
    assert len(table.encode()) <= table.sent_bytes + 100 <= 10_100
    table.commit('G0\x01"\u4e2d', "T", 2**31 - 1, 7)
    for group in table.groups_of_topic("T"):
        table.remove(group)
    assert table.sent_bytes == 0


def test_offsets_of_a_master_count_once() -> None:
    table = OffsetTable(max_table_bytes=lambda: 100)
    for _ in range(3):
        table.merge({"T@G": {0: 1, 1: 2}})
    size = table.sent_bytes
    table.remove("G")
    assert (size > 0, table.sent_bytes) == (True, 0)


async def test_an_offset_file_above_the_limit_is_kept_and_takes_no_more() -> None:
    file = MemoryFile()
    before = OffsetTable(file)
    for number in range(10):
        before.commit(f"G{number}", "T", 0, 5)
    await before.persist()
    table = OffsetTable(file, max_table_bytes=lambda: 100)
    table.load()
    assert table.sent_bytes == before.sent_bytes
    table.commit("G9", "T", 0, 6)
    assert table.query("G9", "T", 0) == 6
    with pytest.raises(TableTooLarge):
        table.commit("G10", "T", 0, 5)


@pytest.mark.parametrize(("group", "topic"), [("g" * 256, "T"), ("G", "t" * 128)])
def test_offsets_of_names_that_are_too_long_are_refused(group: str, topic: str) -> None:
    table = OffsetTable()
    with pytest.raises((GroupTooLong, TopicTooLong)):
        table.commit(group, topic, 0, 5)
    assert table.is_empty()
    table.commit("g" * 255, "%RETRY%" + "g" * 255, 0, 5)


# -- writing in the background ---------------------------------------------------------------------------------------


class SlowFile(MemoryFile):
    """A disk that can be full and that counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.is_full = False

    def save(self, text: str) -> None:
        if self.is_full:
            raise OSError("no space left on device")
        super().save(text)


async def inline(function: Any, *args: Any) -> Any:
    await trio.sleep(0.01)
    return function(*args)


async def test_many_changes_are_written_in_one_go(clock: FakeClock, autojump_clock: object) -> None:
    file = SlowFile()
    table = topic_table(clock, file)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run, inline)
        await trio.sleep(1)
        assert file.texts == []
        for number in range(50):
            table.create_on_send(f"T{number}", "TBW102", "1.2.3.4:5", 4, 0)
        assert file.texts == [], "nobody waits for the disk"
        await table.wait_saved()
        assert len(file.texts) == 1
        table.delete("T0")
        table.delete("T1")
        nursery.cancel_scope.cancel()
    assert len(file.texts) == 2, "what is left is written at the end"
    again = TopicTable(file, now_ms=clock)
    again.load()
    assert again.wrapper() == table.wrapper()


async def test_a_disk_that_was_slow_once_holds_nobody_up(clock: FakeClock, autojump_clock: object) -> None:
    file = SlowFile()
    table = topic_table(clock, file)

    async def slowly(function: Any, *args: Any) -> Any:
        await trio.sleep(3 if not file.texts else 0.01)
        return function(*args)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run, slowly)
        for topic in ("T0", "T1"):
            table.create_on_send(topic, "TBW102", "1.2.3.4:5", 4, 0)
            began = trio.current_time()
            await table.wait_saved()
        assert trio.current_time() - began < 1.1
        nursery.cancel_scope.cancel()


async def test_full_disk_is_told_to_who_waits_and_tried_again(clock: FakeClock, autojump_clock: object) -> None:
    file = SlowFile()
    file.is_full = True
    table = GroupTable(file, now_ms=clock)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.run, inline)
        await trio.sleep(1)
        table.find("G")
        with pytest.raises(OSError, match="no space"):
            await table.wait_saved()
        file.is_full = False
        await table.wait_saved()
        assert '"G":{' in file.text
        nursery.cancel_scope.cancel()


async def test_offsets_are_written_in_a_thread(autojump_clock: object) -> None:
    file = SlowFile()
    table = OffsetTable(file, offload=inline)
    assert not await table.persist()
    table.commit("G", "T", 0, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.persist)
        await trio.sleep(0.005)
        table.commit("G", "T", 0, 6)
    assert "{0:5" in file.text
    assert await table.persist(), "what came during the write is still to be written"
    assert "{0:6" in file.text
    assert table.encode() == table.wrapper().encode()


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["update", "delete"]),
            st.text(alphabet='aé"\\\n', min_size=1, max_size=3),
            st.integers(0, 7),
        ),
        max_size=30,
    )
)
def test_text_made_of_pieces_is_the_text_of_the_whole(changes: list[tuple[str, str, int]]) -> None:
    file = MemoryFile()
    table = TopicTable(file, now_ms=FakeClock(NOW))
    for action, name, perm in changes:
        if action == "delete":
            table.delete(name)
        else:
            table.update(TopicConfig(topic_name=name, perm=perm))
    if file.texts:
        again = TopicTable(file, now_ms=FakeClock(NOW))
        again.load()
        assert again.wrapper() == table.wrapper()
        assert table.encode() == table.wrapper().encode()
        own = ('\t"deletedTopics":', '\t"topicsMadeAgain":')
        lines = [line for line in file.text.splitlines() if not line.startswith(own)]
        assert sorted(lines) == sorted(table.wrapper().encode_pretty().decode().splitlines())
        assert again.deleted() == table.deleted()


# -- files of the real broker ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("store", ["1a_clean", "1b_killed", "1d_sql92_ext", "1e_retention"])
def test_config_files_of_the_real_broker(clock: FakeClock, store: str) -> None:
    expected = golden_expectation(store)["config"]

    def text(name: str) -> MemoryFile:
        return MemoryFile((golden_store(store) / "config" / f"{name}.json").read_text("utf-8"))

    topics = TopicTable(text("topics"), now_ms=clock)
    groups = GroupTable(text("subscriptionGroup"), now_ms=clock)
    offsets = OffsetTable(text("consumerOffset"))
    for table in (topics, groups, offsets):
        table.load()
    assert {topic.topic_name: json.loads(topic.encode()) for topic in topics.configs()} == expected["topics"]
    assert {name: json.loads(groups.get(name).encode()) for name in groups.names()} == expected["subscriptionGroups"]  # type: ignore[union-attr]
    kept = {key: {str(queue): offset for queue, offset in queues.items()} for key, queues in offsets._entries.items()}
    assert kept == expected["consumerOffsets"]


class WatchedFile(MemoryFile):
    """Takes its time in a thread (see `offload`), and detects two simultaneous writes."""

    def __init__(self) -> None:
        super().__init__()
        self.writers = 0
        self.most_writers = 0

    def save(self, text: str) -> None:
        self.most_writers = max(self.most_writers, self.writers + 1)
        super().save(text)

    async def offload(self, save: Any, text: str) -> None:
        self.writers += 1
        await trio.sleep(1)
        self.writers -= 1
        save(text)


async def test_a_file_that_a_thread_writes_is_not_written_by_anybody_else(autojump_clock: object) -> None:
    """Two writers of one temporary file would produce a mixture of both."""
    file = WatchedFile()
    table = OffsetTable(file, offload=file.offload)
    table.commit("G", "T", 0, 1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(table.persist)
        await trio.sleep(0.5)
        table.commit("G", "T", 0, 2)
        assert not await table.persist(), "what a slave does when it took over its master's offsets"
        assert not await table.persist()
    assert file.most_writers == 1
    assert '"T@G":{0:1' in file.text.replace("\n", "").replace("\t", "")
    assert await table.persist(), "the change that came meanwhile is still to be written"
    assert '"T@G":{0:2' in file.text.replace("\n", "").replace("\t", "")
