"""Configuration at run time, runtime info, queries for statistics."""

import json
from pathlib import Path

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection, FakeStore, request
from fake_clock import FakeClock
from golden_data import golden_frames
from hypothesis import given
from hypothesis import strategies as st

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.configuration_update import ConfigurationUpdate, merged_properties
from triomq.broker.metrics.latencies import KEYS, Latencies
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.store_metrics import StoreMetrics
from triomq.broker.pools import Pools
from triomq.broker.processors.runtime import RuntimeProcessor
from triomq.broker.runtime_info import RuntimeInfo, bytes_text
from triomq.daemon.configuration import read_file
from triomq.protocol import java_properties
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.settings import bind, declarations
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.watermark import Watermark


class Runtime:
    """A processor of configuration and state, with its own configuration file."""

    def __init__(self, folder: Path, name: str = "broker.conf", text: str = "brokerName=b-a\n") -> None:
        self.clock = FakeClock()
        self.file = folder / name
        self.file.write_text(text)
        broker = BrokerSettings(broker_name="b-a", config_update_without_acl=True)
        self.configuration = Configuration(broker=broker, path=self.file)
        self.update = ConfigurationUpdate(self.configuration, now_ms=self.clock)
        self.store = FakeStore()
        self.stats = BrokerStats("C", now_ms=self.clock)
        self.pace = StoreMetrics(self.stats, now_ms=self.clock)
        info = RuntimeInfo(
            self.configuration,
            self.store,
            self.stats,
            self.pace,
            Pools(self.configuration.broker),
            lambda: {1: (3, 5)},
            (Latencies().values,),
        )
        self.processor = RuntimeProcessor(self.update, info, self.stats, self.store)

    async def change(self, text: str) -> None:
        answer = await self.processor.update_config(FakeConnection(), request(25, body=text.encode()))
        assert (answer.code, answer.remark) == (0, None)


@pytest.fixture
def runtime(tmp_path: Path) -> Runtime:
    return Runtime(tmp_path)


async def test_change_goes_to_file_records_and_listeners(runtime: Runtime) -> None:
    told: list[frozenset[str]] = []
    runtime.update.on_change(told.append)
    runtime.clock.advance(5)
    await runtime.change("traceOn=false\nbrokerPermission=4\nlongPollingEnable=true\n")
    assert runtime.configuration.broker.trace_on is False
    assert told == [{"traceOn", "brokerPermission"}]
    assert set(runtime.file.read_text().splitlines()) == {"brokerName=b-a", "traceOn=false", "brokerPermission=4"}
    assert runtime.update.data_version.counter == 1
    listing = runtime.processor.config(FakeConnection(), request(26))
    assert json.loads((listing.ext_fields or {})["version"]) == {"counter": 1, "timestamp": 1_700_000_000_005}
    assert b"traceOn=false\n" in listing.body


def test_passwords_are_not_listed(runtime: Runtime) -> None:
    runtime.configuration.unknown = {"tls.server.keyPath": "/k", "tls.server.keyPassword": "hush"}
    listing = runtime.processor.config(FakeConnection(), request(26)).body
    assert b"tls.server.keyPath=/k\n" in listing
    assert b"keyPassword" not in listing


async def test_yaml_file_stays_yaml(tmp_path: Path) -> None:
    runtime = Runtime(tmp_path, "broker.yml", "brokerName: b-a\n")
    await runtime.change("traceOn=false")
    assert '"traceOn": "false"' in runtime.file.read_text()


