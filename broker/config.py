"""BrokerSettings: every key of RocketMQ's BrokerConfig, under its own name, with its default and meaning.

Keys marked changeable may be changed by UPDATE_BROKER_CONFIG while the broker runs. As in RocketMQ, those that are read
only at the start (sizes of pools, built-in topics, the bloom filter) take effect at the next start. All others are
refused: the broker's identity, addresses and paths, and whatever loads code or decides who may do what. Keys that
RocketMQ 4.9.7 declares but never reads are kept, so that its configuration files pass without a warning.
"""

from __future__ import annotations

import os
from functools import partial

from triomq.broker.local_address import host_name, local_address
from triomq.protocol.settings import SettingsRecord, setting

_CPU_COUNT = os.cpu_count() or 1
_changeable = partial(setting, changeable=True)
_NO_EFFECT = "accepted for compatibility, has no effect"
_POOL_SIZE = "no effect: one event loop handles all requests; the ...QueueCapacity keys bound them"


def _environment(name: str) -> str | None:
    return os.environ.get(name) or None


def _rocketmq_home() -> str | None:
    return _environment("ROCKETMQ_HOME")


def _namesrv_addr() -> str | None:
    return _environment("NAMESRV_ADDR")


class BrokerSettings(SettingsRecord, frozen=True, kw_only=True):
    """BrokerConfig of RocketMQ 4.9.7. Times are milliseconds unless the name says otherwise."""

    rocketmq_home: str | None = setting(
        "rocketmqHome", _rocketmq_home, meaning="installation directory; ACL files lie under its conf/"
    )
    namesrv_addr: str | None = _changeable(
        "namesrvAddr",
        _namesrv_addr,
        meaning='NameServer list "host:port;host:port"; the option -n overrides it',
        important=True,
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
    broker_permission: int = _changeable(
        "brokerPermission",
        6,
        meaning="bits: 4 read, 2 write; when one is missing every topic is registered with this permission",
        minimum=0,
        maximum=7,
    )
    default_topic_queue_nums: int = _changeable(
        "defaultTopicQueueNums",
        8,
        meaning="queues of the TBW102 template, the upper limit for auto-created topics",
        minimum=1,
        maximum=65536,
    )
    auto_create_topic_enable: bool = _changeable(
        "autoCreateTopicEnable", True, meaning="unknown topics are created on the first send", important=True
    )
    cluster_topic_enable: bool = _changeable(
        "clusterTopicEnable", True, meaning="the topic named like the cluster gets permission 7, else 1"
    )
    broker_topic_enable: bool = _changeable(
        "brokerTopicEnable", True, meaning="the topic named like the broker gets permission 7, else 1"
    )
    auto_create_subscription_group: bool = _changeable(
        "autoCreateSubscriptionGroup", True, meaning="subscription groups are created on first use", important=True
    )
    message_store_plug_in: str = setting(
        "messageStorePlugIn",
        "",
        meaning="comma list of stores in front of the store, first one outermost (entry points triomq.message_stores)",
    )
    msg_trace_topic_name: str = _changeable(
        "msgTraceTopicName", "RMQ_SYS_TRACE_TOPIC", meaning="topic of message traces", important=True
    )
    trace_topic_enable: bool = _changeable(
        "traceTopicEnable", False, meaning="create the trace topic with one queue", important=True
    )
    send_message_thread_pool_nums: int = _changeable(
        "sendMessageThreadPoolNums", min(_CPU_COUNT, 4), meaning=_POOL_SIZE, minimum=1, ignored=True
    )
    put_message_future_thread_pool_nums: int = _changeable(
        "putMessageFutureThreadPoolNums", min(_CPU_COUNT, 4), meaning=_NO_EFFECT, minimum=1, ignored=True
    )
    pull_message_thread_pool_nums: int = _changeable(
        "pullMessageThreadPoolNums", 16 + 2 * _CPU_COUNT, meaning=_POOL_SIZE, minimum=1, ignored=True
    )
    process_reply_message_thread_pool_nums: int = _changeable(
        "processReplyMessageThreadPoolNums", 16 + 2 * _CPU_COUNT, meaning=_POOL_SIZE, minimum=1, ignored=True
    )
    query_message_thread_pool_nums: int = _changeable(
        "queryMessageThreadPoolNums", 8 + _CPU_COUNT, meaning=_POOL_SIZE, minimum=1, ignored=True
    )
    admin_broker_thread_pool_nums: int = _changeable(
        "adminBrokerThreadPoolNums", 16, meaning=_POOL_SIZE, minimum=1, ignored=True
    )
    client_manage_thread_pool_nums: int = _changeable(
        "clientManageThreadPoolNums", 32, meaning=_POOL_SIZE, minimum=1, ignored=True
    )
    consumer_manage_thread_pool_nums: int = _changeable(
        "consumerManageThreadPoolNums", 32, meaning=_POOL_SIZE, minimum=1, ignored=True
    )
    heartbeat_thread_pool_nums: int = _changeable(
        "heartbeatThreadPoolNums", min(32, _CPU_COUNT), meaning=_POOL_SIZE, minimum=1, ignored=True
    )
    end_transaction_thread_pool_nums: int = _changeable(
        "endTransactionThreadPoolNums",
        max(8 + 2 * _CPU_COUNT, 4 * min(_CPU_COUNT, 4)),
        meaning=_POOL_SIZE,
        minimum=1,
        ignored=True,
    )
    flush_consumer_offset_interval_ms: int = _changeable(
        "flushConsumerOffsetInterval", 5000, meaning="ms between writes of consumerOffset.json", minimum=1
    )
    flush_consumer_offset_history_interval_ms: int = _changeable(
        "flushConsumerOffsetHistoryInterval", 60000, meaning=_NO_EFFECT, ignored=True
    )
    reject_transaction_message: bool = _changeable(
        "rejectTransactionMessage", False, meaning="refuse half messages with code 16", important=True
    )
    fetch_namesrv_addr_by_address_server: bool = _changeable(
        "fetchNamesrvAddrByAddressServer",
        False,
        meaning="fetch the NameServer list over HTTP every 2 min when namesrvAddr is unset",
        important=True,
    )
    send_thread_pool_queue_capacity: int = _changeable(
        "sendThreadPoolQueueCapacity", 10000, meaning="requests that may wait in the send pool", minimum=1
    )
    put_thread_pool_queue_capacity: int = _changeable(
        "putThreadPoolQueueCapacity", 10000, meaning="sends that may wait for flush or replication", minimum=1
    )
    pull_thread_pool_queue_capacity: int = _changeable(
        "pullThreadPoolQueueCapacity", 100000, meaning="requests that may wait in the pull pool", minimum=1
    )
    reply_thread_pool_queue_capacity: int = _changeable(
        "replyThreadPoolQueueCapacity", 10000, meaning="requests that may wait in the reply pool", minimum=1
    )
    query_thread_pool_queue_capacity: int = _changeable(
        "queryThreadPoolQueueCapacity", 20000, meaning="requests that may wait in the query pool", minimum=1
    )
    client_manager_thread_pool_queue_capacity: int = _changeable(
        "clientManagerThreadPoolQueueCapacity", 1000000, meaning="requests that may wait in the client pool", minimum=1
    )
    consumer_manager_thread_pool_queue_capacity: int = _changeable(
        "consumerManagerThreadPoolQueueCapacity",
        1000000,
        meaning="requests that may wait in the consumer pool",
        minimum=1,
    )
    heartbeat_thread_pool_queue_capacity: int = _changeable(
        "heartbeatThreadPoolQueueCapacity", 50000, meaning="heartbeats that may wait", minimum=1
    )
    end_transaction_pool_queue_capacity: int = _changeable(
        "endTransactionPoolQueueCapacity", 100000, meaning="requests that may wait in the transaction pool", minimum=1
    )
    filter_server_nums: int = _changeable("filterServerNums", 0, meaning=_NO_EFFECT, ignored=True)
    long_polling_enable: bool = _changeable(
        "longPollingEnable",
        True,
        meaning="hold empty pulls for the time they ask for; false: for shortPollingTimeMills",
    )
    short_polling_time_ms: int = _changeable(
        "shortPollingTimeMills", 1000, meaning="ms of hold with longPollingEnable=false", minimum=0
    )
    notify_consumer_ids_changed_enable: bool = _changeable(
        "notifyConsumerIdsChangedEnable", True, meaning="notify the members of a group when it changed"
    )
    high_speed_mode: bool = _changeable("highSpeedMode", False, meaning=_NO_EFFECT, ignored=True)
    commercial_enable: bool = _changeable("commercialEnable", True, meaning=_NO_EFFECT, ignored=True)
    commercial_timer_count: int = _changeable("commercialTimerCount", 1, meaning=_NO_EFFECT, ignored=True)
    commercial_trans_count: int = _changeable("commercialTransCount", 1, meaning=_NO_EFFECT, ignored=True)
    commercial_big_count: int = _changeable("commercialBigCount", 1, meaning=_NO_EFFECT, ignored=True)
    commercial_base_count: int = _changeable("commercialBaseCount", 1, meaning=_NO_EFFECT, minimum=0, ignored=True)
    transfer_msg_by_heap: bool = _changeable("transferMsgByHeap", True, meaning=_NO_EFFECT, ignored=True)
    max_delay_time: int = _changeable("maxDelayTime", 40, meaning=_NO_EFFECT, ignored=True)
    region_id: str = _changeable("regionId", "DefaultRegion", meaning="value of MSG_REGION in send responses")
    register_broker_timeout_ms: int = _changeable(
        "registerBrokerTimeoutMills", 6000, meaning="ms to register at all NameServers", minimum=1
    )
    slave_read_enable: bool = _changeable(
        "slaveReadEnable", False, meaning="direct consumers of old messages to the slave that their group names"
    )
    disable_consume_if_consumer_read_slowly: bool = _changeable(
        "disableConsumeIfConsumerReadSlowly",
        False,
        meaning="stop groups that fall behind by more than consumerFallbehindThreshold, checked every 3 min",
    )
    consumer_fallbehind_threshold_bytes: int = _changeable(
        "consumerFallbehindThreshold",
        16 * 1024**3,
        meaning="bytes of lag above which disableConsumeIfConsumerReadSlowly stops a group",
        minimum=0,
    )
    broker_fast_failure_enable: bool = _changeable(
        "brokerFastFailureEnable", True, meaning="answer requests that waited too long in a pool with SYSTEM_BUSY"
    )
    wait_time_in_send_queue_ms: int = _changeable(
        "waitTimeMillsInSendQueue", 200, meaning="longest wait in the send pool", minimum=1
    )
    wait_time_in_pull_queue_ms: int = _changeable(
        "waitTimeMillsInPullQueue", 5000, meaning="longest wait in the pull pool", minimum=1
    )
    wait_time_in_heartbeat_queue_ms: int = _changeable(
        "waitTimeMillsInHeartbeatQueue", 31000, meaning="longest wait of a heartbeat", minimum=1
    )
    wait_time_in_transaction_queue_ms: int = _changeable(
        "waitTimeMillsInTransactionQueue", 3000, meaning="longest wait in the transaction pool", minimum=1
    )
    start_accept_send_request_time_stamp: int = _changeable(
        "startAcceptSendRequestTimeStamp", 0, meaning="sends are refused before this time (ms since 1970)", minimum=0
    )
    trace_on: bool = _changeable("traceOn", True, meaning="value of TRACE_ON in send responses")
    enable_calc_filter_bit_map: bool = _changeable(
        "enableCalcFilterBitMap",
        False,
        meaning="evaluate SQL92 filters when messages are dispatched (stored with enableConsumeQueueExt)",
    )
    expect_consumer_num_use_filter: int = _changeable(
        "expectConsumerNumUseFilter", 32, meaning="number of groups in the bloom filter", minimum=1, maximum=100000
    )
    max_error_rate_of_bloom_filter: int = _changeable(
        "maxErrorRateOfBloomFilter", 20, meaning="percent of false positives in the bloom filter", minimum=1, maximum=99
    )
    filter_data_clean_time_span_ms: int = _changeable(
        "filterDataCleanTimeSpan", 86400000, meaning="ms for which the SQL92 filter of an offline group is kept"
    )
    filter_support_retry: bool = _changeable(
        "filterSupportRetry", False, meaning="evaluate SQL92 filters on retry topics too"
    )
    enable_property_filter: bool = _changeable("enablePropertyFilter", False, meaning="allow SQL92 subscriptions")
    compressed_register: bool = _changeable("compressedRegister", False, meaning="register in the compressed form")
    force_register: bool = _changeable(
        "forceRegister",
        True,
        meaning="always register periodically; false: only when a NameServer says that something changed",
    )
    register_name_server_period_ms: int = _changeable(
        "registerNameServerPeriod", 30000, meaning="ms between registrations, kept within 10000..60000"
    )
    transaction_timeout_ms: int = _changeable(
        "transactionTimeOut",
        6000,
        meaning="ms before a half message is checked for the first time",
        important=True,
        minimum=0,
    )
    transaction_check_max: int = _changeable(
        "transactionCheckMax",
        15,
        meaning="checks before a half message goes to TRANS_CHECK_MAX_TIME_TOPIC",
        important=True,
        minimum=0,
    )
    transaction_check_interval_ms: int = _changeable(
        "transactionCheckInterval", 60000, meaning="ms between check runs", important=True, minimum=1
    )
    acl_enable: bool = setting("aclEnable", False, meaning="check access with the ACL files", important=True)
    acl_failures_per_minute: int = _changeable(
        "aclFailuresPerMinute",
        60,
        meaning="wrong signatures for one account from one address; more are refused unseen, 0: no limit",
        minimum=0,
        own=True,
    )
    acl_like_rocketmq: bool = setting(
        "aclLikeRocketMQ",
        False,
        meaning="with aclEnable, check only what RocketMQ 4.9.7 checks, so that any account becomes an administrator",
        own=True,
    )
    store_reply_message_enable: bool = _changeable(
        "storeReplyMessageEnable", True, meaning="store reply messages after they were pushed"
    )
    enable_detail_stat: bool = _changeable("enableDetailStat", True, meaning="keep statistics for each queue")
    auto_delete_unused_stats: bool = _changeable(
        "autoDeleteUnusedStats", False, meaning="drop the statistics of deleted topics and groups"
    )
    isolate_log_enable: bool = _changeable("isolateLogEnable", False, meaning="a log directory for each broker")
    config_update_without_acl: bool = setting(
        "configUpdateWithoutAcl",
        False,
        meaning="without aclEnable, let everybody change the configuration over the network",
        own=True,
    )

    max_topic_table_bytes: int = _changeable(
        "maxTopicTableBytes",
        12 * 1024**2,
        meaning="bytes of the topic table as NameServers and slaves receive it; new topics above are refused",
        minimum=65536,
        maximum=15 * 1024**2,
        own=True,
    )
    max_group_table_bytes: int = _changeable(
        "maxGroupTableBytes",
        12 * 1024**2,
        meaning="bytes of the table of groups as slaves receive it; new groups above are refused",
        minimum=65536,
        maximum=15 * 1024**2,
        own=True,
    )
    max_offset_table_bytes: int = _changeable(
        "maxOffsetTableBytes",
        15 * 1024**2,
        meaning="bytes of the table of consumer offsets, of which slaves receive 16 MiB; offsets of new groups and "
        "queues above are refused",
        minimum=65536,
        maximum=1024**3,
        own=True,
    )
    max_messages_per_batch: int = _changeable(
        "maxMessagesPerBatch",
        2**31 - 1,
        meaning="messages of one batch, whose bytes maxMessageSize bounds; larger ones are refused",
        minimum=1,
        own=True,
    )
    max_groups_per_client: int = _changeable(
        "maxGroupsPerClient",
        1000,
        meaning="producer and consumer groups of one heartbeat, and of one connection; more are refused",
        minimum=1,
        own=True,
    )

    quota_per_account: str = _changeable(
        "quotaPerAccount",
        "",
        meaning="what each account may use, such as bytesIn=1048576,messagesIn=1000; all clients without an account "
        "share one",
        own=True,
    )
    quota_per_address: str = _changeable(
        "quotaPerAddress", "", meaning="what the clients of each address may use", own=True
    )
    quota_per_group: str = _changeable(
        "quotaPerGroup", "", meaning="what each producer or consumer group may use", own=True
    )
    quota_burst_ms: int = _changeable(
        "quotaBurstMillis",
        1000,
        meaning="ms of a quota that may be used at once after a pause",
        minimum=1,
        maximum=3_600_000,
        own=True,
    )

    metrics_ask_clients: bool = setting(
        "metricsAskClients",
        True,
        meaning="with metricsPort, ask each push consumer once a minute for its rates, as rocketmq-exporter does; of "
        "several brokers with the same consumers one is enough",
        own=True,
    )

    traces_endpoint: str = setting(
        "tracesEndpoint",
        "",
        meaning="OTLP/HTTP collector of the broker's own spans, such as http://127.0.0.1:4318/v1/traces; needs "
        "the extra otel",
        own=True,
    )

    extensions: str = setting(
        "extensions",
        "",
        meaning="comma list of installed extensions to load, * for all: hooks, validators, transactions",
        own=True,
    )

    start_without_unreadable_tables: bool = setting(
        "startWithoutUnreadableTables",
        False,
        meaning="begin with an empty table if neither its file in config/ nor the .bak can be read, and put these "
        "aside; without it the start ends with code 253, since an empty table skips messages or repeats them",
        own=True,
    )

    queue_lock_lifetime_ms: int = setting(
        "rebalanceLockMaxLiveTime",
        60_000,
        meaning="ms after which a consumer loses a queue lock that it did not renew (RocketMQ: a system property)",
        minimum=1,
    )

    @property
    def registration_period_ms(self) -> int:
        """Return registerNameServerPeriod, limited so that NameServers do not expire the broker."""
        return max(10_000, min(self.register_name_server_period_ms, 60_000))
