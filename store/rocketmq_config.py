"""The keys of RocketMQ's MessageStoreConfig, each under its own name, with its default and meaning.

Keys that are not changeable determine the layout of files on disk or which parts exist; all others may be changed while
the broker runs. `StoreSettings` (config.py) adds the keys that only this store has.
"""

from __future__ import annotations

from enum import Enum
from pathlib import Path

from triomq.protocol.settings import SettingsRecord, changeable_setting, ignored_setting, setting


class BrokerRole(Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class FlushDiskType(Enum):
    SYNC_FLUSH = "SYNC_FLUSH"
    ASYNC_FLUSH = "ASYNC_FLUSH"


def _default_root() -> str:
    return str(Path.home() / "store")


class RocketMQStoreSettings(SettingsRecord, frozen=True, kw_only=True):
    """MessageStoreConfig of RocketMQ 4.9.7."""

    store_path_root_dir: str = setting("storePathRootDir", _default_root, meaning="store root", important=True)
    store_path_commit_log: str | None = setting(
        "storePathCommitLog",
        None,
        meaning="CommitLog directory; several separated by ',' allowed; null = <root>/commitlog",
        important=True,
    )
    store_path_dledger_commit_log: str | None = setting(
        "storePathDLedgerCommitLog",
        None,
        meaning="data directory of the ledger; several separated by ',' allowed; null = <root>/dledger-<id>/data",
        important=True,
    )
    read_only_commit_log_store_paths: str | None = setting(
        "readOnlyCommitLogStorePaths", None, meaning="extra CommitLog directories only read from"
    )
    mapped_file_size_commit_log_bytes: int = setting(
        "mappedFileSizeCommitLog", 1_073_741_824, meaning="CommitLog file size", minimum=1024, maximum=2_147_483_647
    )
    mapped_file_size_consume_queue_bytes: int = setting(
        "mappedFileSizeConsumeQueue",
        6_000_000,
        meaning="consume queue file size, rounded up to a multiple of 20",
        minimum=20,
        maximum=2_147_483_647,
    )
    enable_consume_queue_ext: bool = setting(
        "enableConsumeQueueExt", False, meaning="write consumequeue_ext (tags code, store time, bit map)"
    )
    mapped_file_size_consume_queue_ext_bytes: int = setting(
        "mappedFileSizeConsumeQueueExt", 50_331_648, meaning="ext file size", minimum=64
    )
    bit_map_length_consume_queue_ext: int = setting(
        "bitMapLengthConsumeQueueExt", 64, meaning="no effect", ignored=True
    )
    flush_interval_commit_log_ms: int = changeable_setting(
        "flushIntervalCommitLog", 500, meaning="ms between asynchronous flushes", important=True, minimum=1
    )
    commit_interval_commit_log_ms: int = changeable_setting(
        "commitIntervalCommitLog", 200, meaning="ms between commits of the transient pool", important=True, minimum=1
    )
    use_reentrant_lock_when_put_message: bool = ignored_setting("useReentrantLockWhenPutMessage", True)
    flush_commit_log_timed: bool = ignored_setting("flushCommitLogTimed", True, important=True)
    flush_interval_consume_queue_ms: int = changeable_setting(
        "flushIntervalConsumeQueue", 1000, meaning="ms between consume queue flushes", minimum=1
    )
    clean_resource_interval_ms: int = changeable_setting(
        "cleanResourceInterval", 10_000, meaning="ms between runs of the file cleaner", minimum=1
    )
    delete_commit_log_files_interval_ms: int = changeable_setting(
        "deleteCommitLogFilesInterval", 100, meaning="ms pause between deleting two CommitLog files", minimum=0
    )
    delete_consume_queue_files_interval_ms: int = changeable_setting(
        "deleteConsumeQueueFilesInterval",
        100,
        meaning="ms pause between deleting two consume queue or index files",
        minimum=0,
    )
    destroy_mapped_file_interval_forcibly_ms: int = ignored_setting("destroyMapedFileIntervalForcibly", 120_000)
    redelete_hung_file_interval_ms: int = changeable_setting(
        "redeleteHangedFileInterval",
        120_000,
        meaning="ms after which a file that could not be deleted is tried again",
        minimum=1,
    )
    delete_when: str = changeable_setting(
        "deleteWhen", "04", meaning="hours of the day at which expired files go, '04' or '04;16'", important=True
    )
    disk_max_used_space_ratio_percent: int = changeable_setting(
        "diskMaxUsedSpaceRatio", 75, meaning="percent used at which cleaning starts at any time; limited to 10..95"
    )
    file_reserved_time_hours: int = changeable_setting(
        "fileReservedTime", 72, meaning="hours a file is kept after its last modification", important=True, minimum=0
    )
    put_msg_index_high_water: int = ignored_setting("putMsgIndexHightWater", 600_000)
    max_message_size_bytes: int = changeable_setting(
        "maxMessageSize", 4_194_304, meaning="largest message body in bytes", minimum=1
    )
    check_crc_on_recover: bool = changeable_setting("checkCRCOnRecover", True, meaning="check body CRC in recovery")
    flush_commit_log_least_pages: int = changeable_setting(
        "flushCommitLogLeastPages", 4, meaning="pages (4 KiB) that must be dirty for a flush", minimum=0
    )
    commit_commit_log_least_pages: int = changeable_setting(
        "commitCommitLogLeastPages", 4, meaning="pages needed for a commit of the transient pool"
    )
    flush_least_pages_when_warm_mapped_file: int = ignored_setting("flushLeastPagesWhenWarmMapedFile", 4096)
    flush_consume_queue_least_pages: int = changeable_setting(
        "flushConsumeQueueLeastPages", 2, meaning="pages needed for a consume queue flush", minimum=0
    )
    flush_commit_log_thorough_interval_ms: int = changeable_setting(
        "flushCommitLogThoroughInterval", 10_000, meaning="ms after which a flush ignores the page minimum"
    )
    commit_commit_log_thorough_interval_ms: int = ignored_setting("commitCommitLogThoroughInterval", 200)
    flush_consume_queue_thorough_interval_ms: int = changeable_setting(
        "flushConsumeQueueThoroughInterval",
        60_000,
        meaning="ms after which a consume queue flush ignores the page minimum and the checkpoint is written",
    )
    max_transfer_bytes_on_message_in_memory: int = changeable_setting(
        "maxTransferBytesOnMessageInMemory",
        262_144,
        meaning="bytes for one pull of recent messages",
        important=True,
        minimum=1,
    )
    max_transfer_count_on_message_in_memory: int = changeable_setting(
        "maxTransferCountOnMessageInMemory",
        32,
        meaning="messages for one pull of recent messages",
        important=True,
        minimum=1,
    )
    max_transfer_bytes_on_message_in_disk: int = changeable_setting(
        "maxTransferBytesOnMessageInDisk",
        65_536,
        meaning="bytes for one pull of old messages",
        important=True,
        minimum=1,
    )
    max_transfer_count_on_message_in_disk: int = changeable_setting(
        "maxTransferCountOnMessageInDisk", 8, meaning="messages for one pull of old messages", important=True, minimum=1
    )
    access_message_in_memory_max_ratio_percent: int = changeable_setting(
        "accessMessageInMemoryMaxRatio",
        40,
        meaning="percent of physical memory that counts as 'recent' CommitLog data",
        important=True,
        minimum=0,
    )
    message_index_enable: bool = setting("messageIndexEnable", True, meaning="build index files", important=True)
    max_hash_slot_num: int = setting("maxHashSlotNum", 5_000_000, meaning="hash slots per index file", minimum=1)
    max_index_num: int = setting("maxIndexNum", 20_000_000, meaning="entries per index file", minimum=3)
    max_msgs_num_batch: int = changeable_setting(
        "maxMsgsNumBatch", 64, meaning="most messages returned for one key query", minimum=1
    )
    message_index_safe: bool = changeable_setting(
        "messageIndexSafe", False, meaning="recovery also respects indexMsgTimestamp", important=True
    )
    ha_listen_port: int = setting("haListenPort", 10_912, meaning="no effect: always listenPort + 1", ignored=True)
    ha_send_heartbeat_interval_ms: int = changeable_setting(
        "haSendHeartbeatInterval", 5000, meaning="ms of silence after which HA sides send a heartbeat"
    )
    ha_housekeeping_interval_ms: int = changeable_setting(
        "haHousekeepingInterval", 20_000, meaning="ms of silence after which an HA connection is closed"
    )
    ha_transfer_batch_size_bytes: int = changeable_setting(
        "haTransferBatchSize", 32_768, meaning="bytes per HA frame", minimum=1
    )
    ha_master_address: str | None = changeable_setting(
        "haMasterAddress",
        None,
        meaning="fixed HA address of the master 'ip:port'; null = learnt at registration",
        important=True,
    )
    ha_slave_fallbehind_max_bytes: int = changeable_setting(
        "haSlaveFallbehindMax", 268_435_456, meaning="bytes a slave may lag to count as usable"
    )
    broker_role: BrokerRole = setting(
        "brokerRole", BrokerRole.ASYNC_MASTER, meaning="ASYNC_MASTER, SYNC_MASTER or SLAVE", important=True
    )
    flush_disk_type: FlushDiskType = setting(
        "flushDiskType", FlushDiskType.ASYNC_FLUSH, meaning="ASYNC_FLUSH or SYNC_FLUSH", important=True
    )
    sync_flush_timeout_ms: int = changeable_setting(
        "syncFlushTimeout", 5000, meaning="ms limit for a sync flush", minimum=1
    )
    slave_timeout_ms: int = changeable_setting(
        "slaveTimeout", 3000, meaning="ms limit for the slave confirmation", minimum=1
    )
    message_delay_level: str = changeable_setting(
        "messageDelayLevel",
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        meaning="delay table, units s m h d",
    )
    flush_delay_offset_interval_ms: int = changeable_setting(
        "flushDelayOffsetInterval", 10_000, meaning="ms between writes of delayOffset.json"
    )
    clean_file_forcibly_enable: bool = changeable_setting(
        "cleanFileForciblyEnable", True, meaning="above the forcible ratio delete although unexpired", important=True
    )
    warm_mapped_file_enable: bool = changeable_setting(
        "warmMapedFileEnable", False, meaning="touch and lock the pages of new CommitLog files"
    )
    offset_check_in_slave: bool = changeable_setting(
        "offsetCheckInSlave", False, meaning="a slave corrects pull offsets itself"
    )
    debug_lock_enable: bool = ignored_setting("debugLockEnable", False)
    duplication_enable: bool = setting(
        "duplicationEnable",
        False,
        meaning="only messages below the confirm offset reach consumers; true is refused, as a plug-in has to set it",
    )
    disk_fall_recorded: bool = changeable_setting("diskFallRecorded", True, meaning="record how far reads are behind")
    os_page_cache_busy_time_out_ms: int = changeable_setting(
        "osPageCacheBusyTimeOutMills", 1000, meaning="ms the put lock may be held before the page cache counts as busy"
    )
    default_query_max_num: int = changeable_setting("defaultQueryMaxNum", 32, meaning="maxNum for unique key queries")
    transient_store_pool_enable: bool = setting(
        "transientStorePoolEnable",
        False,
        meaning="off-heap write buffers; used only with ASYNC_FLUSH and role not SLAVE",
        important=True,
    )
    transient_store_pool_size: int = ignored_setting("transientStorePoolSize", 5, minimum=1)
    fast_fail_if_no_buffer_in_store_pool: bool = ignored_setting("fastFailIfNoBufferInStorePool", False)
    enable_dleger_commit_log: bool = setting(
        "enableDLegerCommitLog", False, meaning="be a member of a DLedger group, which elects its master"
    )
    dleger_group: str | None = setting("dLegerGroup", None, meaning="name of the DLedger group, usually brokerName")
    dleger_peers: str | None = setting(
        "dLegerPeers", None, meaning="members of the group: n0-host:port;n1-host:port;..."
    )
    dleger_self_id: str | None = setting(
        "dLegerSelfId", None, meaning="which member of the group this broker is; as a slave its id is that number + 1"
    )
    preferred_leader_id: str | None = changeable_setting(
        "preferredLeaderId", None, meaning="members that should lead the group if they can, separated by ';'"
    )
    enable_batch_push: bool = ignored_setting(
        "enableBatchPush",
        False,
        meaning="members of TrioMQ push batches in any case; has no effect",
        shown_as="isEnableBatchPush",
    )
    enable_schedule_message_stats: bool = changeable_setting(
        "enableScheduleMessageStats", True, meaning="count delivered delay messages in the statistics"
    )
    enable_lmq: bool = setting("enableLmq", False, meaning="light message queues: separate offsets, %LMQ% handling")
    enable_multi_dispatch: bool = setting(
        "enableMultiDispatch", False, meaning="dispatch one message to several %LMQ% queues"
    )
    max_lmq_consume_queue_num: int = ignored_setting("maxLmqConsumeQueueNum", 20_000)
    enable_schedule_async_deliver: bool = changeable_setting(
        "enableScheduleAsyncDeliver", False, meaning="asynchronous delivery of delay messages"
    )
    schedule_async_deliver_max_pending_limit: int = ignored_setting("scheduleAsyncDeliverMaxPendingLimit", 2000)
    schedule_async_deliver_max_resend_num_to_block: int = ignored_setting("scheduleAsyncDeliverMaxResendNum2Blocked", 3)