@pytest.mark.parametrize(
    "text",
    [
        "traceOn=perhaps",
        "traceOn=false\nbrokerName=b-b",
        "traceOn=false\nstorePathRootDir=/tmp/x",
        "traceOn=\\u12",
        "traceOn=false\nrocketmqHome=/tmp/x\nfilterServerNums=1",
        "traceOn=false\nmessageStorePlugIn=x.Y",
        "traceOn=false\nextensions=*",
        "traceOn=false\nhaMasterAddress=10.0.0.6:10912",
        "traceOn=false\nnamesrvAddr=10.0.0.6",
        "traceOn=false\nlistenPort=1",
        "traceOn=false\naclEnable=true",
        "traceOn=false\nconfigUpdateWithoutAcl=false",
        "traceOn=false\naclLikeRocketMQ=true",
    ],
)
async def test_refused_update_changes_nothing(runtime: Runtime, text: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        await runtime.change(text)
    assert refused.value.code == 1
    assert runtime.configuration.broker.trace_on is True
    assert runtime.file.read_text() == "brokerName=b-a\n"
    assert runtime.update.data_version.counter == 0


async def test_without_access_control_nobody_may(tmp_path: Path) -> None:
    for broker in (BrokerSettings(), BrokerSettings(acl_enable=True)):
        runtime = Runtime(tmp_path)
        runtime.configuration.broker = broker
        if broker.acl_enable:  # then the ACL decides before the processor
            await runtime.change("traceOn=false")
            continue
        with pytest.raises(RequestRefused, match="aclEnable=true, or configUpdateWithoutAcl=true") as refused:
            await runtime.change("traceOn=false")
        assert refused.value.code == ResponseCode.NO_PERMISSION
        assert runtime.file.read_text() == "brokerName=b-a\n"


async def test_addresses_of_nameservers_may_change(runtime: Runtime) -> None:
    await runtime.change("namesrvAddr=10.0.0.8:9876;10.0.0.9:9876")
    assert runtime.configuration.broker.namesrv_addr == "10.0.0.8:9876;10.0.0.9:9876"
    await runtime.change("namesrvAddr=")
    assert runtime.configuration.broker.namesrv_addr is None
    assert runtime.file.read_text().splitlines() == ["brokerName=b-a", "namesrvAddr="]


async def test_without_a_file_a_change_lasts_until_the_broker_stops(runtime: Runtime) -> None:
    runtime.configuration.path = None
    await runtime.change("traceOn=false")
    assert runtime.configuration.broker.trace_on is False
    assert runtime.file.read_text() == "brokerName=b-a\n"


async def test_a_listener_that_fails_does_not_fail_the_others(runtime: Runtime) -> None:
    told: list[frozenset[str]] = []

    def failing(keys: frozenset[str]) -> None:
        raise ValueError("cannot")

    runtime.update.on_change(failing)
    runtime.update.on_change(told.append)
    await runtime.change("traceOn=false")
    assert told == [{"traceOn"}]


async def test_a_key_that_is_listed_under_another_name_is_kept_under_its_own(runtime: Runtime) -> None:
    await runtime.change("isEnableBatchPush=true")
    assert runtime.configuration.store.enable_batch_push
    bound, used = bind(StoreSettings, read_file(runtime.file), source="file")
    assert bound.enable_batch_push
    assert used == {"enableBatchPush"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "traceOn=false\n"),
        ("a=1", "a=1\ntraceOn=false\n"),
        ("# why\r\ntraceOn = true\r\nb=2\r\n", "# why\r\ntraceOn=false\r\nb=2\r\n"),
        ("#traceOn=true\n", "#traceOn=true\ntraceOn=false\n"),
        ("a=x\\\ntraceOn=true\n", "a=x\\\ntraceOn=true\ntraceOn=false\n"),
        ("traceOn=tr\\\nue\n", "traceOn=tr\\\nue\ntraceOn=false\n"),
        ("a=x\\", "a=x\\\n\ntraceOn=false\n"),
        ("a=\x85\n traceOn : true", "a=\x85\ntraceOn=false"),
        ("traceOn=true\ntraceOn=true\n", "traceOn=false\ntraceOn=false\n"),
    ],
)
def test_only_the_lines_that_change_are_touched(text: str, expected: str) -> None:
    assert merged_properties(text, {"traceOn": "false"}) == expected


_line = st.tuples(
    st.sampled_from(["a", "b", "traceOn", " c", "#traceOn", "x y"]),
    st.sampled_from("=: "),
    st.text("ab\\ =:#", max_size=4),
)


@given(
    st.lists(_line),
    st.sampled_from(["\n", "\r\n"]),
    st.booleans(),
    st.dictionaries(st.sampled_from(["a", "traceOn", "new"]), st.text("xy\\ é=", max_size=4), min_size=1),
)
def test_a_merged_file_reads_as_its_values_with_the_new_ones(
    lines: list[tuple[str, str, str]], newline: str, is_ended: bool, values: dict[str, str]
) -> None:
    text = newline.join("".join(line) for line in lines) + (newline if is_ended else "")
    merged = merged_properties(text, values)
    assert java_properties.parse(merged) == {**java_properties.parse(text), **values}


