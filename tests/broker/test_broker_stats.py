import json
import random

import pytest
import structlog
from fake_clock import FakeClock
from golden_data import golden_frames

from triomq.broker.metrics.sampling import DAY, HOUR, MINUTE, Flow, timelines
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.stats_log import StatsLog
from triomq.broker.metrics.stats_names import NEVER_COUNTED, STATS_NAMES
from triomq.broker.metrics.store_metrics import StoreMetrics


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def stats(clock: FakeClock) -> BrokerStats:
    return BrokerStats("C", now_ms=clock)


def minute_of(stats: BrokerStats, name: str, key: str) -> tuple[int, float, float]:
    data = stats.snapshot(name, key)
    assert data is not None, f"{name} {key} was never counted"
    return data.stats_minute.sum, data.stats_minute.tps, data.stats_minute.avgpt


def test_a_window_is_the_difference_between_its_oldest_and_newest_sample(stats: BrokerStats, clock: FakeClock) -> None:
    stats.sample_minute()
    for _ in range(7):
        stats.topic_put("T", 0, 5, 500)
        clock.advance(10_000)
        stats.sample_minute()
    assert minute_of(stats, "TOPIC_PUT_NUMS", "T") == (30, 0.5, 5.0), "six intervals of 10 s"
    assert minute_of(stats, "TOPIC_PUT_SIZE", "T") == (3000, 50.0, 500.0)
    assert minute_of(stats, "BROKER_PUT_NUMS", "C") == (30, 0.5, 0.0), "RocketMQ does not count the times here"


def test_what_is_new_is_measured_since_it_began(stats: BrokerStats, clock: FakeClock) -> None:
    stats.topic_put("T", 0, 20, 1)
    stats.sample_minute()
    assert minute_of(stats, "TOPIC_PUT_NUMS", "T") == (20, 2.0, 20.0), "the first sample stands for 10 s"
    for _ in range(20):
        clock.advance(10_000)
        stats.sample_minute()
    stats.topic_put("New", 0, 20, 1)
    assert minute_of(stats, "TOPIC_PUT_NUMS", "New") == (0, 0.0, 0.0), "counted, but not sampled yet"
    clock.advance(10_000)
    stats.sample_minute()
    assert minute_of(stats, "TOPIC_PUT_NUMS", "New") == (20, 2.0, 20.0)


