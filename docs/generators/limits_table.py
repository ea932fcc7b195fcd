"""Tables of everything that a peer can choose, with its bound: docs/internals/limits.md.

What is in headers and bodies comes from their declarations (declared_bounds.py). What a processor or a table bounds is
a constant of its module; CONSTANTS says what it bounds and which test reaches it. A taste test fails for a constant
`MAX_...` that is neither there nor in NOT_CHOSEN, and for a test that does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from docs.generators.declared_bounds import Declared, declared, records
from triomq.protocol.codes import RequestCode

ROOMS = ("protocol", "http2", "grpc_front", "remoting", "broker", "namesrv")


@dataclass(frozen=True)
class Constant:
    """A bound that a module declares. `key`: the setting that holds it, if an operator may change it; then the constant
    is the default."""

    module: str
    name: str
    what: str
    beyond: str
    test: str
    key: str = ""

    @property
    def value(self) -> int:
        """Return the number in the code."""
        found: int = getattr(import_module(f"triomq.{self.module}"), self.name)
        return found


_HPACK = "tests/http2/test_http2_hpack.py::"
_HTTP2 = "tests/http2/test_http2_server_side.py::"
_FLOODS = "tests/http2/test_http2_floods.py::"
_CLIENTS = "tests/broker/test_broker_client_processors.py::"
_CLIENT_TABLES = "tests/broker/test_broker_client_tables.py::"
_KEPT = "tests/broker/test_broker_kept_tables.py::"
_FILTERS = "tests/broker/test_broker_filter_bounds.py::"
_REGISTRATION = "tests/protocol/test_protocol_registration.py::"
_BOUNDS = "tests/broker/test_broker_bounds.py::"
_BODIES = "tests/protocol/test_protocol_bodies.py::"
_FASTJSON = "tests/protocol/test_protocol_fastjson.py::"
_KV = "tests/namesrv/test_namesrv_kv_config.py::"

CONSTANTS: tuple[Constant, ...] = (
    Constant("protocol.frame", "MAX_FRAME_BYTES", "bytes of a frame", "the connection is closed",
             "tests/protocol/test_protocol_frame_decoder.py::test_what_is_no_frame_is_refused_with_the_reason",
             "frameMaxLength"),
    Constant("protocol.frame", "MAX_REQUEST_HEADER_BYTES", "bytes of the header of a request",
             "the connection is closed",
             "tests/protocol/test_protocol_frame_decoder.py::test_a_header_longer_than_the_limit_is_refused"),
    Constant("protocol.properties", "MAX_PROPERTIES_BYTES", "bytes of the properties of a message",
             "refused as MESSAGE_ILLEGAL", _BOUNDS + "test_properties_beyond_the_longest_are_refused"),
    Constant("protocol.record", "MAX_TOPIC_BYTES", "bytes of the topic of a stored message", "refused",
             _KEPT + "test_a_topic_name_has_its_longest"),
    Constant("protocol.bodies.base", "MAX_LENIENT_BYTES", "bytes of a body that is not standard JSON", "refused",
             "tests/protocol/test_protocol_bounds.py::test_a_text_that_is_not_standard_json_is_read_up_to_a_length"),
    Constant("protocol.java_properties", "MAX_REQUEST_BYTES", "bytes of an update of the configuration", "refused",
             "tests/protocol/test_protocol_java_properties.py::test_the_text_of_a_request_has_its_longest"),
    Constant("protocol.settings", "MAX_TEXT_CHARACTERS", "characters of the value of a setting", "refused",
             "tests/protocol/test_protocol_settings.py::test_the_largest_values_are_taken"),
    Constant("protocol.bodies.fastjson_reader", "MAX_DEPTH", "depth of JSON", "refused",
             _FASTJSON + "test_nesting_is_bounded"),
    Constant("protocol.bodies.fastjson_reader", "MAX_EXPANDED_NODES", "values that JSON references expand to",
             "refused", _FASTJSON + "test_references_cannot_explode"),
    Constant("protocol.bodies.registration", "MAX_INFLATED_BYTES", "bytes of a compressed registration, inflated",
             "refused", _REGISTRATION + "test_a_compressed_registration_inflates_to_a_bounded_size"),
    Constant("protocol.bodies.registration", "MAX_REGISTERED_TOPICS", "topics of a registration", "refused",
             _REGISTRATION + "test_a_registration_has_a_bounded_number_of_topics"),
    Constant("protocol.bodies.registration", "MAX_LENIENT_REGISTRATION_BYTES",
             "bytes of a registration that is not standard JSON", "refused",
             _REGISTRATION + "test_a_registration_that_is_not_standard_json_is_short"),
    Constant("protocol.bodies.registration", "MAX_PIECE_BYTES", "bytes of a line of a compressed registration",
             "refused", _REGISTRATION + "test_a_piece_of_a_compressed_registration_is_bounded"),
    Constant("broker.processors.client", "MAX_HEARTBEAT_BYTES", "bytes of a heartbeat", "refused as SYSTEM_BUSY",
             _CLIENTS + "test_a_heartbeat_beyond_a_limit_registers_nothing"),
    Constant("broker.processors.client", "MAX_SUBSCRIPTIONS", "subscriptions of one heartbeat",
             "refused as SYSTEM_BUSY", _CLIENTS + "test_a_heartbeat_beyond_a_limit_registers_nothing"),
    Constant("broker.processors.queue_locks", "MAX_QUEUES", "queues of one lock request", "refused as SYSTEM_BUSY",
             _CLIENTS + "test_a_lock_request_beyond_a_limit_locks_nothing"),
    Constant("broker.processors.queue_locks", "MAX_BODY_BYTES", "bytes of one lock request", "refused as SYSTEM_BUSY",
             _CLIENTS + "test_a_long_lock_request_is_refused_before_it_is_decoded"),
    Constant("broker.processors.pull", "MAX_WAIT_MS", "ms for which a pull is held", "clamped",
             "tests/broker/test_broker_long_polling.py::test_no_pull_is_held_longer_than_the_longest_hold"),
    Constant("broker.processors.consume_admin", "MAX_QUEUE_ENTRIES", "entries of one query of a consume queue",
             "clamped", _BOUNDS + "test_a_query_for_queue_entries_is_clamped"),
    Constant("broker.processors.topic_admin", "MAX_PERM", "permission bits of a topic", "refused",
             "tests/broker/test_broker_admin_processors.py::test_topic_update_refusals"),
    Constant("broker.filters.sql92", "MAX_EXPRESSION_CHARACTERS", "characters of an expression", "refused",
             _FILTERS + "test_an_expression_that_is_too_long_is_refused"),
    Constant("broker.filters.sql92", "MAX_DEPTH", "depth of an SQL92 expression", "refused",
             "tests/broker/test_broker_sql92.py::test_refusals_say_where_and_why"),
    Constant("broker.filters.sql92", "MAX_CHAINED", "comparisons that stand behind another one", "refused",
             "tests/broker/test_broker_sql92.py::test_refusals_say_where_and_why"),
    Constant("broker.filters.selection", "MAX_KEPT_CHARACTERS", "characters of expressions whose filters are kept",
             "the one used longest ago is forgotten",
             _FILTERS + "test_compiled_filters_are_kept_up_to_a_number_of_characters"),
    Constant("broker.tables.topics", "MAX_TOPICS", "topics of a broker", "refused",
             _KEPT + "test_topic_delete_limit_and_replacement"),
    Constant("broker.tables.topics", "MAX_QUEUES", "queues of one topic, or of the retry topic of a group", "refused",
             _BOUNDS + "test_a_group_with_too_many_retry_queues_is_refused"),
    Constant("broker.tables.topics", "MAX_TABLE_BYTES", "bytes of the table of topics", "refused",
             _KEPT + "test_a_topic_file_above_the_limit_is_kept_and_takes_no_more", "maxTopicTableBytes"),
    Constant("broker.tables.groups", "MAX_GROUPS", "subscription groups of a broker", "refused",
             _KEPT + "test_group_changes"),
    Constant("broker.tables.groups", "MAX_TABLE_BYTES", "bytes of the table of groups", "refused",
             _KEPT + "test_the_table_of_groups_never_outgrows_what_one_frame_carries", "maxGroupTableBytes"),
    Constant("broker.tables.offsets", "MAX_ENTRIES", "pairs of a topic and a group with offsets", "refused",
             _KEPT + "test_offset_limits"),
    Constant("broker.tables.offsets", "MAX_QUEUES_PER_ENTRY", "queues with an offset, of a topic and a group",
             "refused", _KEPT + "test_offset_limits"),
    Constant("broker.tables.offsets", "MAX_TABLE_BYTES", "bytes of the table of offsets", "refused",
             _KEPT + "test_an_offset_file_above_the_limit_is_kept_and_takes_no_more", "maxOffsetTableBytes"),
    Constant("broker.tables.producers", "MAX_GROUPS", "producer groups online", "refused",
             _CLIENT_TABLES + "test_producer_limits"),
    Constant("broker.tables.producers", "MAX_CHANNELS", "memberships in producer groups", "refused",
             _CLIENT_TABLES + "test_producer_limits"),
    Constant("broker.tables.consumers", "MAX_GROUPS", "consumer groups online", "refused",
             _CLIENT_TABLES + "test_consumer_limits"),
    Constant("broker.tables.consumers", "MAX_CHANNELS", "memberships in consumer groups", "refused",
             _CLIENT_TABLES + "test_consumer_limits"),
    Constant("broker.tables.consumers", "MAX_TOPICS_PER_GROUP", "subscriptions of one group", "refused",
             _CLIENT_TABLES + "test_consumer_limits"),
    Constant("broker.tables.queue_locks", "MAX_LOCKS", "locked queues", "expired locks leave, then refused",
             _CLIENT_TABLES + "test_full_lock_table_sweeps_expired_locks_before_it_refuses"),
    Constant("broker.tables.filters", "MAX_FILTERS", "registered SQL92 filters", "refused",
             "tests/broker/test_broker_filters.py::test_filter_limit"),
    Constant("broker.tables.filters", "MAX_CHARACTERS", "characters of registered SQL92 filters", "refused",
             _FILTERS + "test_the_expressions_of_heartbeats_are_bounded_in_all"),
    Constant("broker.metrics.stats", "MAX_FLOWS", "counters by topic, group or queue", "counted no more by name",
             "tests/broker/test_broker_stats.py::test_the_number_of_flows_is_bounded"),
    Constant("broker.transaction_check", "MAX_OPS_HELD", "ends of transactions held during a check",
             "the check goes on next time",
             "tests/broker/test_broker_transaction_check.py::"
             "test_ops_of_half_messages_before_the_start_are_held_up_to_a_bound"),
    Constant("broker.producer_checks", "MAX_UNASKED_GROUPS", "groups without a producer to ask, counted by name",
             "counted without a name",
             "tests/broker/test_broker_transactions.py::test_groups_that_are_gone_are_counted_by_name_up_to_a_bound"),
    Constant("broker.acl.accounts", "MAX_RESOURCES", "permissions of one account", "refused",
             "tests/broker/test_broker_acl_files.py::"
             "test_an_account_has_one_permission_for_each_resource_up_to_the_bound"),
    Constant("broker.acl.addresses", "MAX_ADDRESSES_IN_LIST", "addresses in one pattern", "refused",
             "tests/broker/test_broker_acl.py::test_a_list_of_addresses_has_its_longest"),
    Constant("broker.acl.failed_signatures", "MAX_PAIRS", "pairs of an address and an account that failed to sign",
             "the oldest is forgotten", "tests/broker/test_broker_failed_signatures.py::test_the_table_is_bounded"),
    Constant("broker.acl.bound_signatures", "MAX_SEEN", "signatures that are remembered", "the oldest is forgotten",
             "tests/broker/test_broker_bound_signatures.py::test_the_table_of_requests_is_bounded"),
    Constant("broker.acl.bound_signatures", "MAX_SKEW_MS", "ms between a signature's clock and the broker's",
             "refused", "tests/broker/test_broker_bound_signatures.py::test_a_request_of_another_time_is_refused"),
    Constant("broker.quotas.quotas", "MAX_PEERS", "addresses, accounts and groups whose use is remembered",
             "the one idle for longest is forgotten",
             "tests/broker/test_broker_quota_peers.py::"
             "test_as_many_names_are_remembered_as_there_is_room_for_and_the_idle_ones_go_first"),
    Constant("broker.quotas.overrides", "MAX_OVERRIDES", "quotas of single names", "refused",
             "tests/broker/test_broker_quota_values.py::test_the_number_of_overrides_has_a_bound"),
    Constant("broker.quotas.overrides", "MAX_NAME", "characters of a name that has a quota", "refused",
             "tests/broker/test_broker_quota_values.py::test_an_entry_that_cannot_be_read_is_refused_and_nothing_changes"),
    Constant("broker.quotas.allowance", "MAX_TEXT", "characters of a quota", "refused",
             "tests/broker/test_broker_quota_values.py::test_an_allowance_that_cannot_be_read_is_refused_with_the_reason"),
    Constant("broker.quotas.allowance", "MAX_LIMIT", "bytes or messages a second of a quota", "refused",
             "tests/broker/test_broker_quota_values.py::test_an_allowance_that_cannot_be_read_is_refused_with_the_reason"),
    Constant("broker.replication.frames", "MAX_TAKEN_BYTES", "bytes of one transfer of a master to its slave",
             "the link is closed",
             "tests/replication/test_replication_frames.py::test_what_is_no_transfer_is_told"),
    Constant("grpc_front.messages", "MAX_MESSAGES_AT_ONCE", "messages of gRPC in one read of a call", "the call fails",
             "tests/grpc_front/test_grpc_front_messages.py::test_the_messages_of_one_read_are_bounded"),
    Constant("http2.frames", "MAX_FRAME_BYTES", "bytes of an HTTP/2 frame", "the connection is closed",
             _HTTP2 + "test_a_fault_of_the_connection_ends_it_with_its_reason"),
    Constant("http2.frames", "MAX_WINDOW", "bytes of a window of HTTP/2", "the stream or the connection is closed",
             _HTTP2 + "test_a_fault_in_one_stream_leaves_the_others"),
    Constant("http2.header_block", "MAX_HEADER_BLOCK_BYTES", "bytes of an encoded header block of HTTP/2",
             "the connection is closed", _FLOODS + "test_a_header_block_has_a_length"),
    Constant("http2.header_block", "MAX_HEADER_FRAMES", "frames of a header block of HTTP/2",
             "the connection is closed", _FLOODS + "test_a_header_block_has_a_number_of_frames"),
    Constant("http2.hpack", "MAX_FIELD_LIST_BYTES", "bytes of the decoded header fields of an HTTP/2 request",
             "the connection is closed",
             _HPACK + "test_a_small_block_that_names_a_long_field_again_and_again_is_refused"),
    Constant("http2.hpack", "_MAX_NUMBER_BYTES", "bytes that continue a number of a header block",
             "the connection is closed", _HPACK + "test_a_block_that_is_none_is_refused"),
    Constant("http2.hpack", "_MAX_SIZE_UPDATES", "changes of the table's size in one header block",
             "the connection is closed", _HPACK + "test_a_block_that_is_none_is_refused"),
    Constant("http2.patience", "MAX_IDLE_FRAMES", "HTTP/2 frames in a burst that achieve nothing",
             "the connection is closed", _FLOODS + "test_frames_that_achieve_nothing_come_up_to_a_number"),
    Constant("broker.registration", "MAX_NAMESERVERS", "addresses of NameServers in one list", "left out",
             "tests/broker/test_broker_registration.py::test_splitting_a_list"),
    Constant("remoting.connection_tasks", "MAX_TASKS", "requests of one connection that run as tasks", "they wait",
             "tests/remoting/test_remoting_tasks.py::"
             "test_requests_beyond_the_bound_wait_in_order_and_the_socket_with_them"),
    Constant("namesrv.registration", "MAX_FILTER_SERVERS", "filter servers of one broker", "refused",
             "tests/namesrv/test_namesrv_processor.py::test_a_registration_with_a_name_too_long_is_refused"),
    Constant("namesrv.processor", "MAX_VERSION_BYTES", "bytes of the data version that a broker asks about", "refused",
             "tests/namesrv/test_namesrv_processor.py::test_a_data_version_is_short"),
    Constant("namesrv.processor", "MAX_KEPT_ANSWERS", "encoded routes that are kept", "made again when asked for",
             "tests/namesrv/test_namesrv_processor.py::test_encoded_routes_are_kept_up_to_a_size"),
    Constant("namesrv.processor", "MAX_KEPT_BYTES", "bytes of encoded routes that are kept",
             "made again when asked for",
             "tests/namesrv/test_namesrv_processor.py::test_encoded_routes_are_kept_up_to_a_size"),
    Constant("namesrv.kv_config", "MAX_NAME_LENGTH", "characters of a namespace or a key", "refused",
             _KV + "test_a_text_that_is_too_long_is_refused"),
    Constant("namesrv.kv_config", "MAX_VALUE_LENGTH", "characters of a value", "refused",
             _KV + "test_a_text_that_is_too_long_is_refused"),
    Constant("namesrv.kv_config", "MAX_TABLE_BYTES", "bytes of the key-value table", "refused",
             _KV + "test_the_table_is_bounded", "maxKvBytes"),
)  # fmt: skip

NOT_CHOSEN = {
    "broker.acl.access_table.MAX_FILES", "broker.acl.acl_file.MAX_FILE_BYTES", "broker.acl.spelling.MAX_REPORTED",
    "broker.filters.conditions.MAX_CONDITION_BYTES", "broker.filters.conditions.MAX_NAMES",
    "broker.filters.conditions.MAX_STACK", "broker.filters.message_filter.MAX_SORTED_CODES",
    "grpc_front.status.MAX_MESSAGE_BYTES", "broker.quotas.allowance.MAX_DIGITS",
    "broker.replication.ha_tls.MAX_NAMES_SHOWN",
    "protocol.secret_text.MAX_SECRET_BYTES", "remoting.certificates.MAX_FILE_BYTES",
    "broker.hooks.MAX_OPEN_SENDS", "broker.metrics.stats_log.MAX_LINES", "broker.processors.send.MAX_RECONSUME_VERSION",
    "broker.registration_request.MAX_PLAIN_BYTES", "broker.replication.frames.MAX_SENT_BYTES",
    "broker.replication.frames._MAX_PLACES", "broker.replication.master_account.MAX_FILE_BYTES",
    "broker.replication.slave_access.MAX_HOSTS", "broker.tables.topics.MAX_DELETED",
    "broker.delay.MAX_DIGITS", "broker.transaction_check.MAX_RUN_MS", "broker.transaction_records.MAX_DIGITS",
    "broker.undeliverable.MAX_FACT_CHARACTERS",
    "protocol.compression.MAX_DECOMPRESSED_BYTES", "protocol.property_names.MAX_OFFSET",
    "protocol.property_names.MAX_RECONSUME_TIMES", "remoting.client.MAX_ADDRESSES",
    "remoting.http_get.MAX_RESPONSE_BYTES", "remoting.poller.MAX_EVENTS",
}  # fmt: skip
"""Constants that bound the operator's own files, work of the server's own, or a client. No peer chooses what they
bound; a filter beyond those of `broker.filters` is valid, and evaluated in Python."""


@dataclass(frozen=True)
class SettingBound:
    """A bound that only a setting holds."""

    key: str
    what: str
    beyond: str
    test: str


_ADMISSION = "tests/remoting/test_remoting_admission.py::"

SETTINGS: tuple[SettingBound, ...] = (
    SettingBound("serverMaxConnections", "connections", "the oldest silent one makes room, or it is closed",
                 _ADMISSION + "test_the_keys_set_the_limits"),
    SettingBound("serverMaxConnectionsPerAddress", "connections of one address", "closed",
                 _ADMISSION + "test_one_address_does_not_take_all_connections"),
    SettingBound("serverSilentSeconds", "seconds that a connection may say nothing", "closed",
                 _ADMISSION + "test_a_peer_that_says_nothing_is_closed"),
    SettingBound("serverChannelMaxIdleTimeSeconds", "seconds between two requests", "closed",
                 "tests/remoting/test_remoting_connections.py::test_a_silent_connection_is_closed"),
    SettingBound("maxRequestBytes", "bytes that all clients make the process hold", "they wait, or leave",
                 "tests/remoting/test_remoting_memory.py::"
                 "test_long_frames_are_read_up_to_half_of_the_budget_and_the_next_wait"),
    SettingBound("maxMessageSize", "bytes of a message", "refused as MESSAGE_ILLEGAL",
                 "tests/store/test_store_message_store.py::test_what_is_refused"),
    SettingBound("maxMessagesPerBatch", "messages of a batch", "refused as MESSAGE_ILLEGAL",
                 _FILTERS + "test_a_batch_of_very_many_messages_is_refused"),
    SettingBound("maxGroupsPerClient", "groups of one client, in a heartbeat and in all", "refused as SYSTEM_BUSY",
                 _CLIENTS + "test_a_heartbeat_beyond_a_limit_registers_nothing"),
    SettingBound("pullThreadPoolQueueCapacity", "pulls that are held", "those of the greediest leave",
                 "tests/broker/test_broker_long_polling.py::"
                 "test_in_a_full_pool_the_oldest_pulls_of_who_holds_the_most_make_room"),
    SettingBound("haMaxConnections", "connections of slaves", "strangers make room, or it is closed",
                 "tests/replication/test_replication_access.py::test_silent_strangers_do_not_keep_a_slave_out"),
    SettingBound("maxTopics", "topics at a NameServer", "the registration is refused as a whole",
                 "tests/namesrv/test_namesrv_routes.py::test_a_full_table_refuses_as_a_whole"),
    SettingBound("maxRoutes", "pairs of a topic and a broker at a NameServer",
                 "the registration is refused as a whole",
                 "tests/namesrv/test_namesrv_routes.py::"
                 "test_routes_are_bounded_whatever_topics_and_brokers_they_are_of"),
    SettingBound("maxBrokerAddresses", "brokers, names of brokers and clusters at a NameServer",
                 "the registration is refused as a whole",
                 "tests/namesrv/test_namesrv_routes.py::test_a_registration_beyond_a_limit_changes_nothing"),
    SettingBound("maxKvEntries", "key-value entries at a NameServer", "refused", _KV + "test_the_table_is_bounded"),
)  # fmt: skip


def request_limits() -> str:
    """Return a table of every field of a header or body that a peer sends."""
    rows = ["| request, field | what the peer chooses | bound | key | beyond | test |", "|---|---|---|---|---|---|"]
    for code, what, record in records():
        for one in declared(record):
            rows.append(_row(RequestCode(code), what, one))
    return "\n".join(rows)


def other_limits() -> str:
    """Return a table of what processors and tables bound, and of what settings bound."""
    rows = ["| what the peer chooses | bound | key | beyond | test |", "|---|---|---|---|---|"]
    for one in CONSTANTS:
        rows.append(f"| {one.what} | {one.value:,} | {_code(one.key)} | {one.beyond} | {_test(one.test)} |")
    for setting in SETTINGS:
        rows.append(f"| {setting.what} | | {_code(setting.key)} | {setting.beyond} | {_test(setting.test)} |")
    return "\n".join(rows)


def named_tests() -> set[str]:
    """Return every test that a bound names."""
    fields = {one.test for _, _, record in records() for one in declared(record)}
    return fields | {one.test for one in CONSTANTS} | {one.test for one in SETTINGS}


def named_keys() -> set[str]:
    """Return every setting that a bound names."""
    fields = {one.bound.key for _, _, record in records() for one in declared(record) if one.bound is not None}
    return (fields | {one.key for one in CONSTANTS} | {one.key for one in SETTINGS}) - {""}


def _row(code: RequestCode, what: str, one: Declared) -> str:
    bound = one.bound
    assert bound is not None, f"{one.record.__name__}.{one.path} has no bound"
    place = f"{code.name} ({code}), {what}: `{one.path}`"
    limit = one.limit if bound.key not in one.limit or not bound.key else "see the key"
    return f"| {place} | {bound.what} | {limit} | {_code(bound.key)} | {bound.beyond} | {_test(one.test)} |"


def _test(name: str) -> str:
    return f"`{name.rpartition('::')[2]}`"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
