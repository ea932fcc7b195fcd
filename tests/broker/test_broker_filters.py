import json

import pytest
import structlog
from broker_fakes import MemoryFile
from fake_clock import FakeClock
from golden_data import golden_expectation, golden_store

from triomq.broker.errors import TableFull
from triomq.broker.filters.bloom import BloomFilter, has_bits, murmur3_64, set_bits
from triomq.broker.pulls.message_filter import MAX_SORTED_CODES, RetrySqlFilter, TagFilter, message_filter
from triomq.broker.tables.filters import ConsumerFilter, FilterTable
from triomq.protocol import stored_properties
from triomq.protocol.java import string_hash
from triomq.protocol.message import MessageExt
from triomq.protocol.outage import MAX_KEYS, Outages
from triomq.protocol.record import encode_record
from triomq.protocol.subscription import SubscriptionData, build_subscription
from triomq.store.results import ExtUnit

NOW = 1_700_000_000_000


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def bloom() -> BloomFilter:
    return BloomFilter(20, 32)


def sql(expression: str, topic: str = "T", version: int = 1) -> SubscriptionData:
    return build_subscription(topic, expression, "SQL92", sub_version=version)


def record(properties: dict[str, str], topic: str = "T") -> bytes:
    return encode_record(MessageExt(topic, b"x", properties=properties))


# -- bloom filter ----------------------------------------------------------------------------------------------------


def test_bloom_layout_and_positions_are_those_of_rocketmq(bloom: BloomFilter) -> None:
    assert (bloom.bits_per_group, bloom.bit_count) == (3, 112)
    assert BloomFilter(20, 64).bit_count == 216
    assert bloom.positions("G", "T").bit_pos == [24, 26, 83]
    assert bloom.positions("GID_a", "TopicTest").bit_pos == [46, 22, 110]
    assert bloom.fits(bloom.positions("G", "T"))
    assert not bloom.fits(BloomFilter(20, 64).positions("G", "T"))


@pytest.mark.parametrize(("text", "hashed"), [(b"", 0), (b"hello", 0xCBD8A7B341BD9B02)])
def test_hashes_are_murmur3(text: bytes, hashed: int) -> None:
    assert murmur3_64(text) == hashed


def test_bits_that_were_set_are_found(bloom: BloomFilter) -> None:
    bit_map = bytearray(bloom.size_bytes)
    data = bloom.positions("G", "T")
    assert not has_bits(bit_map, data)
    set_bits(bit_map, data)
    assert bit_map[24 // 8] == 1 << 0 | 1 << 2
    assert has_bits(bit_map, data)


def test_bloom_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match=r"1\.\.99 % errors, not 32 and 0$"):
        BloomFilter(0, 32)


# -- the table -------------------------------------------------------------------------------------------------------


def test_filters_live_and_die_with_their_group(clock: FakeClock, bloom: BloomFilter) -> None:
    table = FilterTable(bloom, now_ms=clock)
    table.register("G", [sql("a > 5"), build_subscription("U", "*")])
    entry = table.get("T", "G")
    assert entry is not None
    assert not entry.is_dead
    assert entry.matches({"a": "6"})
    assert not entry.matches({"a": "x"})
    clock.advance(10)
    table.group_gone("G")
    assert entry.is_dead
    table.register("G", [sql("a > 5")])
    assert table.get("T", "G") is entry
    assert not entry.is_dead
    table.register("G", [])
    assert entry.is_dead


def test_only_newer_filters_replace_older_ones(clock: FakeClock, bloom: BloomFilter) -> None:
    table = FilterTable(bloom, now_ms=clock)
    table.register("G", [sql("a > 5", version=5)])
    table.register("G", [sql("a > 6", version=5)])
    table.register("G", [sql("a > 7", version=4)])
    entry = table.get("T", "G")
    assert entry is not None
    assert entry.expression == "a > 5"
    clock.advance(1000)
    table.register("G", [sql("a > 5", version=6)])
    assert table.get("T", "G") is entry
    assert (entry.client_version, entry.born_time) == (6, NOW)
    table.register("G", [sql("a > 8", version=7)])
    replaced = table.get("T", "G")
    assert replaced is not None
    assert (replaced.expression, replaced.born_time) == ("a > 8", NOW + 1000)
    table.register("G", [sql("a >", version=8)])
    assert table.get("T", "G") is None, "what does not compile takes the old one away"