async def test_nothing_new_is_no_change(runtime: Runtime) -> None:
    await runtime.change("noSuchKey=1\ntraceOn=true\nbrokerName=b-a\n")
    await runtime.change("")
    assert runtime.update.data_version.counter == 0
    assert runtime.file.read_text() == "brokerName=b-a\n"


async def test_file_that_cannot_be_written_refuses_the_update(runtime: Runtime) -> None:
    runtime.file.unlink()
    with pytest.raises(RequestRefused, match="nothing was changed"):
        await runtime.change("traceOn=false")
    assert runtime.configuration.broker.trace_on is True


def test_listing_has_the_keys_of_the_real_broker(runtime: Runtime) -> None:
    frame = golden_frames("admin_json", scenario="admin:getBrokerConfig_b", answers="GET_BROKER_CONFIG")[0]
    expected = {line.split("=", 1)[0] for line in frame["body"].splitlines()}
    listing = runtime.processor.config(FakeConnection(), request(26)).body.decode()
    # Two depend on the configuration of the recorded broker.
    assert expected - {line.split("=", 1)[0] for line in listing.splitlines()} <= {
        "namesrvAddr",
        "rocketmqHome",
        "storePathCommitLog",
        "useTLS",
    }


async def test_runtime_info_has_the_keys_of_the_real_broker(
    runtime: Runtime, tmp_path: Path, autojump_clock: object
) -> None:
    runtime.store.files = Files()
    runtime.store.paths = type("Paths", (), {"commit_logs": [str(tmp_path)], "root": str(tmp_path)})()
    runtime.store.flushed = Watermark()
    runtime.store.max_physical_offset = 2048
    runtime.stats.stored(3, 300)
    runtime.stats.internal_get(2)
    answer = runtime.processor.runtime_info(FakeConnection(), request(28))
    table = json.loads(answer.body)["table"]
    frame = golden_frames("admin_json", scenario="admin:clusterList", answers="GET_BROKER_RUNTIME_INFO")[0]
    expected = {key.partition("_")[0] for key in json.loads(frame["body"])["table"]}
    found = {key.partition("_")[0] for key in table}
    assert found - {"scheduleMessageOffset"} == expected - {"scheduleMessageOffset"} | set(KEYS)
    assert table["scheduleMessageOffset_1"] == "3,5"
    assert table["remainHowManyDataToFlush"] == "2.0 KiB"
    assert table["msgPutTotalTodayNow"] == "3"
    assert table["msgGetTotalTodayNow"] == "2"
    assert table["brokerVersionDesc"] == "V4_9_7"
    assert 0 <= float(table["commitLogDiskRatio"]) <= 1


def test_statistics_that_are_asked_for(runtime: Runtime) -> None:
    asked = request(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "T"})
    with pytest.raises(RequestRefused, match="The stats <TOPIC_PUT_NUMS> <T> not exist"):
        runtime.processor.stats_data(FakeConnection(), asked)
    runtime.stats.topic_put("T", 0, 10, 1000)
    data = json.loads(runtime.processor.stats_data(FakeConnection(), asked).body)
    assert data["statsDay"] == {"avgpt": 0.0, "sum": 0, "tps": 0.0}


def test_expired_files_are_deleted_at_once(runtime: Runtime) -> None:
    assert runtime.processor.delete_expired_files(FakeConnection(), request(329)).code == 0
    assert runtime.store.calls == ["delete_files_now"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (252 * 1024**3, "252.0 GiB")]
)
def test_bytes_text(count: int, text: str) -> None:
    assert bytes_text(count) == text


