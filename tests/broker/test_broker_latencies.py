"""Latencies: the lag of the loop and the syncs of the log, as a broker reports them."""

import json
from math import ceil
from pathlib import Path

from broker_whole import whole_broker
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.metrics.latencies import KEYS, LOG, Latencies, SyncTimes
from triomq.protocol.codes import RequestCode


def report(latencies: Latencies) -> tuple[str, ...]:
    values = latencies.values()
    assert tuple(values) == KEYS
    return tuple(values.values())


def test_a_broker_without_syncs_reports_zeros() -> None:
    assert report(Latencies()) == ("0.00", "0", "0.00", "0.00")


def test_the_worst_lag_is_seen_at_once_and_forgotten_after_a_full_minute() -> None:
    latencies = Latencies()
    for seconds in (0.002, 0.75, 0.001):
        latencies.woke_late(seconds)
    assert report(latencies)[0] == "750.00"
    latencies.turn_minute()
    latencies.woke_late(0.01)
    assert report(latencies)[0] == "750.00"
    latencies.turn_minute()
    assert report(latencies)[0] == "10.00"


def test_syncs_are_those_of_the_last_full_minute() -> None:
    latencies = Latencies()
    for milliseconds in range(1, 101):
        latencies.synced(LOG, milliseconds / 1000 - 0.00005, False)
    assert report(latencies)[1:] == ("100", "99.00", "99.95")
    latencies.turn_minute()
    latencies.synced(LOG, 5.0, False)
    assert report(latencies)[1:] == ("100", "99.00", "99.95"), "the current minute is not over"
    latencies.turn_minute()
    assert report(latencies)[1] == "1"
    latencies.turn_minute()
    assert report(latencies)[1:] == ("0", "0.00", "0.00"), "a quiet minute after a busy one"


def test_syncs_of_consume_queues_are_only_passed_on() -> None:
    latencies, heard = Latencies(), list[tuple[str, float, bool]]()
    latencies.observe_syncs(lambda *sync: heard.append(sync))
    latencies.synced("consumequeue", 3.0, False)
    latencies.synced(LOG, 0.00095, True)
    assert heard == [("consumequeue", 3.0, False), (LOG, 0.00095, True)]
    assert report(latencies)[1:] == ("1", "1.00", "0.95")


@given(st.lists(st.floats(0, 20), min_size=1, max_size=300), st.integers(1, 100))
def test_a_percentile_is_a_tenth_of_a_millisecond_above_at_most(seconds: list[float], percent: int) -> None:
    times = SyncTimes()
    for each in seconds:
        times.add(each)
    exact_ms = sorted(seconds)[ceil(len(seconds) * percent / 100) - 1] * 1000
    found = times.percentile_ms(percent)
    assert min(exact_ms, 10_000) - 0.001 <= found <= min(exact_ms + 0.1, 10_000) + 0.001


async def test_a_broker_reports_its_syncs_and_the_lag_of_its_loop(tmp_path: Path) -> None:
    async with whole_broker(tmp_path, flushDiskType="SYNC_FLUSH") as broker:
        await broker.create_topic("T")
        assert (await broker.send("T")).code == 0
        table = json.loads((await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert table["eventLoopLagMax"] != "", "the schedule has woken"
        assert int(table["syncTimes"]) >= 1
        assert 0 < float(table["syncLatency99"]) <= float(table["syncLatencyMax"]) + 0.11
        serving = broker.controller.serving
        assert serving is not None
        serving.tables.latencies.woke_late(3600.0)
        table = json.loads((await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)["table"]
        assert table["eventLoopLagMax"] == "3600000.00"