def test_a_filter_that_does_not_compile_is_logged_at_once_and_then_once_a_minute(
    clock: FakeClock, bloom: BloomFilter
) -> None:
    table = FilterTable(bloom, now_ms=clock)
    with structlog.testing.capture_logs() as captured:
        for version in range(1300):  # 130 seconds
            table.register("G", [sql("a >", version=version)])
            table.register("H", [sql("b >", version=version)])
            clock.advance(100)
    assert [(entry["event"], entry["group"]) for entry in captured] == [("filter not compiled", "G"), (
        "filter not compiled", "H",
    )] * 3  # fmt: skip


def test_outages_forget_the_oldest_key_at_their_bound() -> None:
    outages = Outages()
    assert all(outages.failed(str(number), 0) for number in range(MAX_KEYS + 5))
    assert len(outages) == MAX_KEYS
    assert outages.failed("0", 1)
    assert not outages.failed(str(MAX_KEYS), 1)


def test_dead_filters_are_dropped_after_a_day(clock: FakeClock, bloom: BloomFilter) -> None:
    file = MemoryFile()
    table = FilterTable(bloom, file, now_ms=clock)
    assert not table.persist()
    table.register("G", [sql("a > 5")])
    assert table.persist()
    assert not table.persist()
    clock.advance(10)
    table.group_gone("G")
    assert table.persist()
    clock.advance(86_399_999)
    assert not table.persist()
    clock.advance(1)
    assert table.persist()
    assert table.get("T", "G") is None


def test_kept_filters_are_dead_until_their_group_returns(clock: FakeClock, bloom: BloomFilter) -> None:
    file = MemoryFile()
    table = FilterTable(bloom, file, now_ms=clock)
    table.register("G", [sql("a > 5", version=NOW)])
    table.persist()
    assert json.loads(file.text)["filterDataByTopic"]["T"] == {
        "groupFilterData": {
            "G": {
                "bloomFilterData": {"bitNum": 112, "bitPos": [24, 26, 83]},
                "bornTime": NOW,
                "clientVersion": NOW,
                "consumerGroup": "G",
                "dead": False,
                "deadTime": 0,
                "expression": "a > 5",
                "expressionType": "SQL92",
                "topic": "T",
            }
        },
        "topic": "T",
    }
    clock.advance(100_000)
    again = FilterTable(bloom, file, now_ms=clock)
    again.load()
    entry = again.get("T", "G")
    assert entry is not None
    assert (entry.is_dead, entry.dead_time) == (True, NOW + 70_000)
    again.register("G", [sql("a > 5", version=NOW)])
    assert not entry.is_dead
    other = FilterTable(BloomFilter(20, 64), file, now_ms=clock)
    other.load()
    assert other.get("T", "G") is None, "made for another bloom filter"


def test_bit_map_of_a_message(clock: FakeClock, bloom: BloomFilter) -> None:
    table = FilterTable(bloom, now_ms=clock)
    assert table.bit_map("T", {"a": "6"}) is None
    table.register("G", [sql("a > 5")])
    table.register("H", [sql("a > 50")])
    bit_map = table.bit_map("T", {"a": "6"})
    assert bit_map is not None
    assert has_bits(bit_map, bloom.positions("G", "T"))
    assert not has_bits(bit_map, bloom.positions("H", "T"))
    assert table.bit_map("T", {"a": "x"}) == bytes(14)
    assert table.stored_bit_map("T", stored_properties.of({"a": "6", "b": "x"})) == bit_map
    assert table.stored_bit_map("U", stored_properties.of({"a": "6"})) is None


def test_filter_limit(clock: FakeClock, bloom: BloomFilter) -> None:
    table = FilterTable(bloom, now_ms=clock, max_filters=1)
    table.register("G", [sql("a > 5")])
    with pytest.raises(TableFull, match="SQL92 filters is full"):
        table.register("H", [sql("a > 5")])


def test_filters_of_the_real_broker(clock: FakeClock, bloom: BloomFilter) -> None:
    file = MemoryFile((golden_store("1d_sql92_ext") / "config" / "consumerFilter.json").read_text("utf-8"))
    table = FilterTable(bloom, file, now_ms=clock)
    table.load()
    expected = golden_expectation("1d_sql92_ext")["config"]["consumerFilters"]
    assert expected, "the store has filters"
    kept = json.loads(file.text)["filterDataByTopic"]
    for topic, by_group in kept.items():
        for group, data in by_group["groupFilterData"].items():
            entry = table.get(topic, group)
            assert entry is not None
            assert entry.expression == data["expression"]
            assert bloom.positions(group, topic).bit_pos == data["bloomFilterData"]["bitPos"]


