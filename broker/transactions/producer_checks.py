"""Transaction checks: the task that runs them, and the producers that are asked.

    TransactionChecks    runs check.CheckRun over the half queues (RocketMQ:
                         TransactionalMessageCheckService)
    ProducerChecks       asks the producer of a half message, or discards the message (RocketMQ:
                         DefaultTransactionalMessageCheckListener)

Only the check task moves the consumed offsets of the half and op queues. Only the event loop touches any of this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from math import inf

import structlog
import trio

from triomq.broker.configuration import Configuration
from triomq.broker.pending_put import NotifyingPut, PendingPut
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.transactions.check import CheckRules, CheckRun, HalfMessage, Kind
from triomq.broker.transactions.interfaces import CheckListener, TransactionStore
from triomq.broker.transactions.records import number
from triomq.protocol import property_names as names
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from triomq.protocol.message_id import offset_message_id
from triomq.protocol.message_to_store import MessageToStore, Place
from triomq.protocol.record import encode_into
from triomq.remoting.connection import Connection

log = structlog.get_logger("triomq.broker.transactions")

MaySend = Callable[[Connection, str], bool]

HOUR_MS = 3_600_000
AFTER_FAILURE_SECONDS = 10.0
MAX_UNASKED_GROUPS = 1000
GROUPS_NAMED = 10
OTHER_GROUPS = "other groups"


class ProducerChecks:
    """Sends CHECK_TRANSACTION_STATE to a producer of the group, which responds with an END_TRANSACTION request. The
    question holds the half message: `may_send` returns whether the client at a connection may send to its topic."""

    def __init__(
        self, producers: ProducerTable, transactions: TransactionStore, may_send: MaySend | None = None
    ) -> None:
        self._may_send = may_send
        self._producers = producers
        self._transactions = transactions
        self._unasked: Counter[str] = Counter()

    def check(self, half: HalfMessage) -> None:
        group = half.group
        may_send = self._may_send
        topic = half.topic or ""
        suits = (lambda connection: may_send(connection, topic)) if may_send is not None else None
        channel = self._producers.pick(group, suits) if group else None
        if channel is None:
            self._count_unasked(group or "")
            return
        uniq_key = half.properties.uniq_key
        header = CheckTransactionStateRequestHeader(
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=half.physical_offset,
            msg_id=uniq_key,
            transaction_id=uniq_key,
            offset_msg_id=offset_message_id(half.store_host, half.physical_offset),
        )
        request = new_request(RequestCode.CHECK_TRANSACTION_STATE, header, _check_body(half), oneway=True)
        if not channel.connection.send_oneway(request):
            self._count_unasked(group or "")

    def discard(self, half: HalfMessage) -> bool:
        return self._transactions.give_up(half)

    def _count_unasked(self, group: str) -> None:
        """Count a half message whose group has no producer to ask. There may be thousands in each run, so at most
        `MAX_UNASKED_GROUPS` groups are counted by name."""
        is_counted = group in self._unasked or len(self._unasked) < MAX_UNASKED_GROUPS
        self._unasked[group if is_counted else OTHER_GROUPS] += 1

    def log_unasked(self) -> None:
        """Log one line about the half messages whose producers could not be asked since the last line, if there are
        any."""
        if not self._unasked:
            return
        most = ", ".join(f"{group or 'no group'}: {count}" for group, count in self._unasked.most_common(GROUPS_NAMED))
        log.warning(
            "half messages not checked; their producers are not connected",
            half_messages=self._unasked.total(),
            groups=len(self._unasked),
            most=most,
        )
        self._unasked.clear()


class TransactionChecks:
    """The check task. Run `run` on masters only: start it when the broker becomes one, cancel it when the broker ceases
    to be one."""

    def __init__(
        self,
        configuration: Configuration,
        transactions: TransactionStore,
        listener: CheckListener,
        *,
        now_ms: NowMs,
    ) -> None:
        self._configuration = configuration
        self._transactions = transactions
        self._listener = listener
        self._now_ms = now_ms
        self._next_run = inf

    def seconds_to_next(self) -> float:
        """Return the seconds to the next check, inf if none will come."""
        return self._next_run - trio.current_time()

    async def run(self) -> None:
        """Check every transactionCheckInterval until cancelled; the first time after one interval."""
        while True:
            self._next_run = trio.current_time() + self._configuration.broker.transaction_check_interval_ms / 1000
            await trio.sleep_until(self._next_run)
            try:
                await self.check()
            except Exception:
                log.exception("transaction check failed", retry_seconds=AFTER_FAILURE_SECONDS)
                await trio.sleep(AFTER_FAILURE_SECONDS)

    async def check(self) -> None:
        """Run one check over all half queues."""
        for queue_id in self._transactions.queue_ids():
            await self._check_queue(queue_id)

    async def _check_queue(self, queue_id: int) -> None:
        transactions = self._transactions
        broker = self._configuration.broker
        reserved_ms = self._configuration.store.file_reserved_time_hours * HOUR_MS
        run = CheckRun(
            queue_id,
            transactions.half_offset(queue_id),
            transactions.op_offset(queue_id),
            self._now_ms(),
            CheckRules(broker.transaction_timeout_ms, broker.transaction_check_max, reserved_ms),
        )
        try:
            while True:
                action = run.step(transactions, self._now_ms())
                half = action.half
                if action.kind is Kind.END:
                    return
                if half is not None:
                    # The end of this transaction may be behind the op messages that the run has read.
                    is_settled = transactions.is_settled(half)
                    run.carried_out(is_settled or self._carry_out(action.kind, half))
                # All decisions so far are carried out; transactions that end here leave op messages, which a later step
                # reads.
                await trio.lowlevel.checkpoint()
        finally:
            transactions.keep_offsets(queue_id, run.half_offset, run.op_offset)

    def _carry_out(self, kind: Kind, half: HalfMessage) -> bool:
        if kind is Kind.DISCARD:
            return self._listener.discard(half)
        # The producer's answer names the copy: in a group it would be refused before a quorum has that.
        pending = NotifyingPut(partial(self._ask, half)) if kind is Kind.CHECK else PendingPut()
        return self._transactions.put_back(half, pending)

    def _ask(self, half: HalfMessage) -> None:
        try:
            self._listener.check(half)
        except Exception:  # it is put back, so the next run asks again; this one continues with the others
            log.exception("half message not checked", queue_offset=half.queue_offset)


def _check_body(half: HalfMessage) -> bytes:
    """Return the record that a producer receives: the half message under its real topic and queue, with WAIT=false."""
    properties = half.properties.with_({names.WAIT: "false"})
    real_queue_id = number(properties.get(names.REAL_QUEUE_ID, ""))
    topic = half.topic or ""
    body = bytearray()
    message = MessageToStore(
        topic,
        real_queue_id if real_queue_id is not None else half.queue_id,
        half.body,
        properties,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_host=half.store_host,
        flag=half.flag,
        sys_flag=half.sys_flag,
        reconsume_times=half.reconsume_times,
    )
    place = Place(
        physical_offset=half.physical_offset, queue_offset=half.queue_offset, store_timestamp=half.store_timestamp
    )
    encode_into(body, topic.encode(), message, place, properties.text)
    return bytes(body)
