"""The end of transactions: END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE (RocketMQ: EndTransactionProcessor, part of
AdminBrokerProcessor)."""

from __future__ import annotations

import structlog

from triomq.broker.acl.names import PUB, TopicCheck
from triomq.broker.audit import UNNAMED, Audit
from triomq.broker.configuration import Configuration
from triomq.broker.errors import TransactionEnded
from triomq.broker.message_writer import PendingPut
from triomq.broker.put_responses import COMMIT_CODES, NOT_SET, STORED, commit_remark, with_reason
from triomq.broker.transactions.half_message import HalfMessage
from triomq.broker.transactions.interfaces import TransactionStore
from triomq.protocol import sys_flag
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import ProtocolError, RecordError, RequestRefused
from triomq.protocol.headers.transaction import EndTransactionRequestHeader, ResumeCheckHalfMessageRequestHeader
from triomq.protocol.message_id import parse_offset_message_id
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool
from triomq.store.results import PutStatus

log = structlog.get_logger("triomq.broker.end_transaction")


class EndAnswer(PendingPut):
    """The pending response to one commit or rollback; sent when the real message is as durable as it requests, or the
    end of the transaction as durable as a message."""

    __slots__ = ("_connection", "_processor", "_request", "remark")

    def __init__(
        self, processor: EndTransactionProcessor, connection: Connection, request: RemotingCommand, remark: str | None
    ) -> None:
        super().__init__()
        self.remark = remark
        self._processor = processor
        self._connection = connection
        self._request = request

    def finish(self) -> None:
        self._processor.answer(self._connection, self._request, self)


class EndTransactionProcessor:
    """Handles commits and rollbacks of producers. `check_topic` is None without access control."""

    def __init__(
        self,
        configuration: Configuration,
        transactions: TransactionStore,
        *,
        pool: Pool,
        check_topic: TopicCheck | None = None,
    ) -> None:
        self._check_topic = check_topic
        self._configuration = configuration
        self._transactions = transactions
        self._pool = pool

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        header = request.header(EndTransactionRequestHeader)
        wanted = header.commit_or_rollback
        if wanted not in (sys_flag.TRANSACTION_NOT, sys_flag.TRANSACTION_COMMIT, sys_flag.TRANSACTION_ROLLBACK):
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, "commitOrRollback field wrong")
        if self._configuration.role.is_slave:
            raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, NOT_SET)
        if wanted == sys_flag.TRANSACTION_NOT:
            return None  # the producer does not know yet; a later check asks it again
        half = self._half(header)
        if self._check_topic is not None:
            self._check_topic(connection, request, half.topic, PUB)
        is_rollback = wanted == sys_flag.TRANSACTION_ROLLBACK
        end = self._transactions.rollback if is_rollback else self._transactions.commit
        answer = EndAnswer(self, connection, request, NOT_SET if is_rollback else None)
        self._pool.entered(answer)
        try:
            end(half, answer)
        except RecordError as error:
            self._pool.left(answer)
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, str(error)) from None
        except TransactionEnded:
            self._pool.left(answer)
            raise
        return None

    def _half(self, header: EndTransactionRequestHeader) -> HalfMessage:
        """Return the half message that the request names, after checking that it is the right one. Raises
        RequestRefused."""
        half = self._transactions.half_at(header.commit_log_offset)
        reason = None
        if half is None:
            reason = "Find prepared transaction message failed"
        elif half.group != header.producer_group:
            reason = "The producer group wrong"
        elif half.queue_offset != header.tran_state_table_offset:
            reason = "The transaction state table offset wrong"
        elif half.physical_offset != header.commit_log_offset:
            reason = "The commit log offset wrong"
        if half is None or reason is not None:
            log.warning(
                "transaction not ended",
                reason=reason,
                group=header.producer_group,
                physical_offset=header.commit_log_offset,
                is_answer_to_check=header.from_transaction_check,
            )
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, reason)
        return half

    def answer(self, connection: Connection, request: RemotingCommand, token: EndAnswer) -> None:
        """Send the response to an end whose put is complete (called by EndAnswer)."""
        since = self._pool.left(token)
        status = token.result.status
        if status in STORED:
            response = new_response(request, ResponseCode.SUCCESS, token.remark)
        else:
            code = COMMIT_CODES.get(status, ResponseCode.SYSTEM_ERROR)
            limit = self._configuration.store.max_message_size_bytes
            response = new_response(request, code, commit_remark(token.result, limit))
        connection.answer(request, response, since)


class ResumeAnswer(PendingPut):
    """The pending response to one RESUME_CHECK_HALF_MESSAGE."""

    __slots__ = ("_connection", "_request")

    def __init__(self, connection: Connection, request: RemotingCommand) -> None:
        super().__init__()
        self._connection = connection
        self._request = request

    def finish(self) -> None:
        if self.result.status is PutStatus.PUT_OK:
            response = new_response(self._request)
        else:
            remark = with_reason("Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed.", self.result)
            response = new_response(self._request, ResponseCode.SYSTEM_ERROR, remark)
        self._connection.answer(self._request, response)


class ResumeCheckProcessor:
    """Resumes checks of messages that were discarded after too many checks."""

    def __init__(self, transactions: TransactionStore, audit: Audit = UNNAMED) -> None:
        self._transactions = transactions
        self._audit = audit

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        header = request.header(ResumeCheckHalfMessageRequestHeader)
        try:
            _, physical_offset = parse_offset_message_id(header.msg_id or "")
            self._transactions.resume(physical_offset, ResumeAnswer(connection, request))
            self._audit.done(connection, request, "checks of a half message resumed", message_id=header.msg_id)
        except ProtocolError as error:
            log.warning("half message not resumed", message_id=header.msg_id, error=str(error))
            remark = "Exception was thrown when putting message back to RMQ_SYS_TRANS_HALF_TOPIC."
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, remark) from None
        return None
