"""What a broker shows on its metricsPort, against traffic that is counted here and against recorded scrapes of
rocketmq-exporter (beside RocketMQ 4.9.7) and of RocketMQ 5.3.3."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from broker_scrape import Scrape, fetch, traffic, watched
from broker_whole import whole_broker
from free_ports import free_port

from triomq.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from triomq.protocol.subscription import SubscriptionData

GOLDEN = Path(__file__).parents[1] / "golden" / "metrics"
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


async def test_a_scrape_tells_what_was_counted_here(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        assert (await it.broker.send("no topic")).code != 0
        scrape = await it.scrape()
        assert scrape.value("rocketmq_producer_offset", topic="T") == 7
        assert scrape.value("rocketmq_messages_in_total", topic="T", message_type="normal", is_system="false") == 7
        assert scrape.value("rocketmq_messages_out_total", topic="T", consumer_group="G") == 5
        assert scrape.value("rocketmq_consumer_offset", topic="T", group="G") == 3
        assert scrape.value("rocketmq_group_diff", topic="T", group="G", countOfOnlineConsumers="1", msgModel="1") == 4
        assert scrape.value("rocketmq_consumer_lag_messages", topic="T", consumer_group="G") == 4
        assert 0 < scrape.value("rocketmq_group_get_latency_by_storetime", topic="T", group="G") < 60_000
        assert scrape.value("rocketmq_group_count", group="G", localaddr="c1") == 1
        assert scrape.value("rocketmq_producer_count", group="P") == 1
        assert scrape.value("rocketmq_brokeruntime_msg_put_total_today_now") == 7
        assert scrape.value("triomq_messages_stored_total") == 7
        assert scrape.value("triomq_undeliverable_messages_total", source="delay") == 0
        assert scrape.value("triomq_undeliverable_messages_total", source="transaction") == 0
        assert scrape.value("triomq_commit_duration_seconds_count") == 7
        assert scrape.value("triomq_watermark_bytes", watermark="committed") == scrape.value(
            "triomq_stored_bytes_total"
        )
        assert scrape.value("triomq_store_bytes", part="consumequeue") == 7 * 20
        assert scrape.value("triomq_connections", port="main") == 1
        assert scrape.value("triomq_request_errors_total", request_code="send_message") == 1
        assert scrape.value("triomq_turn_requests_sum") == scrape.value("triomq_requests_total")


async def test_an_offset_beyond_the_end_of_a_queue_hides_no_backlog_and_is_counted(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)  # 2 of 5 and 2 of 2 messages wait
        assert ("triomq_consumer_offsets_beyond_end", ()) not in (await it.scrape()).samples
        for queue_id, offset in ((1, 5000), (2, 1), (3, 0)):  # beyond its end; without a message; at its end
            fields = {"consumerGroup": "G", "topic": "T", "queueId": queue_id, "commitOffset": offset}
            assert (await it.broker.ask(15, fields)).code == 0
        scrape = await it.scrape()
        assert scrape.value("rocketmq_consumer_lag_messages", topic="T", consumer_group="G") == 2
        assert scrape.value("rocketmq_group_diff", topic="T", group="G") == 2
        assert scrape.value("triomq_consumer_offsets_beyond_end", topic="T", group="G") == 2


async def test_what_has_not_been_counted_yet_is_0_from_the_start(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        scrape = await it.scrape()
        for code in ("send_message_v2", "pull_message"):
            labels = {"request_code": code, "response_code": "system_error"}
            assert scrape.value("triomq_request_errors_total", **labels) == 0
        for family in ("rocketmq_producer_offset", "rocketmq_group_diff", "rocketmq_messages_in_total"):
            assert scrape.value("triomq_series_dropped_total", family=family) == 0
        for reason in ("expired", "asked", "disk_full", "max_store_bytes"):
            assert scrape.value("triomq_store_deleted_files_total", reason=reason) == 0
        for where in ("recovery", "reading"):
            assert scrape.value("triomq_store_damaged_records_total", where=where) == 0
        assert 0 < scrape.value("triomq_scrape_duration_seconds") < 10


async def test_damaged_messages_and_deleted_files_of_the_store_are_counted(tmp_path: Path) -> None:
    sizes = {"mappedFileSizeCommitLog": "4096", "fileReservedTime": "0"}
    async with whole_broker(tmp_path, **sizes) as broker:
        await broker.create_topic("T", queues=1)
        for _ in range(20):
            assert (await broker.send("T", queueId=0, body=bytes(300))).code == 0
    path = tmp_path / "store" / "commitlog" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:200] + bytes([data[200] ^ 1]) + data[201:])  # in the body of the first message
    async with watched(tmp_path, **sizes) as it:
        assert (await it.broker.pull("T")).code == 0
        assert (await it.scrape()).value("triomq_store_damaged_records_total", where="reading") == 1
        files = (await it.scrape()).value("triomq_store_files", part="commitlog")
        assert files > 1
        assert (await it.broker.ask(329, {})).code == 0
        with trio.fail_after(30):
            while (await it.scrape()).value("triomq_store_deleted_files_total", reason="asked") != files - 1:
                pass  # all but the last


async def test_both_formats_are_strictly_right_and_say_the_same(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        plain, openmetrics = await it.scrape(), await it.scrape(OPENMETRICS)
        assert plain.samples.keys() == openmetrics.samples.keys()
        assert openmetrics.text.endswith("# EOF\n")
        heads = re.findall(r"(?m)^# (HELP|TYPE) (\S+)", plain.text)
        assert len(heads) == len(set(heads)), "HELP and TYPE stand once for each family"
        for family in plain.families:
            assert family.documentation.endswith((".", "1.", "none.")), family.name
            assert family.type in ("counter", "gauge", "histogram"), family.name
        ours = [name for name in plain.types if name.startswith("triomq_")]
        assert not [name for name in ours if re.search(r"_(ms|milliseconds|minutes|kib|mib|percent)(_|$)", name)]


async def test_counters_never_go_back(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        before = await it.scrape(OPENMETRICS)
        for _ in range(3):
            await it.broker.send("T")
            await it.broker.pull("T", queueOffset=5)
            after = await it.scrape(OPENMETRICS)
            for (name, labels), value in before.samples.items():
                if name.endswith(("_total", "_bucket", "_count", "_sum")) and before.types.get(
                    re.sub("_(total|bucket|count|sum)$", "", name)
                ) in ("counter", "histogram"):
                    assert after.samples[name, labels] >= value, name
            before = after


def recorded(name: str) -> Scrape:
    lines = (GOLDEN / name).read_text().splitlines()
    samples = [line.replace(",}", "}") for line in lines if line and not line.startswith("#")]
    return Scrape("".join(f"{re.sub(r' [0-9]{13}$', '', line)}\n" for line in samples))


async def test_the_names_and_labels_are_those_of_the_exporter(tmp_path: Path) -> None:
    exporter = recorded("exporter-on-4.9.7.txt")
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        beat = HeartbeatData(
            client_id="c2",
            consumer_data_set=[
                ConsumerData(
                    group_name="G2", subscription_data_set=[SubscriptionData(topic="%RETRY%G2", sub_string="*")]
                )
            ],
        )
        for topic in ("%RETRY%G2", "%DLQ%G2"):
            await it.broker.create_topic(topic)
        assert (await it.broker.ask(34, {}, beat.encode())).code == 0
        it.broker.controller.serving.tables.stats.send_back("G", "T")
        ours = await it.scrape()
    # The clients of this test do not respond to the question that these come from: see the test of that.
    asked = {name for name in exporter.labels if name.startswith("rocketmq_client_")}
    assert len(exporter.labels) > 75
    for name in exporter.labels.keys() - asked:
        assert ours.labels[name] == exporter.labels[name], name
        assert ours.types[name] == "gauge", name


async def test_the_names_and_labels_are_those_of_rocketmq_5(tmp_path: Path) -> None:
    rocketmq5 = recorded("rocketmq-5.3.3.txt")
    without = {  # why: docs/monitoring.md
        "rocketmq_half_messages",
        "rocketmq_topic_create_execution_time_milliseconds",
        "rocketmq_delay_message_latency",
        "rocketmq_consumer_group_create_execution_time_milliseconds",
        "rocketmq_finish_message_latency_milliseconds",
    }
    async with watched(tmp_path) as it:
        await traffic(it.broker)
        ours = await it.scrape()
    common = 0
    for name, labels in rocketmq5.labels.items():
        family = re.sub("_(bucket|sum|count)$", "", name)
        if not name.startswith("rocketmq_") or family in without or name.startswith(("rocketmq_tim", "rocketmq_pop")):
            continue
        common += 1
        assert ours.labels[name] == {of_sample - {"otel_scope_name"} for of_sample in labels}, name
    assert common == 23


async def test_series_beyond_the_limit_are_left_out_and_counted(tmp_path: Path) -> None:
    async with watched(tmp_path, metricsMaxSeries="10") as it:
        for index in range(20):
            await it.broker.create_topic(f"T{index}", queues=1)
        topics = len(it.broker.controller.serving.tables.metadata.topics.names())
        scrape = await it.scrape()
        assert len([key for key in scrape.samples if key[0] == "rocketmq_producer_offset"]) <= 10
        assert scrape.value("triomq_series_dropped_total", family="rocketmq_producer_offset") == topics - 10


async def test_a_topic_that_is_deleted_during_a_scrape_costs_it_nothing(tmp_path: Path) -> None:
    from triomq.broker.figures.snapshot import Snapshot

    async with watched(tmp_path) as it:
        for index in range(5):
            await it.broker.create_topic(f"T{index}", queues=1)
        tables = it.broker.controller.serving.tables
        source = tables.metadata, tables.store.reading, tables.stats.next_offset, lambda *of: None
        snapshot = Snapshot(*source, now_ms=tables.now_ms, limit=100, ages={})
        steps = snapshot.steps()
        next(steps)
        assert (await it.broker.ask(215, {"topic": "T3"})).code == 0
        assert set(steps) == {0}
        assert {topic.name for topic in snapshot.topics} >= {"T0", "T4"}


async def test_the_age_of_what_a_group_lacks_is_read_once_while_it_stands(tmp_path: Path) -> None:
    from triomq.broker.figures.snapshot import Ages, Snapshot

    async with watched(tmp_path) as it:
        await traffic(it.broker)
        tables = it.broker.controller.serving.tables
        ages: Ages = {("G", "T", 0, 3): 1000, ("G", "T", 1, 99): 1000}
        source = tables.metadata, tables.store.reading, lambda *of: -1, lambda *of: None
        snapshot = Snapshot(*source, now_ms=lambda: 5000, limit=100, ages=ages)
        list(snapshot.steps())
        [pair] = [pair for pair in snapshot.pairs if pair.topic == "T"]
        assert pair.age_ms == 4000  # the known time counts for the offset that it was read for
        assert snapshot.ages["G", "T", 0, 3] == 1000
        assert snapshot.ages.keys() == {("G", "T", 0, 3), ("G", "T", 1, 0)}


async def test_a_broker_is_ready_when_every_check_passes(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        status, checks = await it.ready()
        assert (status, {name for name, (is_ok, _) in checks.items() if not is_ok}) == (200, set())
        assert set(checks) == {"state", "event loop", "store", "disk", "registration", "replication", "sends", "ports"}
        assert (await trio.to_thread.run_sync(fetch, it.port, "/health/live"))[0] == 200


@pytest.mark.parametrize(
    ("check", "settings", "reason"),
    [
        ("replication", {"brokerRole": "SYNC_MASTER"}, "no slave within"),
        ("sends", {"startAcceptSendRequestTimeStamp": str(2**62)}, "accepted from"),
        ("registration", {"namesrvAddr": "127.0.0.1:1", "registerBrokerTimeoutMills": "200"}, "not registered within"),
        ("disk", {"diskSpaceWarningLevelRatio": "0.01"}, "full"),
    ],
)
async def test_a_broker_that_is_not_ready_says_why(
    tmp_path: Path, check: str, settings: dict[str, str], reason: str
) -> None:
    async with watched(tmp_path, **settings) as it:
        it.broker.controller.serving.store.retention.check_disk()
        status, checks = await it.ready()
        assert status == 503
        assert {name for name, (is_ok, _) in checks.items() if not is_ok} == {check}
        assert reason in checks[check][1]
        assert (await it.scrape()).value("triomq_ready", check=check) == 0


async def test_a_taken_port_for_metrics_does_not_keep_a_broker_down(tmp_path: Path) -> None:
    async with watched(tmp_path / "a") as it, whole_broker(tmp_path / "b", metricsPort=str(it.port)) as second:
        await second.create_topic("T")
        assert (await second.send("T")).code == 0


PROGRAM = """
import sys, tempfile, trio
from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.daemon.clock import system_now_ms

