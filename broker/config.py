"""BrokerSettings: every key of RocketMQ's BrokerConfig, under its own name, with its default and meaning.

Keys marked changeable may be changed by UPDATE_BROKER_CONFIG while the broker runs. As in RocketMQ, those that are read
only at the start (sizes of pools, built-in topics, the bloom filter) take effect at the next start. All others are
refused: the broker's identity, addresses and paths, and whatever loads code or decides who may do what. Keys that
RocketMQ 4.9.7 declares but never reads are kept, so that its configuration files pass without a warning.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from triomq.broker.local_address import host_name, local_address
from triomq.protocol.settings import setting

_CPU_COUNT = os.cpu_count() or 1
_NO_EFFECT = "accepted for compatibility, has no effect"
_POOL_SIZE = "no effect: one event loop handles all requests; the ...QueueCapacity keys bound them"


def _environment(name: str) -> str | None:
    return os.environ.get(name) or None


def _rocketmq_home() -> str | None:
    return _environment("ROCKETMQ_HOME")


def _namesrv_addr() -> str | None:
    return _environment("NAMESRV_ADDR")


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """BrokerConfig of RocketMQ 4.9.7. Times are milliseconds unless the name says otherwise."""

    rocketmq_home: str | None = setting(
        "rocketmqHome", _rocketmq_home, meaning="installation directory; ACL files lie under its conf/"
    )
    namesrv_addr: str | None = setting(
        "namesrvAddr",
        _namesrv_addr,
        meaning='NameServer list "host:port;host:port"; the option -n overrides it',
        important=True,
        changeable=True,
    )
    broker_ip1: str = setting(
        "brokerIP1",
        local_address,
        meaning="address registered at the NameServers and stored as storeHost; set it in containers and behind NAT",
        important=True,
    )
    broker_ip2: str = setting("brokerIP2", local_address, meaning="address slaves replicate from")
    broker_name: str = setting("brokerName", host_name, meaning="name of the broker set", important=True)
    broker_cluster_name: str = setting(
        "brokerClusterName", "DefaultCluster", meaning="name of the cluster", important=True
    )
    broker_id: int = setting(
        "brokerId", 0, meaning="0 master, above 0 slave; masters always use 0", important=True, minimum=-1
    )
    broker_permission: int = setting(
        "brokerPermission",
        6,
        meaning="bits: 4 read, 2 write; when one is missing every topic is registered with this permission",
        minimum=0,
        maximum=7,
        changeable=True,
    )
    default_topic_queue_nums: int = setting(
        "defaultTopicQueueNums",
        8,
        meaning="queues of the TBW102 template, the upper limit for auto-created topics",
        minimum=1,
        maximum=65536,
        changeable=True,
    )
    auto_create_topic_enable: bool = setting(
        "autoCreateTopicEnable",
        True,
        meaning="unknown topics are created on the first send",
        important=True,
        changeable=True,
    )
    cluster_topic_enable: bool = setting(
        "clusterTopicEnable",
        True,
        meaning="the topic named like the cluster gets permission 7, else 1",
        changeable=True,
    )
    broker_topic_enable: bool = setting(
        "brokerTopicEnable", True, meaning="the topic named like the broker gets permission 7, else 1", changeable=True
    )
    auto_create_subscription_group: bool = setting(
        "autoCreateSubscriptionGroup",
        True,
        meaning="subscription groups are created on first use",
        important=True,
        changeable=True,
    )
    message_store_plug_in: str = setting(
        "messageStorePlugIn",
        "",
        meaning="comma list of stores in front of the store, first one outermost (entry points triomq.message_stores)",
    )
    msg_trace_topic_name: str = setting(
        "msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", meaning="topic of message traces", important=True, changeable=True
    )
    trace_topic_enable: bool = setting(
        "traceTopicEnable", False, meaning="create the trace topic with one queue", important=True, changeable=True
    )
    send_message_thread_pool_nums: int = setting(
        "sendMessageThreadPoolNums",
        min(_CPU_COUNT, 4),
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    put_message_future_thread_pool_nums: int = setting(
        "putMessageFutureThreadPoolNums", min(_CPU_COUNT, 4), meaning=_NO_EFFECT, minimum=1, changeable=True
    )
    pull_message_thread_pool_nums: int = setting(
        "pullMessageThreadPoolNums",
        16 + 2 * _CPU_COUNT,
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    process_reply_message_thread_pool_nums: int = setting(
        "processReplyMessageThreadPoolNums",
        16 + 2 * _CPU_COUNT,
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    query_message_thread_pool_nums: int = setting(
        "queryMessageThreadPoolNums",
        8 + _CPU_COUNT,
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    admin_broker_thread_pool_nums: int = setting(
        "adminBrokerThreadPoolNums",
        16,
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    client_manage_thread_pool_nums: int = setting(
        "clientManageThreadPoolNums",
        32,
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    consumer_manage_thread_pool_nums: int = setting(
        "consumerManageThreadPoolNums",
        32,
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    heartbeat_thread_pool_nums: int = setting(
        "heartbeatThreadPoolNums",
        min(32, _CPU_COUNT),
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    end_transaction_thread_pool_nums: int = setting(
        "endTransactionThreadPoolNums",
        max(8 + 2 * _CPU_COUNT, 4 * min(_CPU_COUNT, 4)),
        meaning=_POOL_SIZE,
        minimum=1,
        changeable=True,
    )
    flush_consumer_offset_interval_ms: int = setting(
        "flushConsumerOffsetInterval",
        5000,
        meaning="ms between writes of consumerOffset.json",
        minimum=1,
        changeable=True,
    )
    flush_consumer_offset_history_interval_ms: int = setting(
        "flushConsumerOffsetHistoryInterval", 60000, meaning=_NO_EFFECT, changeable=True
    )
    reject_transaction_message: bool = setting(
        "rejectTransactionMessage",
        False,
        meaning="refuse half messages with code 16",
        important=True,
        changeable=True,
    )
    fetch_namesrv_addr_by_address_server: bool = setting(
        "fetchNamesrvAddrByAddressServer",
        False,
        meaning="fetch the NameServer list over HTTP every 2 min when namesrvAddr is unset",
        important=True,
        changeable=True,
    )
    send_thread_pool_queue_capacity: int = setting(
        "sendThreadPoolQueueCapacity",
        10000,
        meaning="requests that may wait in the send pool",
        minimum=1,
        changeable=True,
    )
    put_thread_pool_queue_capacity: int = setting(
        "putThreadPoolQueueCapacity",
        10000,
        meaning="sends that may wait for flush or replication",
        minimum=1,
        changeable=True,
    )
    pull_thread_pool_queue_capacity: int = setting(
        "pullThreadPoolQueueCapacity",
        100000,
        meaning="requests that may wait in the pull pool",
        minimum=1,
        changeable=True,
    )
    reply_thread_pool_queue_capacity: int = setting(
        "replyThreadPoolQueueCapacity",
        10000,
        meaning="requests that may wait in the reply pool",
        minimum=1,
        changeable=True,
    )
    query_thread_pool_queue_capacity: int = setting(
        "queryThreadPoolQueueCapacity",
        20000,
        meaning="requests that may wait in the query pool",
        minimum=1,
        changeable=True,
    )
    client_manager_thread_pool_queue_capacity: int = setting(
        "clientManagerThreadPoolQueueCapacity",
        1000000,
        meaning="requests that may wait in the client pool",
        minimum=1,
        changeable=True,
    )
    consumer_manager_thread_pool_queue_capacity: int = setting(
        "consumerManagerThreadPoolQueueCapacity",
        1000000,
        meaning="requests that may wait in the consumer pool",
        minimum=1,
        changeable=True,
    )
    heartbeat_thread_pool_queue_capacity: int = setting(
        "heartbeatThreadPoolQueueCapacity", 50000, meaning="heartbeats that may wait", minimum=1, changeable=True
    )
    end_transaction_pool_queue_capacity: int = setting(
        "endTransactionPoolQueueCapacity",
        100000,
        meaning="requests that may wait in the transaction pool",
        minimum=1,
        changeable=True,
    )
    filter_server_nums: int = setting("filterServerNums", 0, meaning=_NO_EFFECT, changeable=True)
    long_polling_enable: bool = setting(
        "longPollingEnable",
        True,
        meaning="hold empty pulls for the time they ask for; false: for shortPollingTimeMills",
        changeable=True,
    )
    short_polling_time_ms: int = setting(
        "shortPollingTimeMills", 1000, meaning="ms of hold with longPollingEnable=false", minimum=0, changeable=True
    )
    notify_consumer_ids_changed_enable: bool = setting(
        "notifyConsumerIdsChangedEnable",
        True,
        meaning="tell the members of a group when it changed",
        changeable=True,
    )
    high_speed_mode: bool = setting("highSpeedMode", False, meaning=_NO_EFFECT, changeable=True)
    commercial_enable: bool = setting("commercialEnable", True, meaning=_NO_EFFECT, changeable=True)
    commercial_timer_count: int = setting("commercialTimerCount", 1, meaning=_NO_EFFECT, changeable=True)
    commercial_trans_count: int = setting("commercialTransCount", 1, meaning=_NO_EFFECT, changeable=True)
    commercial_big_count: int = setting("commercialBigCount", 1, meaning=_NO_EFFECT, changeable=True)
    commercial_base_count: int = setting(
        "commercialBaseCount", 1, meaning=_NO_EFFECT, minimum=0, changeable=True
    )
    transfer_msg_by_heap: bool = setting(
        "transferMsgByHeap",
        True,
        meaning=_NO_EFFECT,
        changeable=True,
    )
    max_delay_time: int = setting("maxDelayTime", 40, meaning=_NO_EFFECT, changeable=True)
    region_id: str = setting(
        "regionId", "DefaultRegion", meaning="value of MSG_REGION in send answers", changeable=True
    )
    register_broker_timeout_ms: int = setting(
        "registerBrokerTimeoutMills",
        6000,
        meaning="ms to register at all NameServers",
        minimum=1,
        changeable=True,
    )
    slave_read_enable: bool = setting(
        "slaveReadEnable",
        False,
        meaning="send consumers of old messages to the slave the group settings name",
        changeable=True,
    )
    disable_consume_if_consumer_read_slowly: bool = setting(
        "disableConsumeIfConsumerReadSlowly",
        False,
        meaning="stop groups that fall behind by more than consumerFallbehindThreshold, looked at every 3 min",
        changeable=True,
    )
    consumer_fallbehind_threshold_bytes: int = setting(
        "consumerFallbehindThreshold", 16 * 1024**3, meaning="bytes of that limit", minimum=0, changeable=True
    )
    broker_fast_failure_enable: bool = setting(
        "brokerFastFailureEnable",
        True,
        meaning="answer requests that waited too long in a pool with SYSTEM_BUSY",
        changeable=True,
    )
    wait_time_in_send_queue_ms: int = setting(
        "waitTimeMillsInSendQueue", 200, meaning="longest wait in the send pool", minimum=1, changeable=True
    )
    wait_time_in_pull_queue_ms: int = setting(
        "waitTimeMillsInPullQueue", 5000, meaning="longest wait in the pull pool", minimum=1, changeable=True
    )
    wait_time_in_heartbeat_queue_ms: int = setting(
        "waitTimeMillsInHeartbeatQueue", 31000, meaning="longest wait of a heartbeat", minimum=1, changeable=True
    )
    wait_time_in_transaction_queue_ms: int = setting(
        "waitTimeMillsInTransactionQueue",
        3000,
        meaning="longest wait in the transaction pool",
        minimum=1,
        changeable=True,
    )
    start_accept_send_request_time_stamp: int = setting(
        "startAcceptSendRequestTimeStamp",
        0,
        meaning="sends are refused before this time (ms since 1970)",
        minimum=0,
        changeable=True,
    )
    trace_on: bool = setting("traceOn", True, meaning="value of TRACE_ON in send answers", changeable=True)
    enable_calc_filter_bit_map: bool = setting(
        "enableCalcFilterBitMap",
        False,
        meaning="evaluate SQL92 filters when messages are dispatched (stored with enableConsumeQueueExt)",
        changeable=True,
    )
    expect_consumer_num_use_filter: int = setting(
        "expectConsumerNumUseFilter",
        32,
        meaning="groups the bloom filter is laid out for",
        minimum=1,
        maximum=100000,
        changeable=True,
    )
    max_error_rate_of_bloom_filter: int = setting(
        "maxErrorRateOfBloomFilter",
        20,
        meaning="percent of false hits of the bloom filter",
        minimum=1,
        maximum=99,
        changeable=True,
    )
    filter_data_clean_time_span_ms: int = setting(
        "filterDataCleanTimeSpan",
        86400000,
        meaning="ms after which the SQL92 filter of a gone group is dropped",
        changeable=True,
    )
    filter_support_retry: bool = setting(
        "filterSupportRetry", False, meaning="evaluate SQL92 filters on retry topics too", changeable=True
    )
    enable_property_filter: bool = setting(
        "enablePropertyFilter", False, meaning="allow SQL92 subscriptions", changeable=True
    )
    compressed_register: bool = setting(
        "compressedRegister", False, meaning="register in the compressed form", changeable=True
    )
    force_register: bool = setting(
        "forceRegister",
        True,
        meaning="always register periodically; false: only when a NameServer says that something changed",
        changeable=True,
    )
    register_name_server_period_ms: int = setting(
        "registerNameServerPeriod", 30000, meaning="ms between registrations, kept within 10000..60000", changeable=True
    )
    transaction_timeout_ms: int = setting(
        "transactionTimeOut",
        6000,
        meaning="ms before a half message is checked for the first time",
        important=True,
        minimum=0,
        changeable=True,
    )
    transaction_check_max: int = setting(
        "transactionCheckMax",
        15,
        meaning="checks before a half message goes to TRANS_CHECK_MAX_TIME_TOPIC",
        important=True,
        minimum=0,
        changeable=True,
    )
    transaction_check_interval_ms: int = setting(
        "transactionCheckInterval",
        60000,
        meaning="ms between check runs",
        important=True,
        minimum=1,
        changeable=True,
    )
    acl_enable: bool = setting("aclEnable", False, meaning="check access with the ACL files", important=True)
    store_reply_message_enable: bool = setting(
        "storeReplyMessageEnable", True, meaning="store reply messages after they were pushed", changeable=True
    )
    enable_detail_stat: bool = setting(
        "enableDetailStat", True, meaning="keep statistics for each queue", changeable=True
    )
    auto_delete_unused_stats: bool = setting(
        "autoDeleteUnusedStats", False, meaning="drop the statistics of deleted topics and groups", changeable=True
    )
    isolate_log_enable: bool = setting(
        "isolateLogEnable", False, meaning="a log directory for each broker", changeable=True
    )
    config_update_without_acl: bool = setting(
        "configUpdateWithoutAcl",
        False,
        meaning="without aclEnable, let everybody change the configuration over the network (TrioMQ only)",
    )

    extensions: str = setting(
        "extensions",
        "",
        meaning="comma list of installed extensions to load, * for all: hooks, validators, transactions (TrioMQ only)",
    )

    queue_lock_lifetime_ms: int = setting(
        "rebalanceLockMaxLiveTime",
        60_000,
        meaning="ms after which a consumer loses a queue lock that it did not renew (RocketMQ: a system property)",
        minimum=1,
    )

    @property
    def registration_period_ms(self) -> int:
        """registerNameServerPeriod within the limits that keep NameServers from expiring the broker."""
        return max(10_000, min(self.register_name_server_period_ms, 60_000))
