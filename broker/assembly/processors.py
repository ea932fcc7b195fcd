"""The list of processors: which part of a broker handles which request code, and in which pool.

The fast port handles everything but pulls, so that sends never queue behind pulls.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from triomq.broker import optional
from triomq.broker.assembly.serving import Serving
from triomq.broker.audit import Audit
from triomq.broker.extensions import AccessValidator
from triomq.broker.processors.acl import AclProcessor
from triomq.broker.processors.client import ClientProcessor
from triomq.broker.processors.consume_admin import ConsumeAdminProcessor
from triomq.broker.processors.end_transaction import EndTransactionProcessor, ResumeCheckProcessor
from triomq.broker.processors.group_admin import GroupAdminProcessor
from triomq.broker.processors.grpc_endpoint import GrpcEndpointProcessor
from triomq.broker.processors.offset_admin import OffsetAdminProcessor
from triomq.broker.processors.offsets import OffsetProcessor
from triomq.broker.processors.producer_admin import ProducerAdminProcessor
from triomq.broker.processors.query import QueryProcessor
from triomq.broker.processors.queue_locks import QueueLockProcessor
from triomq.broker.processors.reply import ReplyProcessor
from triomq.broker.processors.reset import ResetProcessor
from triomq.broker.processors.runtime import RuntimeProcessor
from triomq.broker.processors.send_back import SendBackProcessor
from triomq.broker.processors.topic_admin import TopicAdminProcessor
from triomq.broker.runtime_info import RuntimeInfo
from triomq.broker.topic_lives import is_outlived
from triomq.daemon.version import product_values
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Answer, BeforeHook, Pool, Processor, ProcessorTable
from triomq.remoting.scheduling.policy import BULK, INTERACTIVE

if TYPE_CHECKING:
    from triomq.broker.acl.access_control import AccessControl
    from triomq.broker.assembly.pop_on_demand import PopOnDemand
    from triomq.broker.pop.deliveries import Deliveries


class Handles(Protocol):
    """A processor of several request codes."""

    def processors(self) -> Mapping[int, Processor]: ...


class _OnDemand:
    """A processor of several request codes that is built by the first request."""

    def __init__(self, build: Callable[[], Mapping[int, Processor]]) -> None:
        self._build = build
        self._processors: Mapping[int, Processor] | None = None

    def __call__(self, connection: Connection, request: RemotingCommand) -> Answer | Coroutine[Any, Any, Answer]:
        """Handle a request."""
        if self._processors is None:
            self._processors = self._build()
        return self._processors[request.code](connection, request)


class Row(NamedTuple):
    """Requests of these codes go to this processor and count in this pool."""

    codes: tuple[int, ...]
    processor: Processor
    pool: Pool


SENDS = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)


LOOKS = (RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO)
ACKS = (RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME)
IN_FLIGHT = (RequestCode.QUERY_IN_FLIGHT, RequestCode.RELEASE_IN_FLIGHT)
BULK_CODES = {RequestCode.PULL_MESSAGE, RequestCode.POP_MESSAGE}
"""Requests that yield to others, and are not handled on the fast port."""
INTERACTIVE_CODES = {*SENDS, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION}
"""Requests that pulls yield to."""


def register(
    serving: Serving, table: ProcessorTable, fast_table: ProcessorTable, build_totals: Callable[[], Handles]
) -> None:
    """Fill the tables of the two ports, and have each request checked before its processor runs. `build_totals` builds
    the processor of QUERY_BROKER_TOTALS, which stands above this room, for its first request."""
    access = serving.access_control
    rows = processor_list(serving, access)
    totals = _OnDemand(lambda: build_totals().processors())
    rows.append(Row((RequestCode.QUERY_BROKER_TOTALS,), totals, serving.tables.pools.admin))
    for codes, processor, pool in rows:
        if BULK_CODES.intersection(codes):
            table.register(codes, processor, pool, BULK)
            continue
        work = INTERACTIVE if set(codes) & INTERACTIVE_CODES else None
        table.register(codes, processor, pool, work)
        fast_table.register(codes, processor, pool, work)

    def set_checks() -> None:
        checks = _checks(serving, access)
        table.set_hooks(checks)
        fast_table.set_hooks(checks)

    serving.quotas.on_change(set_checks)


def processor_list(serving: Serving, access: AccessControl | None) -> list[Row]:
    """Return every request code that a broker handles, once, but QUERY_BROKER_TOTALS."""
    check_topic = access.check_topic if access is not None else None
    audit = Audit(access.who if access is not None else None)
    tables, transactions = serving.tables, serving.transactions
    configuration = tables.configuration
    store = tables.store
    metadata = tables.metadata
    pools = tables.pools
    send_back = SendBackProcessor(configuration, metadata, store, serving.writer, tables.stats, check_topic)
    end_transaction = EndTransactionProcessor(
        configuration, transactions.log, pool=pools.transaction, check_topic=check_topic
    )
    reply = ReplyProcessor(
        configuration,
        serving.send,
        metadata.producers,
        serving.writer,
        tables.stats,
        store_host=serving.host,
        now_ms=tables.now_ms,
    )
    client = ClientProcessor(configuration, metadata)
    assignments = _OnDemand(lambda: optional.assignments.build_assignments(serving, audit))
    in_flight = _OnDemand(lambda: _in_flight(serving, audit).processors())
    return [
        Row(SENDS, serving.send, pools.send),
        Row((RequestCode.CONSUMER_SEND_MSG_BACK,), send_back, pools.send),
        Row((RequestCode.END_TRANSACTION,), end_transaction, pools.transaction),
        Row((RequestCode.RESUME_CHECK_HALF_MESSAGE,), ResumeCheckProcessor(transactions.log, audit), pools.admin),
        Row((RequestCode.PULL_MESSAGE,), serving.pull, pools.pull),
        Row((RequestCode.POP_MESSAGE,), serving.pop, pools.pull),
        Row(LOOKS, serving.pop, pools.pull),
        Row(ACKS, serving.pop, pools.consumer),
        Row((RequestCode.QUERY_ASSIGNMENT,), assignments, pools.consumer),
        Row((RequestCode.SET_MESSAGE_REQUEST_MODE,), assignments, pools.admin),
        Row(IN_FLIGHT, in_flight, pools.admin),
        *_rows([reply], pools.reply),
        *_rows([client], pools.client),
        Row((RequestCode.HEART_BEAT,), client.heartbeat, pools.heartbeat),
        *_rows(
            [
                OffsetProcessor(
                    configuration,
                    metadata.offsets,
                    metadata.consumers,
                    store,
                    is_outlived=partial(is_outlived, metadata.topics, store.reading),
                )
            ],
            pools.consumer,
        ),
        *_rows([QueryProcessor(configuration, store, check_topic)], pools.query),
        *_rows(_administration(serving, audit), pools.admin),
    ]


def _administration(serving: Serving, audit: Audit) -> list[Handles]:
    tables = serving.tables
    configuration = tables.configuration
    store = tables.store
    metadata = tables.metadata
    stats = tables.stats
    topics = metadata.topics
    groups = metadata.groups
    offsets = metadata.offsets
    deliveries = partial(_deliveries, serving.pop)
    info = RuntimeInfo(
        configuration,
        store,
        stats,
        tables.store_metrics,
        tables.pools,
        serving.delivery.progress,
        (
            tables.latencies.values,
            serving.quotas.refusals.values,
            _group_values(serving),
            tables.absent_values,
            tables.access.rejected_values if tables.access is not None else dict,
            lambda: optional.readiness.Readiness(serving).failing(),
            product_values,
        ),
    )
    return [
        QueueLockProcessor(tables.queue_locks),
        OffsetAdminProcessor(store, offsets, lambda: dict(tables.delay_offsets.items())),
        TopicAdminProcessor(configuration, topics, offsets, store, stats, serving.registration, audit),
        GroupAdminProcessor(configuration, groups, offsets, stats, audit),
        ProducerAdminProcessor(metadata.producers),
        ResetProcessor(configuration, topics, metadata.consumers, offsets, store, audit, deliveries),
        ConsumeAdminProcessor(
            configuration, metadata, store, stats, now_ms=tables.now_ms, broker_addr=serving.address, audit=audit
        ),
        RuntimeProcessor(serving.update, info, stats, store, audit),
        AclProcessor(configuration, tables.access, address=lambda: serving.address, audit=audit),
        GrpcEndpointProcessor(configuration),
    ]


def _deliveries(pop: PopOnDemand) -> Deliveries | None:
    return pop.parts.deliveries if pop.parts is not None else None


def _in_flight(serving: Serving, audit: Audit) -> Handles:
    tables = serving.tables
    return optional.in_flight.InFlightProcessor(
        tables.configuration,
        partial(_deliveries, serving.pop),
        tables.store.reading,
        now_ms=tables.now_ms,
        audit=audit,
    )


def _rows(parts: Iterable[Handles], pool: Pool) -> list[Row]:
    return [Row((code,), processor, pool) for part in parts for code, processor in part.processors().items()]


def _group_values(serving: Serving) -> Callable[[], dict[str, str]]:
    """Return what the runtime information says about a member of a group; nothing without enableDLegerCommitLog."""
    settings, store, group = serving.tables.configuration.group, serving.tables.group, serving.group
    if settings is None or store is None or group is None:
        return dict
    return partial(optional.group.group_values, settings, store, group)


def _checks(serving: Serving, access: AccessControl | None) -> list[BeforeHook]:
    """Return the checks that every request passes before its processor: access control, quotas, then the hooks of
    extensions."""
    tables = serving.tables
    checks: list[BeforeHook] = []
    if access is not None:
        checks.append(access)
        checks += [_validation(validator) for validator in tables.surroundings.extensions.access_validators]
    if serving.quotas.is_on:
        checks.append(serving.quotas.check)
    if serving.group is not None:
        checks.append(optional.master_decides.MasterDecides(tables.store, serving.group.is_confirmed))
    if tables.hooks:
        checks.append(tables.hooks.before)
    return checks


def _validation(validator: AccessValidator) -> BeforeHook:
    return lambda connection, request: validator.validate(connection.remote, request)