def test_each_span_has_samples_of_its_own(stats: BrokerStats, clock: FakeClock) -> None:
    stats.sample_hour()
    stats.sample_day()
    for hour in range(30):
        if hour < 26:
            stats.topic_put("T", 0, 60, 1)
        clock.advance(3_600_000)
        stats.sample_day()
    data = stats.snapshot("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_day.sum == 20 * 60, "of the last 24 hours the first 20 had messages"
    assert data.stats_day.tps == pytest.approx(20 * 60 / 86_400)
    assert (data.stats_hour.sum, data.stats_minute.sum) == (0, 0)
    clock.advance(600_000)
    stats.sample_hour()
    stats.topic_put("T", 0, 6, 600)
    clock.advance(600_000)
    stats.sample_hour()
    data = stats.snapshot("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_hour.sum == 26 * 60 + 6, "two samples since the start"
    for _ in range(6):
        clock.advance(600_000)
        stats.sample_hour()
    data = stats.snapshot("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_hour.sum == 0


def test_every_name_finds_what_was_counted_for_it_under_rocketmqs_key(stats: BrokerStats) -> None:
    stats.topic_put("T", 3, 2, 200)
    stats.topic_put("T", 4, 1, 100)
    stats.group_get("G", "T", 3, 4, 400, 0)
    stats.get_latency("G", "T", 3, 7)
    stats.send_back("G", "T")
    stats.commercial("COMMERCIAL_SEND_TIMES", "owner", "T", "P", "SEND_SUCCESS", 1)
    keys = ("T", "C", "T@G", "T@3", "T@4", "T@3@G", "3@T@G", "owner@T@P@SEND_SUCCESS", "X", "X@3", "T@x", "", "@@")
    found = {
        (name, key): stats.total(name, key)
        for name in STATS_NAMES
        for key in keys
        if stats.snapshot(name, key) is not None
    }
    assert found == {
        ("TOPIC_PUT_NUMS", "T"): 3,
        ("TOPIC_PUT_SIZE", "T"): 300,
        ("GROUP_GET_NUMS", "T@G"): 4,
        ("GROUP_GET_SIZE", "T@G"): 400,
        ("GROUP_GET_LATENCY", "3@T@G"): 7,
        ("SNDBCK_PUT_NUMS", "T@G"): 1,
        ("BROKER_PUT_NUMS", "C"): 3,
        ("BROKER_GET_NUMS", "C"): 4,
        ("QUEUE_PUT_NUMS", "T@3"): 2,
        ("QUEUE_PUT_SIZE", "T@3"): 200,
        ("QUEUE_PUT_NUMS", "T@4"): 1,
        ("QUEUE_PUT_SIZE", "T@4"): 100,
        ("QUEUE_GET_NUMS", "T@3@G"): 4,
        ("QUEUE_GET_SIZE", "T@3@G"): 400,
        ("COMMERCIAL_SEND_TIMES", "owner@T@P@SEND_SUCCESS"): 1,
    }
    assert not {name for name, _ in found} & set(NEVER_COUNTED)


def test_the_name_list_is_rocketmqs() -> None:
    assert len(set(STATS_NAMES)) == len(STATS_NAMES) == 23


def test_without_detail_queues_are_not_counted_apart(clock: FakeClock) -> None:
    stats = BrokerStats("C", now_ms=clock, detail=False)
    for queue_id in range(4):
        stats.topic_put("T", queue_id, 1, 10)
        stats.group_get("G", "T", queue_id, 2, 20, 0)
    stats.get_latency("G", "T", 1, 5)
    stats.sample_minute()
    assert stats.snapshot("QUEUE_PUT_NUMS", "T@0") is None
    assert stats.snapshot("GROUP_GET_LATENCY", "1@T@G") is None
    assert minute_of(stats, "TOPIC_PUT_NUMS", "T") == (4, 0.4, 1.0)
    assert minute_of(stats, "GROUP_GET_SIZE", "T@G") == (80, 8.0, 20.0)
    assert minute_of(stats, "GROUP_GET_LATENCY", "T@G") == (5, 0.5, 5.0)


def test_latency_of_pulls_that_nobody_timed_is_zero(stats: BrokerStats) -> None:
    assert stats.snapshot("GROUP_GET_LATENCY", "0@T@G") is None
    stats.group_get("G", "T", 0, 1, 1, 0)
    stats.sample_minute()
    assert minute_of(stats, "GROUP_GET_LATENCY", "0@T@G") == (0, 0.0, 0.0)


def test_rates_for_consume_stats(stats: BrokerStats, clock: FakeClock) -> None:
    stats.group_get("G", "T", 0, 50, 1, 0)
    stats.sample_minute()
    assert stats.per_second("GROUP_GET_NUMS", "T@G") == 5.0
    assert stats.per_second("GROUP_GET_NUMS", "T@Nobody") == 0.0


def test_midnight_shifts_the_totals(stats: BrokerStats) -> None:
    stats.stored(5, 1)
    stats.group_get("G", "T", 0, 3, 1, 0)
    stats.record()
    stats.stored(2, 1)
    assert (stats.put_total_yesterday_morning, stats.put_total_today_morning, stats.stored_total) == (0, 5, 7)
    stats.record()
    assert (stats.put_total_yesterday_morning, stats.put_total_today_morning) == (5, 7)
    assert (stats.get_total_yesterday_morning, stats.get_total_today_morning, stats.get_total) == (3, 3, 3)


def test_deleted_topics_and_groups_are_forgotten(stats: BrokerStats) -> None:
    for topic in ("T", "U"):
        for group in ("G", "H"):
            stats.topic_put(topic, 0, 1, 1)
            stats.group_get(group, topic, 0, 1, 1, 0)
            stats.get_latency(group, topic, 0, 1)
            stats.send_back(group, topic)
            stats.backlogs.note((group, topic, 0), 1)
            stats.commercial("COMMERCIAL_RCV_TIMES", "o", topic, group, "X", 1)
    stats.forget_topic("T")
    keys = {key for _, key, _, _ in stats.named()} | {key for _, key, _ in stats.backlogs.moments()}
    assert keys == {"C", "U", "U@0", "U@G", "U@H", "U@0@G", "U@0@H", "0@U@G", "0@U@H", "o@U@G@X", "o@U@H@X"}
    stats.forget_group("G")
    keys = {key for _, key, _, _ in stats.named()} | {key for _, key, _ in stats.backlogs.moments()}
    assert keys == {"C", "U", "U@0", "U@H", "U@0@H", "0@U@H", "o@U@H@X"}
    stats.topic_put("T", 0, 1, 1)
    assert stats.total("TOPIC_PUT_NUMS", "T") == 1, "a topic of the same name begins anew"
    assert stats.put_total == 5, "what the broker did stays done"


def test_the_number_of_flows_is_bounded(clock: FakeClock) -> None:
    stats = BrokerStats("C", now_ms=clock, max_flows=10)
    for number in range(100):
        stats.topic_put(f"T{number}", 0, 1, 1)
        stats.group_get(f"G{number}", "T", 0, 1, 1, 0)
        stats.send_back(f"G{number}", "T")
        stats.get_latency(f"G{number}", "T", 0, 1)
        stats.backlogs.note((f"G{number}", "T", 0), 1)
    assert len({id(flow) for _, _, flow, _ in stats.named()}) <= 12, "and the two of the broker"
    assert len(stats.backlogs.moments()) == 2 * 10
    assert stats.put_total == stats.get_total == 100, "the broker's own totals are always right"


def test_what_rests_for_a_day_makes_room(clock: FakeClock) -> None:
    stats = BrokerStats("C", now_ms=clock, max_flows=4)
    stats.topic_put("Old", 0, 1, 1)
    stats.topic_put("Busy", 0, 1, 1)
    for _ in range(26):
        stats.topic_put("Busy", 0, 1, 1)
        clock.advance(3_600_000)
        stats.sample_minute()
        stats.sample_day()
    stats.topic_put("New", 0, 1, 1)
    assert stats.snapshot("TOPIC_PUT_NUMS", "Old") is None
    assert stats.total("TOPIC_PUT_NUMS", "New") == 1
    assert stats.total("TOPIC_PUT_NUMS", "Busy") == 27


def test_a_flow_that_rested_is_measured_over_the_whole_window(stats: BrokerStats, clock: FakeClock) -> None:
    stats.topic_put("T", 0, 100, 1)
    for _ in range(30):
        clock.advance(3_600_000)
        stats.sample_minute()
        stats.sample_day()
    flow = next(flow for name, key, flow, _ in stats.named() if (name, key) == ("QUEUE_PUT_NUMS", "T@0"))
    assert flow.is_at_rest
    for _ in range(6):
        clock.advance(10_000)
        stats.sample_minute()
    stats.topic_put("T", 0, 6, 1)
    clock.advance(10_000)
    stats.sample_minute()
    assert minute_of(stats, "TOPIC_PUT_NUMS", "T") == (6, 0.1, 6.0), "a minute's worth, not the hundred of long ago"
    stats.sample_day()
    data = stats.snapshot("TOPIC_PUT_NUMS", "T")
    assert data is not None
    assert data.stats_day.sum == 6


@pytest.mark.parametrize("seed", range(20))
def test_windows_agree_with_a_plain_list_of_samples(seed: int) -> None:
    """The reference keeps every sample; a flow keeps rings, and nothing while it is idle."""
    dice = random.Random(seed)
    spans = timelines()
    flow, now_ms = Flow(spans), 1_000_000_000
    samples: dict[int, list[tuple[int, int, int]]] = {MINUTE: [], HOUR: [], DAY: []}
    for _ in range(400):
        if dice.random() < 0.2:
            count = dice.randrange(1, 10)
            flow.messages += count
            flow.times += 1
        kind = dice.choice((MINUTE, HOUR, DAY, DAY))
        span = spans[kind]
        if not samples[kind]:
            samples[kind].append((now_ms - span.period_ms, 0, 0))
        span.take(now_ms)
        flow.sample(kind, span)
        samples[kind].append((now_ms, flow.messages, flow.times))
        now_ms += dice.randrange(1, 5000)
        first, last = samples[kind][-span.capacity :][0], samples[kind][-1]
        item = flow.window(kind, span, 0)
        assert item.sum == last[1] - first[1]
        if item.sum:
            assert item.tps == item.sum * 1000 / (last[0] - first[0])
            assert item.avgpt == item.sum / (last[2] - first[2])


def test_groups_far_behind(stats: BrokerStats) -> None:
    stats.backlogs.note(("G", "T", 0), 500, 7)
    stats.backlogs.note(("G", "T", 1), 900)
    stats.backlogs.note(("H", "T", 0), 100)
    assert stats.backlogs.groups_behind(400) == {"G": 900}
    stats.backlogs.note(("G", "T", 1), 0)
    assert stats.backlogs.groups_behind(499) == {"G": 500}
    assert ("GROUP_GET_FALL_TIME", "0@T@G", 7) in stats.backlogs.moments()


async def test_lines_of_the_statistics_log(stats: BrokerStats) -> None:
    stats.topic_put("T", 0, 2, 2000)
    stats.topic_put("Quiet", 0, 0, 0)
    stats.backlogs.note(("G", "T", 0), 500)
    stats.sample_minute()
    with structlog.testing.capture_logs() as captured:
        await StatsLog(stats).print_minute()
        await StatsLog(stats).print_moments()
    lines = [entry["event"] for entry in captured]
    assert lines[0] == "[BROKER_PUT_NUMS] [C] Stats In One Minute, SUM: 2 TPS: 0.20 AVGPT: 0.00"
    assert "[TOPIC_PUT_SIZE] [T] Stats In One Minute, SUM: 2000 TPS: 200.00 AVGPT: 2000.00" in lines
    assert "[GROUP_GET_FALL_SIZE] [0@T@G] Stats Every 5 Minutes, Value: 500" in lines
    assert not [line for line in lines if "Quiet" in line]


# -- the rates of the store ------------------------------------------------------------------------------------------


def test_rates_come_from_samples_of_each_second(stats: BrokerStats, clock: FakeClock) -> None:
    pace = StoreMetrics(stats, now_ms=clock)
    assert pace.values()["putTps"] == "  ", "three numbers, none yet"
    pace.sample()
    for second in range(60):
        stats.stored(3 if second < 50 else 1, 100)
        stats.group_get("G", "T", 0, 4, 100, 0)
        stats.get_missed("G", "T", 0, 0)
        clock.advance(1000)
        pace.sample()
        if second == 9:
            assert pace.values()["putTps"] == "3.0  "
    values = pace.values()
    assert values["putTps"] == f"1.0 {160 / 60000 * 1000} "
    assert values["getFoundTps"] == "1.0 1.0 "
    assert values["getMissTps"] == "1.0 1.0 "
    assert values["getTotalTps"] == "2.0 2.0 0.0"
    assert values["getTransferedTps"] == "4.0 4.0 "


def test_put_times_are_those_of_commits(stats: BrokerStats, clock: FakeClock) -> None:
    pace = StoreMetrics(stats, now_ms=clock)
    pace.commit_took(80.0)
    stats.stored(9, 900)
    pace.commit_took(0.4)
    stats.stored(1, 1269)
    pace.commit_took(30.2)
    values = pace.values()
    assert values["putMessageDistributeTime"].startswith("[<=0ms]:9 [0~10ms]:0 [10~50ms]:1 [50~100ms]:0 ")
    assert values["putMessageEntireTimeMax"] == "30", "a commit without messages took no put's time"
    assert (values["putLatency99"], values["putLatency999"]) == ("30.00", "30.00")
    assert values["putMessageTimesTotal"] == "10"
    assert values["putMessageAverageSize"] == "216.9"
    pace.turn_minute()
    stats.stored(5, 1)
    pace.commit_took(0)
    assert pace.values()["putMessageDistributeTime"].startswith("[<=0ms]:9 "), "that of the last full minute"


@pytest.mark.parametrize("edge_ms", [0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000])
def test_a_put_that_takes_as_long_as_the_end_of_a_bucket_is_in_it_and_a_longer_one_in_the_next(
    stats: BrokerStats, clock: FakeClock, edge_ms: int
) -> None:
    pace = StoreMetrics(stats, now_ms=clock)
    for took_ms, count in ((edge_ms, 1), (edge_ms + 1, 2)):
        stats.stored(count, count)
        pace.commit_took(float(took_ms))
    ends = [0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000]
    at = ends.index(edge_ms)
    counts = [int(part.rpartition(":")[2]) for part in pace.values()["putMessageDistributeTime"].split()]
    assert counts == [*[0] * at, 1, 2, *[0] * (len(ends) - at - 1)]


def test_all_values_are_like_the_real_brokers(stats: BrokerStats, clock: FakeClock) -> None:
    frame = golden_frames("admin_json", scenario="admin:clusterList_m", answers="GET_BROKER_RUNTIME_INFO")[0]
    real = json.loads(frame["body"])["table"]
    pace = StoreMetrics(stats, now_ms=clock)
    clock.advance(61_000)
    values = pace.values()
    assert set(values) <= set(real)
    assert values["runtime"] == real["runtime"] == "[ 0 days, 0 hours, 1 minutes, 1 seconds ]"
    buckets = [part.partition(":")[0] for part in real["putMessageDistributeTime"].split(" ")]
    assert [part.partition(":")[0] for part in values["putMessageDistributeTime"].split(" ")] == buckets