async def main():
    values = {"listenPort": "0", "brokerIP1": "127.0.0.1", "storePathRootDir": tempfile.mkdtemp()}
    if len(sys.argv) == 4:
        values[sys.argv[2]] = sys.argv[3]
    controller = BrokerController(Configuration.from_values(values), now_ms=system_now_ms)
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.serve)
        nursery.cancel_scope.cancel()

trio.run(main)
wrong = [name for name in sys.modules if name.startswith(tuple(sys.argv[1].split()))]
assert not wrong, wrong
"""


GROUP_MODULES = "triomq.dledger triomq.broker.group"
LATER_MODULES = (
    "triomq.broker.filters.sql92 triomq.broker.filters.expression triomq.broker.filters.conditions "
    "triomq.broker.replication.slave_link"
)


@pytest.mark.parametrize(
    ("key", "others"),
    [
        ("", f"{GROUP_MODULES} {LATER_MODULES} triomq.monitoring triomq.broker.figures h11"),
        ("metricsPort", GROUP_MODULES),
        ("dashboardPort", f"{GROUP_MODULES} triomq.monitoring.http_server triomq.dashboard.site h11"),
    ],
)
def test_a_broker_imports_nothing_of_a_port_or_a_group_that_it_does_not_have(
    tmp_path: Path, key: str, others: str
) -> None:
    command = [sys.executable, "-c", PROGRAM, others, *([key, str(free_port())] if key else [])]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path, capture_output=True)


async def test_what_consumers_say_about_themselves_is_asked_for_and_shown(tmp_path: Path) -> None:
    from triomq.broker.figures.clients import ClientFigures
    from triomq.protocol.bodies.running_info import ConsumerRunningInfo, ConsumeStatus
    from triomq.protocol.command import RemotingCommand, new_response
    from triomq.remoting.connection import Connection

    status = ConsumeStatus(consume_failed_msgs=3, consume_ok_tps=2.5, pull_rt=7.0)
    bodies = [ConsumerRunningInfo(status_table={"T": status}).encode(), b"x" * 300_000, b"{"]

    def answer(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return new_response(request, body=bodies[0])

    async with watched(tmp_path, metricsAskClients="false") as it:
        await traffic(it.broker)
        it.broker.client.register(307, answer)
        consumers = it.broker.controller.serving.tables.metadata.consumers
        figures = ClientFigures(consumers, is_on=True)
        for shown in (1, 0, 0):  # a response that is too long or not readable is left out
            await figures.ask()
            [failures, *_, pulls] = list(figures.families(limit=10))
            *samples, left_out = failures.samples
            assert (len(samples), left_out) == (shown, 0)
            if shown:
                [(text, value)] = samples
                assert (failures.name, value) == ("rocketmq_client_consume_fail_msg_count", 3)
                assert re.fullmatch(r'clientAddr="127.0.0.1:\d+",clientId="c1",group="G",topic="T"', text)
                assert pulls.name == "rocketmq_client_consumer_pull_tps"
            del bodies[0]
