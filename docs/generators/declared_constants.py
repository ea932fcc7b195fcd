"""The bounds that are constants of processors and tables, or settings. CONSTANTS and SETTINGS say what they bound,
which test reaches them, and why no client that works is refused.

A taste test fails for a constant `MAX_...` that is neither there nor in NOT_CHOSEN.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Final

from triomq.protocol.bounds import BY_HAND, IN_FRAME, PROPERTY, SUBSCRIBED

ROOMS = ("protocol", "http2", "grpc_front", "remoting", "broker", "namesrv")


@dataclass(frozen=True)
class Constant:
    """A bound that a module declares. `name`: module and constant. `key`: the setting that holds it, if an operator may
    change it; then the constant is the default. `clients` as in protocol/bounds.py."""

    name: str
    what: str
    beyond: str
    test: str
    key: str = ""
    clients: str = ""

    @property
    def value(self) -> int:
        """Return the number in the code."""
        module, _, constant = self.name.rpartition(".")
        found: int = getattr(import_module(f"triomq.{module}"), constant)
        return found


_HEARTBEAT: Final = "far beyond one group of a client of Java, Go or C++, with its topic and its retry topic"
_FRAME: Final = "RocketMQ's own: a slave copies the table in one frame of 16 MiB"
_TOPICS: Final = "RocketMQ's own: brokers register all topics in one frame of 16 MiB, which has room for no more"
_CHANNELS: Final = "far beyond two groups of each of 50,000 connections"
_SMALL_HEADERS: Final = "far beyond 8 KiB, which Java's gRPC takes of headers, in one frame"

_HPACK = "tests/http2/test_http2_hpack.py::"
_HTTP2 = "tests/http2/test_http2_server_side.py::"
_FLOODS = "tests/http2/test_http2_floods.py::"
_CLIENTS = "tests/broker/test_broker_client_processors.py::"
_CLIENT_TABLES = "tests/broker/test_broker_client_tables.py::"
_KEPT = "tests/broker/test_broker_kept_tables.py::"
_FILTERS = "tests/broker/test_broker_filter_bounds.py::"
_REGISTRATION = "tests/protocol/test_protocol_registration.py::"
_BOUNDS = "tests/broker/test_broker_bounds.py::"
_ASSIGNMENTS = "tests/broker/test_broker_assignments.py::"
_POP = "tests/broker/test_broker_pop.py::"
_BODIES = "tests/protocol/test_protocol_bodies.py::"
_FASTJSON = "tests/protocol/test_protocol_fastjson.py::"
_KV = "tests/namesrv/test_namesrv_kv_config.py::"

CONSTANTS: tuple[Constant, ...] = (
    Constant(
        "protocol.frame.MAX_FRAME_BYTES",
        "bytes of a frame",
        "the connection is closed",
        "tests/protocol/test_protocol_frame_decoder.py::test_what_is_no_frame_is_refused_with_the_reason",
        "frameMaxLength",
        clients=IN_FRAME,
    ),
    Constant(
        "protocol.frame.MAX_REQUEST_HEADER_BYTES",
        "bytes of the header of a request",
        "the connection is closed",
        "tests/protocol/test_protocol_frame_decoder.py::test_a_header_longer_than_the_limit_is_refused",
        clients="far beyond 32,767 bytes of properties, the longest part of any header",
    ),
    Constant(
        "protocol.properties.MAX_PROPERTIES_BYTES",
        "bytes of the properties of a message",
        "refused as MESSAGE_ILLEGAL",
        _BOUNDS + "test_properties_beyond_the_longest_are_refused",
        clients=PROPERTY,
    ),
    Constant(
        "protocol.record.MAX_TOPIC_BYTES",
        "bytes of the topic of a stored message",
        "refused",
        _KEPT + "test_a_topic_name_has_its_longest",
        clients="the format's own: the length of a stored topic is a signed byte",
    ),
    Constant(
        "protocol.bodies.base.MAX_LENIENT_BYTES",
        "bytes of a body that is not standard JSON",
        "refused",
        "tests/protocol/test_protocol_bounds.py::test_a_text_that_is_not_standard_json_is_read_up_to_a_length",
        clients="far beyond some KiB: clients write such text only of the few queues or groups of one client",
    ),
    Constant(
        "protocol.java_properties.MAX_REQUEST_BYTES",
        "bytes of an update of the configuration",
        "refused",
        "tests/protocol/test_protocol_java_properties.py::test_the_text_of_a_request_has_its_longest",
        clients="far beyond all settings of a broker with their values, 20 KiB",
    ),
    Constant(
        "protocol.settings.MAX_TEXT_CHARACTERS",
        "characters of the value of a setting",
        "refused",
        "tests/protocol/test_protocol_settings.py::test_the_largest_values_are_taken",
        clients=BY_HAND,
    ),
    Constant(
        "protocol.bodies.fastjson_reader.MAX_DEPTH",
        "depth of JSON",
        "refused",
        _FASTJSON + "test_nesting_is_bounded",
        clients="far beyond the six levels of RocketMQ's deepest body",
    ),
    Constant(
        "protocol.bodies.fastjson_reader.MAX_EXPANDED_NODES",
        "values that JSON references expand to",
        "refused",
        _FASTJSON + "test_references_cannot_explode",
        clients="far beyond the 60,000 values that a body of 128 KiB holds",
    ),
    Constant(
        "protocol.bodies.registration.MAX_INFLATED_BYTES",
        "bytes of a compressed registration, inflated",
        "refused",
        _REGISTRATION + "test_a_compressed_registration_inflates_to_a_bounded_size",
        clients="far beyond the 16 MiB of a registration without compression, RocketMQ's default",
    ),
    Constant(
        "protocol.bodies.registration.MAX_REGISTERED_TOPICS",
        "topics of a registration",
        "refused",
        _REGISTRATION + "test_a_registration_has_a_bounded_number_of_topics",
        clients="far beyond the 110,000 topics that a registration without compression has in a frame",
    ),
    Constant(
        "protocol.bodies.registration.MAX_LENIENT_REGISTRATION_BYTES",
        "bytes of a registration that is not standard JSON",
        "refused",
        _REGISTRATION + "test_a_registration_that_is_not_standard_json_is_short",
        clients="far beyond 0 bytes: RocketMQ's brokers register in standard JSON",
    ),
    Constant(
        "protocol.bodies.registration.MAX_PIECE_BYTES",
        "bytes of a line of a compressed registration",
        "refused",
        _REGISTRATION + "test_a_piece_of_a_compressed_registration_is_bounded",
        clients="far beyond the 200 bytes of a topic, which a line describes",
    ),
    Constant(
        "broker.processors.client.MAX_HEARTBEAT_BYTES",
        "bytes of a heartbeat",
        "refused as SYSTEM_BUSY",
        _CLIENTS + "test_a_heartbeat_beyond_a_limit_registers_nothing",
        clients=_HEARTBEAT,
    ),
    Constant(
        "broker.processors.client.MAX_SUBSCRIPTIONS",
        "subscriptions of one heartbeat",
        "refused as SYSTEM_BUSY",
        _CLIENTS + "test_a_heartbeat_beyond_a_limit_registers_nothing",
        clients=_HEARTBEAT,
    ),
    Constant(
        "broker.processors.queue_locks.MAX_QUEUES",
        "queues of one lock request",
        "refused as SYSTEM_BUSY",
        _CLIENTS + "test_a_lock_request_beyond_a_limit_locks_nothing",
        clients="far beyond one entry for each queue of a topic on one broker, 4 by default of Java clients",
    ),
    Constant(
        "broker.processors.queue_locks.MAX_BODY_BYTES",
        "bytes of one lock request",
        "refused as SYSTEM_BUSY",
        _CLIENTS + "test_a_long_lock_request_is_refused_before_it_is_decoded",
        clients="far beyond 100 bytes for each of these queues",
    ),
    Constant(
        "broker.processors.ack.MAX_ACKS",
        "acknowledgements of one request",
        "refused as INVALID_PARAMETER",
        _POP + "test_a_batch_acknowledges_what_its_bits_say",
        clients="far beyond one for each queue of the receives that a client acknowledges together",
    ),
    Constant(
        "broker.processors.in_flight.MAX_QUEUES",
        "queues whose messages in flight one response tells",
        "left out, and counted",
        "tests/broker/test_broker_pop_release.py::test_a_response_has_so_many_queues_and_counts_the_others",
        clients="far beyond one for each queue of each group that receives by POP; mqadmin can ask for one group",
    ),
    Constant(
        "broker.processors.pop.MAX_MESSAGES",
        "messages of one receive",
        "refused as INVALID_PARAMETER",
        _POP + "test_a_receive_that_asks_for_what_it_may_not_is_refused",
        clients="RocketMQ's own: PopMessageProcessor takes no more",
    ),
    Constant(
        "broker.processors.pop.MAX_INVISIBLE_MS",
        "ms for which a received message is invisible",
        "refused as INVALID_PARAMETER",
        _POP + "test_a_receive_that_asks_for_what_it_may_not_is_refused",
        clients="RocketMQ's own: its proxy takes 12 h at most, and its push consumer 300 s",
    ),
    Constant(
        "broker.processors.pop.MAX_WAIT_MS",
        "ms for which a receive is held",
        "clamped",
        _POP + "test_no_receive_is_held_longer_than_the_longest_hold",
        clients="far beyond 20,000 ms, the longest default of Java's consumers",
    ),
    Constant(
        "broker.processors.pull.MAX_WAIT_MS",
        "ms for which a pull is held",
        "clamped",
        "tests/broker/test_broker_long_polling.py::test_no_pull_is_held_longer_than_the_longest_hold",
        clients="far beyond 20,000 ms, the longest default of Java's consumers",
    ),
    Constant(
        "broker.processors.consume_admin.MAX_QUEUE_ENTRIES",
        "entries of one query of a consume queue",
        "clamped",
        _BOUNDS + "test_a_query_for_queue_entries_is_clamped",
        clients="far beyond 10, the default of mqadmin queryCq",
    ),
    Constant(
        "broker.processors.topic_admin.MAX_PERM",
        "permission bits of a topic",
        "refused",
        "tests/broker/test_broker_admin_processors.py::test_topic_update_refusals",
        clients="the format's own: three bits",
    ),
    Constant(
        "broker.filters.limits.MAX_EXPRESSION_CHARACTERS",
        "characters of an expression",
        "refused",
        _FILTERS + "test_an_expression_that_is_too_long_is_refused",
        clients=SUBSCRIBED,
    ),
    Constant(
        "broker.filters.sql92.MAX_DEPTH",
        "depth of an SQL92 expression",
        "refused",
        "tests/broker/test_broker_sql92.py::test_refusals_say_where_and_why",
        clients=SUBSCRIBED,
    ),
    Constant(
        "broker.filters.sql92.MAX_CHAINED",
        "comparisons that stand behind another one",
        "refused",
        "tests/broker/test_broker_sql92.py::test_refusals_say_where_and_why",
        clients=SUBSCRIBED,
    ),
    Constant(
        "broker.pulls.selection.MAX_KEPT_CHARACTERS",
        "characters of expressions whose filters are kept",
        "the one used longest ago is forgotten",
        _FILTERS + "test_compiled_filters_are_kept_up_to_a_number_of_characters",
        clients="served: the filter is compiled again",
    ),
    Constant(
        "broker.tables.topics.MAX_TOPICS",
        "topics of a broker",
        "refused",
        _KEPT + "test_topic_delete_limit_and_replacement",
        clients=_TOPICS,
    ),
    Constant(
        "broker.tables.topics.MAX_QUEUES",
        "queues of one topic, or of the retry topic of a group",
        "refused",
        _BOUNDS + "test_a_group_with_too_many_retry_queues_is_refused",
        clients="far beyond 8 queues, the default of mqadmin updateTopic",
    ),
    Constant(
        "broker.tables.topics.MAX_TABLE_BYTES",
        "bytes of the table of topics",
        "refused",
        _KEPT + "test_a_topic_file_above_the_limit_is_kept_and_takes_no_more",
        "maxTopicTableBytes",
        clients=_TOPICS,
    ),
    Constant(
        "broker.tables.groups.MAX_GROUPS",
        "subscription groups of a broker",
        "refused",
        _KEPT + "test_group_changes",
        clients=_FRAME,
    ),
    Constant(
        "broker.tables.groups.MAX_TABLE_BYTES",
        "bytes of the table of groups",
        "refused",
        _KEPT + "test_the_table_of_groups_never_outgrows_what_one_frame_carries",
        "maxGroupTableBytes",
        clients=_FRAME,
    ),
    Constant(
        "broker.tables.offsets.MAX_ENTRIES",
        "pairs of a topic and a group with offsets",
        "refused",
        _KEPT + "test_offset_limits",
        clients=_FRAME,
    ),
    Constant(
        "broker.tables.offsets.MAX_QUEUES_PER_ENTRY",
        "queues with an offset, of a topic and a group",
        "refused",
        _KEPT + "test_offset_limits",
        clients="far beyond 8 queues, the default of mqadmin updateTopic",
    ),
    Constant(
        "broker.tables.offsets.MAX_TABLE_BYTES",
        "bytes of the table of offsets",
        "refused",
        _KEPT + "test_an_offset_file_above_the_limit_is_kept_and_takes_no_more",
        "maxOffsetTableBytes",
        clients=_FRAME,
    ),
    Constant(
        "broker.tables.producers.MAX_GROUPS",
        "producer groups online",
        "refused",
        _CLIENT_TABLES + "test_producer_limits",
        clients="far beyond a group of each of 50,000 connections",
    ),
    Constant(
        "broker.tables.producers.MAX_CHANNELS",
        "memberships in producer groups",
        "refused",
        _CLIENT_TABLES + "test_producer_limits",
        clients=_CHANNELS,
    ),
    Constant(
        "broker.tables.consumers.MAX_GROUPS",
        "consumer groups online",
        "refused",
        _CLIENT_TABLES + "test_consumer_limits",
        clients="far beyond a group of each of 50,000 connections",
    ),
    Constant(
        "broker.tables.consumers.MAX_CHANNELS",
        "memberships in consumer groups",
        "refused",
        _CLIENT_TABLES + "test_consumer_limits",
        clients=_CHANNELS,
    ),
    Constant(
        "broker.tables.consumers.MAX_TOPICS_PER_GROUP",
        "subscriptions of one group",
        "refused",
        _CLIENT_TABLES + "test_consumer_limits",
        clients="far beyond a topic and its retry topic",
    ),
    Constant(
        "broker.tables.consumers.MAX_READERS_PER_GROUP",
        "queues of one group of which the dashboard knows who committed last",
        "not kept",
        "tests/broker/test_broker_dashboard_members.py::test_commits_of_strangers_and_beyond_the_bounds_are_not_kept",
        clients="served: the offset is stored all the same",
    ),
    Constant(
        "broker.tables.queue_locks.MAX_LOCKS",
        "locked queues",
        "expired locks leave, then refused",
        _CLIENT_TABLES + "test_full_lock_table_sweeps_expired_locks_before_it_refuses",
        clients="far beyond 8 queues for each of ten thousand groups that consume in order",
    ),
    Constant(
        "broker.tables.request_modes.MAX_MODES",
        "topics and groups with a request mode",
        "refused",
        _ASSIGNMENTS + "test_beyond_the_limit_only_new_modes_are_refused",
        clients="far beyond one topic for each of a thousand groups that mqadmin setConsumeMode names",
    ),
    Constant(
        "broker.nameservers.routes.MAX_ROUTES",
        "routes that a broker keeps to assign queues",
        "the one used longest ago leaves",
        _ASSIGNMENTS + "test_the_route_used_longest_ago_leaves",
        clients="far beyond the topics of the consumers that let the broker assign their queues",
    ),
    Constant(
        "broker.nameservers.routes.MAX_QUEUES",
        "queues of a topic at one broker, in a route",
        "clamped",
        _ASSIGNMENTS + "test_a_route_has_no_more_queues_than_a_topic_may_have",
        clients="far beyond 8 queues, the default of mqadmin updateTopic",
    ),
    Constant(
        "broker.tables.filters.MAX_FILTERS",
        "registered SQL92 filters",
        "refused",
        "tests/broker/test_broker_filters.py::test_filter_limit",
        clients="far beyond a filter of each of ten thousand groups; tags need none",
    ),
    Constant(
        "broker.tables.filters.MAX_CHARACTERS",
        "characters of registered SQL92 filters",
        "refused",
        _FILTERS + "test_the_expressions_of_heartbeats_are_bounded_in_all",
        clients="far beyond 100 characters of each of ten thousand groups; tags count nothing",
    ),
    Constant(
        "broker.metrics.stats.MAX_FLOWS",
        "counters by topic, group or queue",
        "counted no more by name",
        "tests/broker/test_broker_stats.py::test_the_number_of_flows_is_bounded",
        clients="served: only the counters by name lack the newest",
    ),
    Constant(
        "broker.transactions.check.MAX_OPS_HELD",
        "ends of transactions held during a check",
        "the next check continues there",
        "tests/broker/test_broker_transaction_check.py::"
        "test_ops_of_half_messages_before_the_start_are_held_up_to_a_bound",
        clients="served: the next check continues",
    ),
    Constant(
        "broker.transactions.producer_checks.MAX_UNASKED_GROUPS",
        "groups without a producer to ask, counted by name",
        "counted without a name",
        "tests/broker/test_broker_transactions.py::test_groups_that_are_gone_are_counted_by_name_up_to_a_bound",
        clients="served: only the names of the newest are missing",
    ),
    Constant(
        "broker.acl.accounts.MAX_RESOURCES",
        "permissions of one account",
        "refused",
        "tests/broker/test_broker_acl_files.py::test_an_account_has_one_permission_for_each_resource_up_to_the_bound",
        clients=BY_HAND,
    ),
    Constant(
        "broker.acl.addresses.MAX_ADDRESSES_IN_LIST",
        "addresses in one pattern",
        "refused",
        "tests/broker/test_broker_acl.py::test_a_list_of_addresses_has_its_longest",
        clients=BY_HAND,
    ),
    Constant(
        "broker.acl.failed_signatures.MAX_PAIRS",
        "pairs of an address and an account that failed to sign",
        "the oldest is forgotten",
        "tests/broker/test_broker_failed_signatures.py::test_the_table_is_bounded",
        clients="served: the oldest is forgotten",
    ),
    Constant(
        "broker.acl.bound_signatures.MAX_SEEN",
        "signatures that are remembered",
        "the oldest is forgotten",
        "tests/broker/test_broker_bound_signatures.py::test_the_table_of_requests_is_bounded",
        clients="served: the oldest is forgotten",
    ),
    Constant(
        "broker.acl.bound_signatures.MAX_SKEW_MS",
        "ms between a signature's clock and the broker's",
        "refused",
        "tests/broker/test_broker_bound_signatures.py::test_a_request_of_another_time_is_refused",
        clients="far beyond a second, by which clocks with NTP differ; clients of 4.9 sign no time",
    ),
    Constant(
        "protocol.outage.MAX_KEYS",
        "failures of a kind of which the last log line is remembered",
        "the oldest is forgotten",
        "tests/broker/test_broker_filters.py::test_outages_forget_the_oldest_key_at_their_bound",
        clients="served: only a log line may come again too early",
    ),
    Constant(
        "broker.quotas.quotas.MAX_PEERS",
        "addresses, accounts and groups whose use is remembered",
        "the one idle for longest is forgotten",
        "tests/broker/test_broker_quota_peers.py::"
        "test_as_many_names_are_remembered_as_there_is_room_for_and_the_idle_ones_go_first",
        clients="served: one that is forgotten begins with a full allowance",
    ),
    Constant(
        "broker.quotas.overrides.MAX_OVERRIDES",
        "quotas of single names",
        "refused",
        "tests/broker/test_broker_quota_values.py::test_the_number_of_overrides_has_a_bound",
        clients=BY_HAND,
    ),
    Constant(
        "broker.quotas.overrides.MAX_NAME",
        "characters of a name that has a quota",
        "refused",
        "tests/broker/test_broker_quota_values.py::test_an_entry_that_cannot_be_read_is_refused_and_nothing_changes",
        clients="RocketMQ's own: the longest name of a group",
    ),
    Constant(
        "broker.settings.allowance.MAX_TEXT",
        "characters of a quota",
        "refused",
        "tests/broker/test_broker_quota_values.py::test_an_allowance_that_cannot_be_read_is_refused_with_the_reason",
        clients=BY_HAND,
    ),
    Constant(
        "broker.settings.allowance.MAX_LIMIT",
        "bytes or messages a second of a quota",
        "refused",
        "tests/broker/test_broker_quota_values.py::test_an_allowance_that_cannot_be_read_is_refused_with_the_reason",
        clients=BY_HAND,
    ),
    Constant(
        "broker.spans.recorder.MAX_LINKS",
        "further sends that the span of a batch links to",
        "the others have no link",
        "tests/broker/test_broker_spans.py::test_a_batch_is_one_span_that_links_to_further_sends",
        clients="served: the batch is stored all the same",
    ),
    Constant(
        "broker.replication.frames.MAX_TAKEN_BYTES",
        "bytes of one transfer of a master to its slave",
        "the link is closed",
        "tests/replication/test_replication_frames.py::test_what_is_no_transfer_is_told",
        clients="far beyond 32 KiB, haTransferBatchSize of RocketMQ's masters",
    ),
    Constant(
        "remoting.proxy_header.MAX_LINE_BYTES",
        "bytes of a PROXY header of version 1",
        "the connection is closed",
        "tests/remoting/test_remoting_proxy_header.py::test_what_is_no_header_is_refused_with_a_reason",
        clients="served: no header of version 1 is longer",
    ),
    Constant(
        "remoting.proxy_header.MAX_HEADER_BYTES",
        "bytes of a PROXY header",
        "the connection is closed",
        "tests/remoting/test_remoting_proxy_header.py::test_what_is_no_header_is_refused_with_a_reason",
        clients="far beyond the addresses and names that load balancers send",
    ),
    Constant(
        "broker.grpc.bodies.MAX_PLAIN_BYTES",
        "bytes to which a compressed body is inflated for a gRPC client",
        "it is delivered as it is stored",
        "tests/grpc_clients/test_grpc_consumers.py::test_what_clients_of_remoting_compress_arrives_plain",
        clients="RocketMQ's own: the longest body that its clients send, 4 MiB",
    ),
    Constant(
        "broker.grpc.consuming.MAX_INFLATED_BYTES",
        "bytes by which bodies become longer in one answer to a gRPC client",
        "the rest comes with the next one",
        "tests/grpc_clients/test_grpc_consumers.py::test_bodies_that_unfold_come_in_several_answers",
        clients="served: nothing is lost",
    ),
    Constant(
        "broker.grpc.traces.MAX_WAITING",
        "lines of message traces of gRPC clients that wait to be written",
        "further ones are dropped",
        "tests/grpc_clients/test_grpc_traces.py::test_lines_that_wait_are_bounded",
        clients="served: traces only",
    ),
    Constant(
        "broker.grpc.traces.MAX_LINES",
        "lines of one message of traces of gRPC clients",
        "the rest goes into further messages",
        "tests/grpc_clients/test_grpc_traces.py::test_lines_that_wait_are_bounded",
        clients="RocketMQ's own: its clients write as many",
    ),
    Constant(
        "broker.grpc.others.MAX_BROKERS",
        "brokers whose endpoints are remembered for routes of gRPC clients",
        "all are asked again",
        "tests/grpc_clients/test_grpc_cluster.py::test_a_broker_that_said_no_endpoint_is_asked_again",
        clients="far beyond the brokers of a cluster",
    ),
    Constant(
        "broker.grpc.connection.MAX_CLIENTS",
        "gRPC clients of one connection",
        "the call is refused (TOO_MANY_REQUESTS)",
        "tests/grpc_clients/test_grpc_connections.py::test_the_clients_of_a_connection_are_bounded",
        clients="far beyond the clients of one process",
    ),
    Constant(
        "broker.grpc.connection.MAX_INCOMPLETE_MESSAGES",
        "messages of the longest size that are incomplete in one gRPC connection",
        "the call fails",
        "tests/grpc_clients/test_grpc_connections.py::test_incomplete_messages_are_bounded",
        clients="far beyond the 4 MiB of a message that clients of RocketMQ send",
    ),
    Constant(
        "broker.grpc.connection.MAX_PENDING_BYTES",
        "bytes of answers that a gRPC client takes no data for",
        "its further calls fail",
        "tests/grpc_clients/test_grpc_connections.py::test_answers_that_are_not_taken_are_bounded",
        clients="served: a client that reads grants windows as fast as it reads",
    ),
    Constant(
        "broker.grpc.messages.MAX_PROPERTIES",
        "properties of a message sent by gRPC",
        "refused",
        "tests/grpc_clients/test_grpc_producers.py::test_what_must_not_be_sent_is_refused_with_its_status",
        clients="RocketMQ's own: its proxy refuses more",
    ),
    Constant(
        "broker.grpc.messages.MAX_PROPERTIES_BYTES",
        "bytes of properties, tag and keys of a message sent by gRPC",
        "refused",
        "tests/grpc_clients/test_grpc_producers.py::test_what_must_not_be_sent_is_refused_with_its_status",
        clients="RocketMQ's own: its proxy refuses more",
    ),
    Constant(
        "broker.grpc.messages.MAX_GROUP_BYTES",
        "bytes of a message group",
        "refused",
        "tests/grpc_clients/test_grpc_producers.py::test_what_must_not_be_sent_is_refused_with_its_status",
        clients="RocketMQ's own: its proxy refuses more",
    ),
    Constant(
        "broker.grpc.messages.MAX_RECOVERY_SECONDS",
        "seconds after which a transaction is asked for (gRPC)",
        "refused",
        "tests/grpc_clients/test_grpc_producers.py::test_what_must_not_be_sent_is_refused_with_its_status",
        clients="RocketMQ's own: its proxy refuses more",
    ),
    Constant(
        "grpc_front.messages.MAX_MESSAGES_AT_ONCE",
        "messages of gRPC in one read of a call",
        "the call fails",
        "tests/grpc_front/test_grpc_front_messages.py::test_the_messages_of_one_read_are_bounded",
        clients="far beyond the one message of a unary call",
    ),
    Constant(
        "http2.frames.MAX_FRAME_BYTES",
        "bytes of an HTTP/2 frame",
        "the connection is closed",
        _HTTP2 + "test_a_fault_of_the_connection_ends_it_with_its_reason",
        clients="the format's own: SETTINGS_MAX_FRAME_SIZE of RFC 9113 unless a server raises it",
    ),
    Constant(
        "http2.frames.MAX_WINDOW",
        "bytes of a window of HTTP/2",
        "the stream or the connection is closed",
        _HTTP2 + "test_a_fault_in_one_stream_leaves_the_others",
        clients="the format's own: RFC 9113, 6.9.1",
    ),
    Constant(
        "http2.header_block.MAX_HEADER_BLOCK_BYTES",
        "bytes of an encoded header block of HTTP/2",
        "the connection is closed",
        _FLOODS + "test_a_header_block_has_a_length",
        clients=_SMALL_HEADERS,
    ),
    Constant(
        "http2.header_block.MAX_HEADER_FRAMES",
        "frames of a header block of HTTP/2",
        "the connection is closed",
        _FLOODS + "test_a_header_block_has_a_number_of_frames",
        clients=_SMALL_HEADERS,
    ),
    Constant(
        "http2.hpack.MAX_FIELD_LIST_BYTES",
        "bytes of the decoded header fields of an HTTP/2 request",
        "the connection is closed",
        _HPACK + "test_a_small_block_that_names_a_long_field_again_and_again_is_refused",
        clients=_SMALL_HEADERS,
    ),
    Constant(
        "http2.hpack._MAX_NUMBER_BYTES",
        "bytes that continue a number of a header block",
        "the connection is closed",
        _HPACK + "test_a_block_that_is_none_is_refused",
        clients="far beyond 8 KiB, which two bytes hold",
    ),
    Constant(
        "http2.hpack._MAX_SIZE_UPDATES",
        "changes of the table's size in one header block",
        "the connection is closed",
        _HPACK + "test_a_block_that_is_none_is_refused",
        clients="the format's own: RFC 7541, 4.2",
    ),
    Constant(
        "http2.patience.MAX_IDLE_FRAMES",
        "HTTP/2 frames in a burst that achieve nothing",
        "the connection is closed",
        _FLOODS + "test_frames_that_achieve_nothing_come_up_to_a_number",
        clients="far beyond a PING and an update of two windows for each response",
    ),
    Constant(
        "broker.nameservers.nameserver_list.MAX_NAMESERVERS",
        "addresses of NameServers in one list",
        "left out",
        "tests/broker/test_broker_registration.py::test_splitting_a_list",
        clients="far beyond the two or three NameServers of a cluster",
    ),
    Constant(
        "remoting.connection_tasks.MAX_TASKS",
        "requests of one connection that run as tasks",
        "they wait",
        "tests/remoting/test_remoting_tasks.py::test_requests_beyond_the_bound_wait_in_order_and_the_socket_with_them",
        clients="served: the next begins when one ends",
    ),
    Constant(
        "namesrv.registration.MAX_FILTER_SERVERS",
        "filter servers of one broker",
        "refused",
        "tests/namesrv/test_namesrv_processor.py::test_a_registration_with_a_name_too_long_is_refused",
        clients="far beyond 0 filter servers, the default of RocketMQ's brokers",
    ),
    Constant(
        "namesrv.processor.MAX_VERSION_BYTES",
        "bytes of the data version that a broker asks about",
        "refused",
        "tests/namesrv/test_namesrv_processor.py::test_a_data_version_is_short",
        clients="far beyond 100 bytes, which a data version takes",
    ),
    Constant(
        "namesrv.processor.MAX_KEPT_ANSWERS",
        "encoded routes that are kept",
        "made again when asked for",
        "tests/namesrv/test_namesrv_processor.py::test_encoded_routes_are_kept_up_to_a_size",
        clients="served: the route is encoded again",
    ),
    Constant(
        "namesrv.processor.MAX_KEPT_BYTES",
        "bytes of encoded routes that are kept",
        "made again when asked for",
        "tests/namesrv/test_namesrv_processor.py::test_encoded_routes_are_kept_up_to_a_size",
        clients="served: the route is encoded again",
    ),
    Constant(
        "namesrv.kv_config.MAX_NAME_LENGTH",
        "characters of a namespace or a key",
        "refused",
        _KV + "test_a_text_that_is_too_long_is_refused",
        clients="far beyond ORDER_TOPIC_CONFIG and a topic of 127 characters",
    ),
    Constant(
        "namesrv.kv_config.MAX_VALUE_LENGTH",
        "characters of a value",
        "refused",
        _KV + "test_a_text_that_is_too_long_is_refused",
        clients="far beyond mqadmin updateOrderConf: broker-a:8;broker-b:8 of a thousand brokers",
    ),
    Constant(
        "namesrv.kv_config.MAX_TABLE_BYTES",
        "bytes of the key-value table",
        "refused",
        _KV + "test_the_entries_have_a_size_in_all",
        "maxKvBytes",
        clients="far beyond 100 bytes for each of ten thousand ordered topics",
    ),
)

NOT_CHOSEN = {
    "broker.acl.access_table.MAX_FILES",
    "broker.acl.acl_file.MAX_FILE_BYTES",
    "broker.acl.spelling.MAX_REPORTED",
    "broker.filters.conditions.MAX_CONDITION_BYTES",
    "broker.filters.conditions.MAX_NAMES",
    "broker.filters.conditions.MAX_STACK",
    "broker.pulls.message_filter.MAX_SORTED_CODES",
    "grpc_front.status.MAX_MESSAGE_BYTES",
    "broker.settings.allowance.MAX_DIGITS",
    "remoting.link_tls.MAX_NAMES_SHOWN",
    "protocol.secret_text.MAX_SECRET_BYTES",
    "protocol.trace_records.MAX_BODY_BYTES",
    "remoting.certificates.MAX_FILE_BYTES",
    "broker.hooks.MAX_OPEN_SENDS",
    "broker.metrics.stats_log.MAX_LINES",
    "broker.processors.send.MAX_RECONSUME_VERSION",
    "broker.nameservers.registration_request.MAX_PLAIN_BYTES",
    "broker.replication.frames.MAX_SENT_BYTES",
    "broker.replication.frames._MAX_PLACES",
    "broker.replication.master_account.MAX_FILE_BYTES",
    "broker.replication.queue_ends.MAX_ROUNDS",
    "broker.replication.queue_ends.MAX_TOPICS",
    "broker.replication.slave_access.MAX_HOSTS",
    "broker.tables.filters.MAX_REASON_CHARACTERS",
    "broker.tables.topics.MAX_DELETED",
    "broker.transactions.check.MAX_RUN_MS",
    "broker.transactions.records.MAX_DIGITS",
    "broker.undeliverable.MAX_FACT_CHARACTERS",
    "protocol.compression.MAX_DECOMPRESSED_BYTES",
    "protocol.json_frame.MAX_FRAME_BYTES",
    "protocol.property_names.MAX_OFFSET",
    "protocol.property_names.MAX_RECONSUME_TIMES",
    "remoting.blocking_connection.MAX_IN_FLIGHT",
    "remoting.client.MAX_ADDRESSES",
    "remoting.http_get.MAX_RESPONSE_BYTES",
    "remoting.poller.MAX_EVENTS",
}
"""Constants that bound the operator's own files, work of the server's own, or a client. No peer chooses what they
bound; a filter beyond those of `broker.filters` is valid, and evaluated in Python."""


@dataclass(frozen=True)
class SettingBound:
    """A bound that only a setting holds. `clients` as in protocol/bounds.py."""

    key: str
    what: str
    beyond: str
    test: str
    clients: str = ""


_ADMISSION = "tests/remoting/test_remoting_admission.py::"

SETTINGS: tuple[SettingBound, ...] = (
    SettingBound(
        "serverMaxConnections",
        "connections",
        "the oldest silent one makes room, or it is closed",
        _ADMISSION + "test_the_keys_set_the_limits",
        clients="far beyond two connections of each of ten thousand clients of Java",
    ),
    SettingBound(
        "serverMaxConnectionsPerAddress",
        "connections of one address",
        "closed",
        _ADMISSION + "test_one_address_does_not_take_all_connections",
        clients="far beyond two connections of each of ten thousand clients behind one address",
    ),
    SettingBound(
        "serverSilentSeconds",
        "seconds that a connection may say nothing",
        "closed",
        _ADMISSION + "test_a_peer_that_says_nothing_is_closed",
        clients="far beyond the time to a first request: clients connect in order to send one",
    ),
    SettingBound(
        "serverChannelMaxIdleTimeSeconds",
        "seconds between two requests",
        "closed",
        "tests/remoting/test_remoting_connections.py::test_a_silent_connection_is_closed",
        clients="RocketMQ's own: 120 s, and clients send a heartbeat each 30 s",
    ),
    SettingBound(
        "maxRequestBytes",
        "bytes that all clients make the process hold",
        "they wait, or leave",
        "tests/remoting/test_remoting_memory.py::test_long_frames_are_read_up_to_half_of_the_budget_and_the_next_wait",
        clients="served: reading waits until others are done",
    ),
    SettingBound(
        "maxMessageSize",
        "bytes of a message",
        "refused as MESSAGE_ILLEGAL",
        "tests/store/test_store_message_store.py::test_what_is_refused",
        clients="RocketMQ's own: 4 MiB in brokers and clients",
    ),
    SettingBound(
        "maxMessagesPerBatch",
        "messages of a batch",
        "refused as MESSAGE_ILLEGAL",
        _FILTERS + "test_a_batch_of_very_many_messages_is_refused",
        clients="far beyond 190,000 empty messages, which fit maxMessageSize; it is stored in steps",
    ),
    SettingBound(
        "maxGroupsPerClient",
        "groups of one client, in a heartbeat and in all",
        "refused as SYSTEM_BUSY",
        _CLIENTS + "test_a_heartbeat_beyond_a_limit_registers_nothing",
        clients=_HEARTBEAT,
    ),
    SettingBound(
        "pullThreadPoolQueueCapacity",
        "pulls that are held",
        "those of the greediest leave",
        "tests/broker/test_broker_long_polling.py::"
        "test_in_a_full_pool_the_oldest_pulls_of_who_holds_the_most_make_room",
        clients="RocketMQ's own: the same key, with the same default of 100,000",
    ),
    SettingBound(
        "haMaxConnections",
        "connections of slaves",
        "strangers make room, or it is closed",
        "tests/replication/test_replication_access.py::test_silent_strangers_do_not_keep_a_slave_out",
        clients="far beyond the one or two slaves of a master",
    ),
    SettingBound(
        "maxTopics",
        "topics at a NameServer",
        "the registration is refused as a whole",
        "tests/namesrv/test_namesrv_routes.py::test_a_full_table_refuses_as_a_whole",
        clients="far beyond the 110,000 topics that a broker registers in one frame",
    ),
    SettingBound(
        "maxBrokerAddresses",
        "brokers, names of brokers and clusters at a NameServer",
        "the registration is refused as a whole",
        "tests/namesrv/test_namesrv_routes.py::test_a_registration_beyond_a_limit_changes_nothing",
        clients="far beyond the hundreds of brokers of the largest clusters",
    ),
)