# -- filters of pulls ------------------------------------------------------------------------------------------------


def test_tag_filter_compares_the_low_half_of_the_tags_code() -> None:
    tags = message_filter(build_subscription("T", "TagA || TagB"), None)
    assert isinstance(tags, TagFilter)
    assert tags.matches_entry(string_hash("TagA"), None)
    assert not tags.matches_entry(string_hash("TagC"), None)
    assert tags.matches_record(b"")
    negative = message_filter(build_subscription("T", "polygenelubricants!"), None)
    assert negative is not None
    assert string_hash("polygenelubricants!") < 0
    assert negative.matches_entry(string_hash("polygenelubricants!"), None)
    assert negative.matches_entry(string_hash("polygenelubricants!") & 0xFFFFFFFF, None)


def test_the_filter_for_some_tags_is_made_once() -> None:
    def of(count: int) -> object:
        return message_filter(build_subscription("T", " || ".join([f"t{number}" for number in range(count)])), None)

    assert of(2) is of(2)
    assert of(2) is not of(3)
    assert of(MAX_SORTED_CODES) is of(MAX_SORTED_CODES)
    assert of(MAX_SORTED_CODES + 1) is not of(MAX_SORTED_CODES + 1)


def test_everything_passes_without_a_filter() -> None:
    assert message_filter(build_subscription("T", "*"), None) is None
    assert message_filter(sql("a >"), None) is None
    assert message_filter(SubscriptionData(topic="T", class_filter_mode=True, sub_string="x"), None) is None


def test_sql_filter_reads_properties_and_bit_map(bloom: BloomFilter) -> None:
    data = bloom.positions("G", "T")
    entry = ConsumerFilter("T", "G", "a > 5", 1, NOW, data)
    wanted = message_filter(sql("a > 5"), entry)
    assert wanted is not None
    assert wanted.matches_record(record({"a": "6"}))
    assert not wanted.matches_record(record({"a": "4"}))
    empty, marked = bytearray(14), bytearray(14)
    set_bits(marked, data)
    assert wanted.matches_entry(0, None)
    assert not wanted.matches_entry(0, ExtUnit(0, NOW + 1, bytes(empty)))
    assert wanted.matches_entry(0, ExtUnit(0, NOW + 1, bytes(marked)))
    assert wanted.matches_entry(0, ExtUnit(0, NOW, bytes(empty))), "stored before the filter was known"
    assert wanted.matches_entry(0, ExtUnit(0, NOW + 1, bytes(27))), "a map of another layout says nothing"
    assert wanted.matches_entry(0, ExtUnit(0, NOW + 1, None))


def test_retry_topics_are_filtered_by_the_topic_a_message_comes_from(clock: FakeClock, bloom: BloomFilter) -> None:
    table = FilterTable(bloom, now_ms=clock)
    table.register("G", [sql("a > 5")])
    retried = build_subscription("%RETRY%G", "*")
    wanted = message_filter(retried, None, table, support_retry=True)
    assert isinstance(wanted, RetrySqlFilter)
    assert wanted.matches_entry(0, None)
    assert wanted.matches_record(record({"RETRY_TOPIC": "T", "a": "6"}))
    assert not wanted.matches_record(record({"RETRY_TOPIC": "T", "a": "4"}))
    assert wanted.matches_record(record({"RETRY_TOPIC": "elsewhere", "a": "4"}))
    assert message_filter(retried, None, table) is None


def test_bit_maps_are_those_the_real_broker_stored(clock: FakeClock, bloom: BloomFilter) -> None:
    expected = golden_expectation("1d_sql92_ext")
    text = (golden_store("1d_sql92_ext") / "config" / "consumerFilter.json").read_text("utf-8")
    table = FilterTable(bloom, MemoryFile(text), now_ms=clock)
    table.load()
    properties = {message["phys"]: message["properties"] for message in expected["messages"]}
    compared = 0
    for topic, queues in expected["queues"].items():
        for queue in queues.values():
            for entry, unit in zip(queue["entries"], queue.get("ext") or [], strict=False):
                if unit["bitmap"] is not None:
                    bit_map = table.bit_map(topic, properties[entry[1]])
                    assert bit_map is not None
                    assert bit_map.hex() == unit["bitmap"], properties[entry[1]]
                    compared += 1
    assert compared > 100
