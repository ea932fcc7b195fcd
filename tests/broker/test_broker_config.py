import os

import pytest
from golden_data import golden_frames

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.local_address import choose_address, local_address
from triomq.protocol.settings import SettingError, bind, changed, declarations, to_text

# What the recorded broker was configured with, and what depends on its machine.
_CONFIGURED = {
    "brokerName",
    "brokerClusterName",
    "brokerIP1",
    "brokerIP2",
    "namesrvAddr",
    "rocketmqHome",
    "transactionCheckInterval",
    "transactionTimeOut",
    "slaveReadEnable",
    "flushConsumerOffsetInterval",
    "traceTopicEnable",
    "enablePropertyFilter",
}


def test_keys_and_defaults_are_those_the_real_broker_lists() -> None:
    frame = golden_frames("admin_json", scenario="admin:getBrokerConfig_b", answers="GET_BROKER_CONFIG")[0]
    listed = dict(line.split("=", 1) for line in frame["body"].splitlines())
    ours = to_text(BrokerSettings(), null="")
    assert ours.pop("configUpdateWithoutAcl") == "false", "a key of our own"
    assert ours.pop("aclLikeRocketMQ") == "false", "a key of our own"
    assert ours.pop("extensions") == "", "a key of our own"
    own = {"maxTopicTableBytes": "12582912", "maxGroupTableBytes": "12582912", "maxGroupsPerClient": "1000"}
    own |= {"maxOffsetTableBytes": "15728640", "maxMessagesPerBatch": "2147483647"}
    own |= {"aclFailuresPerMinute": "60", "metricsAskClients": "true", "tracesEndpoint": ""}
    own |= {"grpcServerPort": "0", "grpcAdvertisedEndpoint": "", "grpcProxyProtocolFrom": ""}
    own |= {"startWithoutUnreadableTables": "false", "popMaxInFlight": "1000000", "popMaxInFlightOfGroup": "200000"}
    own |= {"quotaPerAccount": "", "quotaPerAddress": "", "quotaPerGroup": "", "quotaBurstMillis": "1000"}
    for key, value in own.items():
        assert ours.pop(key) == value, "a key of our own"
    assert ours.pop("rebalanceLockMaxLiveTime") == "60000", "RocketMQ has a system property for it"
    assert set(ours) <= set(listed)
    computed = {key for key in ours if key.endswith("ThreadPoolNums")}
    for key in set(ours) - _CONFIGURED - computed:
        assert ours[key] == listed[key], key


def test_important_keys() -> None:
    assert [declared.key for declared in declarations(BrokerSettings) if declared.important] == [
        "namesrvAddr",
        "brokerIP1",
        "brokerName",
        "brokerClusterName",
        "brokerId",
        "autoCreateTopicEnable",
        "autoCreateSubscriptionGroup",
        "msgTraceTopicName",
        "traceTopicEnable",
        "rejectTransactionMessage",
        "fetchNamesrvAddrByAddressServer",
        "transactionTimeOut",
        "transactionCheckMax",
        "transactionCheckInterval",
        "aclEnable",
    ]


def test_computed_pool_sizes_follow_the_processors() -> None:
    cpus = os.cpu_count() or 1
    settings = BrokerSettings()
    assert settings.pull_message_thread_pool_nums == 16 + 2 * cpus
    assert settings.query_message_thread_pool_nums == 8 + cpus
    assert settings.send_message_thread_pool_nums == min(cpus, 4)


def test_bind_and_change() -> None:
    settings, used = bind(BrokerSettings, {"brokerName": "b-a", "traceOn": "false", "other": "x"}, source="t")
    assert settings.broker_name == "b-a"
    assert used == {"brokerName", "traceOn"}
    assert changed(settings, {"traceOn": "true"}).trace_on is True
    with pytest.raises(SettingError, match="brokerName"):
        changed(settings, {"brokerName": "b-b"})


@pytest.mark.parametrize("pool", ["Send", "Pull", "Heartbeat", "Transaction"])
def test_a_request_may_wait_for_its_pool_for_a_millisecond_and_not_for_none(pool: str) -> None:
    key = f"waitTimeMillsIn{pool}Queue"
    assert to_text(changed(BrokerSettings(), {key: "1"}))[key] == "1"
    with pytest.raises(SettingError, match=key):
        changed(BrokerSettings(), {key: "0"})


@pytest.mark.parametrize(
    ("key", "lowest", "highest"), [("expectConsumerNumUseFilter", 1, 100_000), ("maxErrorRateOfBloomFilter", 1, 99)]
)
def test_a_setting_of_the_bloom_filter_may_be_anything_from_its_lowest_to_its_highest_value(
    key: str, lowest: int, highest: int
) -> None:
    for value in (lowest, highest):
        assert to_text(changed(BrokerSettings(), {key: str(value)}))[key] == str(value)
    for value in (lowest - 1, highest + 1):
        with pytest.raises(SettingError, match=key):
            changed(BrokerSettings(), {key: str(value)})


@pytest.mark.parametrize(("text", "period_ms"), [("1", 10_000), ("30000", 30_000), ("99999999", 60_000)])
def test_registration_period_is_limited(text: str, period_ms: int) -> None:
    settings, _ = bind(BrokerSettings, {"registerNameServerPeriod": text}, source="t")
    assert settings.registration_period_ms == period_ms


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "chosen"),
    [
        (["192.168.1.5", "10.0.0.9"], [], "10.0.0.9"),
        (["192.168.1.5", "192.168.2.6"], ["fd00::1"], "192.168.2.6"),
        ([], ["fd00::1", "fd00::2"], "fd00::1"),
        ([], [], None),
    ],
)
def test_announced_address(ipv4: list[str], ipv6: list[str], chosen: str | None) -> None:
    assert choose_address(ipv4, ipv6) == chosen


def test_local_address_is_an_address() -> None:
    assert local_address().count(".") == 3 or ":" in local_address()


@pytest.mark.parametrize(("values", "port"), [({}, 10_912), ({"listenPort": "20911", "haListenPort": "5"}, 20_912)])
def test_the_port_for_slaves_is_the_next_one(values: dict[str, str], port: int) -> None:
    assert Configuration.from_values(values).store.ha_listen_port == port
