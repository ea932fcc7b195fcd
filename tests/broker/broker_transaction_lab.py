"""A broker's transaction parts over a real store, and one producer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from broker_fakes import FakeConnection
from broker_store_lab import STORE_HOST, Lab, open_lab

from triomq.broker.processors.end_transaction import EndTransactionProcessor
from triomq.broker.transactions.producer_checks import ProducerChecks, TransactionChecks
from triomq.broker.transactions.transactions import TransactionLog
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from triomq.protocol.system_topics import TRANS_CONSUMER_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from triomq.remoting.processor_table import Pool
from triomq.store.results import PutResult

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0


class Transactions:
    """A broker's transaction parts and one producer of group PID."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.log = TransactionLog(
            lab.store,
            lab.writer,
            lab.topics,
            lab.offsets,
            lab.undeliverable,
            store_host=STORE_HOST.packed,
            now_ms=lab.now_ms,
        )
        self.pool = Pool("transaction", 100)
        self.end_processor = EndTransactionProcessor(lab.configuration, self.log, pool=self.pool)
        self.listener = ProducerChecks(lab.producers, self.log)
        self.checks = TransactionChecks(lab.configuration, self.log, self.listener, now_ms=lab.now_ms)
        self.producer = FakeConnection()
        lab.producers.register("PID", cast(Any, self.producer), "client", 0, 407)

    def end(self, put: PutResult, how: int, **changes: Any) -> RemotingCommand | None:
        """The answer to END_TRANSACTION, None when there is none."""
        values: dict[str, Any] = {
            "producer_group": "PID",
            "tran_state_table_offset": put.queue_offset,
            "commit_log_offset": put.physical_offset,
            "commit_or_rollback": how,
            "msg_id": "U",
        }
        header = EndTransactionRequestHeader(**{**values, **changes})
        answered = len(self.producer.answers)
        response = self.end_processor(cast(Any, self.producer), new_request(RequestCode.END_TRANSACTION, header))
        if response is None and len(self.producer.answers) > answered:
            response = self.producer.answers[-1][1]
        return response

    def asked(self) -> list[CheckTransactionStateRequestHeader]:
        return [request.header(CheckTransactionStateRequestHeader) for request in self.producer.oneways]

    def consumed(self) -> tuple[int, int]:
        """Consumed offsets of the half and the op queue."""
        query = self.lab.offsets.query
        return (
            query(TRANS_CONSUMER_GROUP, TRANS_HALF_TOPIC, 0),
            query(TRANS_CONSUMER_GROUP, TRANS_OP_HALF_TOPIC, 0),
        )


@asynccontextmanager
async def open_transactions(root: Path, **options: Any) -> AsyncIterator[Transactions]:
    async with open_lab(root, **options) as lab:
        yield Transactions(lab)