async def test_two_updates_at_once_keep_both_changes(runtime: Runtime) -> None:
    """The second update starts from the result of the first, in the records and in the file."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.change, "traceOn=false")
        nursery.start_soon(runtime.change, "longPollingEnable=false")
    assert not runtime.configuration.broker.trace_on
    assert not runtime.configuration.broker.long_polling_enable
    assert runtime.update.data_version.counter == 2
    assert set(runtime.file.read_text().splitlines()) == {"brokerName=b-a", "traceOn=false", "longPollingEnable=false"}


async def test_a_reload_during_an_update_keeps_both(runtime: Runtime) -> None:
    """The update waits for the thread that writes the file; meanwhile a SIGHUP brings another key."""
    threads = trio.to_thread.current_default_thread_limiter()
    busy = [object() for _ in range(int(threads.available_tokens))]
    for task in busy:
        threads.acquire_on_behalf_of_nowait(task)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.change, "traceOn=false")
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.configuration.broker.trace_on, "the update is not written yet"
        assert runtime.update.take({"longPollingEnable": "false"}) == {"longPollingEnable"}
        for task in busy:
            threads.release_on_behalf_of(task)
    assert not runtime.configuration.broker.trace_on
    assert not runtime.configuration.broker.long_polling_enable


IDENTITY_AND_SECURITY = {
    "rocketmqHome",
    "brokerIP1",
    "brokerIP2",
    "brokerName",
    "brokerClusterName",
    "brokerId",
    "messageStorePlugIn",
    "aclEnable",
    "aclLikeRocketMQ",
    "configUpdateWithoutAcl",
    "extensions",
    "tracesEndpoint",
    "haSlaveAddresses",
    "haCountUnregistered",
    "haServeUnregistered",
    "dLegerPeerAddresses",
}
LAYOUT_AND_PARTS = {
    "startWithoutUnreadableTables",
    "storePathRootDir",
    "storePathCommitLog",
    "storePathDLedgerCommitLog",
    "readOnlyCommitLogStorePaths",
    "mappedFileSizeCommitLog",
    "mappedFileSizeConsumeQueue",
    "enableConsumeQueueExt",
    "mappedFileSizeConsumeQueueExt",
    "bitMapLengthConsumeQueueExt",
    "messageIndexEnable",
    "maxHashSlotNum",
    "maxIndexNum",
    "haListenPort",
    "brokerRole",
    "flushDiskType",
    "duplicationEnable",
    "transientStorePoolEnable",
    "enableDLegerCommitLog",
    "dLegerGroup",
    "dLegerPeers",
    "dLegerSelfId",
    "dLegerFastElection",
    "enableLmq",
    "enableMultiDispatch",
    "maxOpenFiles",
}
CONNECTIONS = {
    "grpcServerPort",
    "grpcProxyProtocolFrom",
    "listenPort",
    "bindAddress",
    "serverMaxConnections",
    "serverMaxConnectionsPerAddress",
    "serverReservedDescriptors",
    "serverSilentSeconds",
    "maxRequestBytes",
    "frameMaxLength",
    "useTLS",
    "dashboardPort",
    "dashboardAddress",
    "dashboardHosts",
    "dashboardPath",
    "dashboardProxies",
    "dashboardTls",
    "dashboardInsecure",
    "dashboardReadOnly",
    "metricsPort",
    "metricsAddress",
    "metricsMaxSeries",
    "metricsAskClients",
}
SYSTEM_PROPERTIES = {"rebalanceLockMaxLiveTime"}  # RocketMQ reads them only at the start and does not list them


def test_only_what_decides_who_where_and_how_files_lie_is_refused() -> None:
    """RocketMQ accepts every key except paths. A key that is neither changeable nor listed here refuses what RocketMQ
    accepts.
    """
    refused = {
        declared.shown_as
        for record in (BrokerSettings, StoreSettings, ServerSettings, ClientSettings)
        for declared in declarations(record)
        if not declared.changeable
    }
    assert refused == IDENTITY_AND_SECURITY | LAYOUT_AND_PARTS | CONNECTIONS | SYSTEM_PROPERTIES


@pytest.mark.parametrize(
    "line",
    [
        "flushConsumerOffsetHistoryInterval=30000",
        "sendMessageThreadPoolNums=3",
        "pullThreadPoolQueueCapacity=77",
        "serverWorkerThreads=9",
        "clientWorkerThreads=9",
        "traceTopicEnable=true",
        "transientStorePoolSize=3",
        "messageDelayLevel=1s 2s",
        "commercialTimerCount=3",
        "expectConsumerNumUseFilter=64",
    ],
)
async def test_what_rocketmq_accepts_is_accepted_listed_and_kept(runtime: Runtime, line: str) -> None:
    await runtime.change(line)
    assert line in runtime.processor.config(FakeConnection(), request(26)).body.decode().splitlines()
    key, _, value = line.partition("=")
    assert java_properties.parse(runtime.file.read_text())[key] == value


async def test_a_delay_level_that_would_end_the_next_start_is_refused(runtime: Runtime) -> None:
    with pytest.raises(RequestRefused, match="messageDelayLevel: '5x' is not a number followed by"):
        await runtime.change("messageDelayLevel=1s 5x")
