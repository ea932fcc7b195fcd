"""Transactional messages: consumers see a message only when the local transaction it belongs to was committed.

    async def execute(message, argument): ...   # the local transaction; returns LocalTransactionState
    async def check(message): ...               # called when the broker asks for the outcome later

    async with TransactionProducer("orders", execute, check, name_server="127.0.0.1:9876") as producer:
        result = await producer.send_in_transaction(Message("Orders", b"..."), argument)

The message is stored first, invisible (a half message); then `execute` runs; then its outcome goes to the broker, which
delivers or drops the message. When the outcome does not reach the broker, or is UNKNOW, the broker asks a producer of
the group (`check`), up to 15 times. Both functions may be `async def`, or plain functions, which run in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Self, Unpack

import trio

from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import InvalidMessage, MQClientError
from triomq.client.core.hooks import EndTransactionContext, SendHook
from triomq.client.core.log import get_logger
from triomq.client.core.outgoing import SendRules
from triomq.client.core.results import LocalTransactionState, SendResult, SendStatus, TransactionSendResult
from triomq.client.core.type_variables import T
from triomq.client.instance.client import Client
from triomq.client.instance.handlers import Handler, check_takes, without_library_frames
from triomq.client.instance.opening import ThreadWaits, inside
from triomq.client.instance.user_errors import concerns_one_call
from triomq.client.payloads.serializer import Serializer
from triomq.client.produce.only_messages import takes_message
from triomq.client.produce.producer import LEAVE_SECONDS, Producer
from triomq.protocol import property_names as names
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_id import parse_offset_message_id

__all__ = ["LocalTransactionState", "Message", "MessageExt", "TransactionProducer", "TransactionSendResult"]

log = get_logger("triomq.client.transaction")

Execute = Callable[[Message, Any], Any]
"""(message, the caller's argument) -> LocalTransactionState, or an awaitable of one. The message has its
`transaction_id`."""
Check = Callable[[MessageExt], Any]
"""(message as the broker has it) -> LocalTransactionState, or an awaitable of one."""


class TransactionProducer(Producer[T]):
    """Sends transactional messages, and everything a `Producer` sends (RocketMQ: TransactionMQProducer).

    `execute(message, argument)` runs the local transaction, `check(message)` looks up its outcome when the broker asks;
    both return a LocalTransactionState and may be `async def`, or plain functions, which run in a thread. `max_checks`:
    number of checks at once. The other parameters are those of `Producer`.
    """

    def __init__(
        self,
        group: str,
        execute: Execute,
        check: Check,
        *,
        max_checks: int = 5,
        client: Client | None = None,
        send_timeout_seconds: float = 3.0,
        retries: int = 2,
        rules: SendRules | None = None,
        send_hooks: Iterable[SendHook] = (),
        trace: bool | str = False,
        serializer: Serializer[T] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        super().__init__(
            group,
            client=client,
            send_timeout_seconds=send_timeout_seconds,
            retries=retries,
            rules=rules,
            send_hooks=send_hooks,
            trace=trace,
            serializer=serializer,
            **options,
        )
        check_takes(execute, "message", "argument")
        check_takes(check, "message")
        self.thread_waits = ThreadWaits()
        self._execute = Handler(execute, self.thread_waits, 100)
        self._check = Handler(check, self.thread_waits, max_checks)
        self._max_checks = max_checks
        self._checks = 0
        self._no_check_runs = trio.Event()

    async def __aenter__(self) -> Self:
        self.thread_waits.open()
        return await super().__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Checks that run are waited for, for as long as leaving may take."""
        self._opening_task = None
        try:
            with trio.move_on_after(LEAVE_SECONDS if error is None else 0):
                while self._checks:
                    self._no_check_runs = trio.Event()
                    await self._no_check_runs.wait()
        finally:
            count = self.thread_waits.give_up()
            if count:
                log.warning("transaction functions left behind in their threads", group=self.group, count=count)
            await super().__aexit__(kind, error, traceback)

    @takes_message
    async def send_in_transaction(
        self, message: Message, argument: Any = None, *, timeout_seconds: float | None = None
    ) -> TransactionSendResult:
        """Store the half message, run the local transaction, send its outcome to the broker.

        The result's `state` says how the local transaction ended; an exception counts as UNKNOW and is in `error`.
        Raises what `send` raises when the half message could not be stored; then the local transaction did not run.
        """
        self._check_open()
        if message.delay_level:
            raise InvalidMessage("a transactional message cannot be delayed")
        with self._client.spans.sending((message,), is_transaction=True) as span:
            outgoing = self._sender.preparer.single(
                message, {**span.carried, names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: self.group}
            )
            await self.make_known(message.topic)
            half = await self._sender.deliver(outgoing, (message,), None, timeout_seconds)
            span.stored(half)
        message.transaction_id = half.transaction_id or half.message_id
        state, error = LocalTransactionState.ROLLBACK_MESSAGE, None
        if half.status is SendStatus.SEND_OK:
            state, error = await self._run(self._execute, message, argument)
        try:
            with self._client.spans.settling(message, state.name, is_check=False):
                await self._end(half, message, message.transaction_id, state)
        except MQClientError as failure:
            # The broker will ask, so the outcome is not lost.
            log.warning("outcome not sent; the broker will ask for it", message_id=half.message_id, error=str(failure))
        return TransactionSendResult(half, state, error)

    async def check_transaction(
        self, broker_address: str, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        if self._checks >= self._max_checks:
            # The broker asks again after its check interval.
            log.warning("transaction check skipped: too many at once", message_id=header.msg_id)
            return
        self._checks += 1
        inside.set(self)
        try:
            state, _ = await self._run(self._check, message)
            message_id = message.uniq_key or header.msg_id or ""
            outcome = EndTransactionRequestHeader(
                producer_group=self.group,
                tran_state_table_offset=header.tran_state_table_offset,
                commit_log_offset=header.commit_log_offset,
                commit_or_rollback=int(state),
                from_transaction_check=True,
                msg_id=message_id,
                transaction_id=header.transaction_id,
                broker_name=header.broker_name,
            )
            with self._client.spans.settling(message, state.name, is_check=True):
                await self._client.tell(broker_address, new_request(RequestCode.END_TRANSACTION, outcome, oneway=True))
            self._run_hooks(message, message_id, header.transaction_id or message_id, broker_address, state, True)
        except MQClientError as error:
            log.warning("outcome not sent; the broker will ask for it", message_id=header.msg_id, error=str(error))
        finally:
            self._checks -= 1
            if not self._checks:
                self._no_check_runs.set()

    async def _run(self, handler: Handler, *arguments: Any) -> tuple[LocalTransactionState, BaseException | None]:
        """Return the state that the application returns; anything else, and any exception, counts as UNKNOW."""
        try:
            returned = await handler(*arguments)
        except BaseException as error:
            if not concerns_one_call(error):
                raise
            log.warning(
                "local transaction failed; its state is unknown",
                group=self.group,
                exc_info=without_library_frames(error),
            )
            return LocalTransactionState.UNKNOW, error
        if isinstance(returned, LocalTransactionState):
            return returned, None
        log.warning("transaction state not recognised; it counts as unknown", group=self.group, returned=repr(returned))
        return LocalTransactionState.UNKNOW, TypeError(f"expected a LocalTransactionState, got {returned!r}")

    async def _end(self, half: SendResult, message: Message, transaction_id: str, state: LocalTransactionState) -> None:
        _, physical_offset = parse_offset_message_id(half.offset_message_id)
        queue = half.queue
        address = await self._client.master_soon(queue.broker_name, self._client.namespace.wrap(queue.topic))
        header = EndTransactionRequestHeader(
            producer_group=self.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=int(state),
            msg_id=half.message_id,
            transaction_id=transaction_id,
            broker_name=queue.broker_name,
        )
        await self._client.tell(address, new_request(RequestCode.END_TRANSACTION, header, oneway=True), vip=True)
        self._run_hooks(message, half.message_id, transaction_id, address, state, False)

    def _run_hooks(
        self,
        message: Message,
        message_id: str,
        transaction_id: str,
        broker_address: str,
        state: LocalTransactionState,
        from_check: bool,
    ) -> None:
        context = EndTransactionContext(
            self.group,
            message,
            message_id,
            transaction_id,
            broker_address,
            state.name,
            from_check,
            self._client.config.now_ms(),
        )
        for hook in self._sender.hooks:
            run = getattr(hook, "after_end_transaction", None)
            if run is None:
                continue
            try:
                run(context)
            except BaseException as error:
                if not concerns_one_call(error):
                    raise
                log.exception("end-of-transaction hook failed")
