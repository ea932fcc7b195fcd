"""ReceiveMessage, AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue and QueryAssignment: as the
requests of POP.

A push consumer asks for messages without saying for how long (`auto_renew`). They stay invisible for HELD_MS, and are
ready again at once when their client ends or is lost (`Held`): so nothing has to be renewed.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.grpc.call import Call, encoded
from triomq.broker.grpc.gathering import Gathering, ask
from triomq.broker.grpc.held import Place
from triomq.broker.grpc.messages import fill, set_ms, to_ms
from triomq.broker.grpc.results import OK, Refused, check, code_of, set_status, sum_up
from triomq.broker.grpc.routes import ALL_QUEUES, Routes, legal_group, legal_topic
from triomq.broker.grpc.traces import Traces
from triomq.broker.pop.group_queues import Key
from triomq.broker.pop.in_flight import HELD_MS
from triomq.broker.processors.pop import MAX_INVISIBLE_MS, MAX_MESSAGES, MIN_INVISIBLE_MS
from triomq.grpc_front import schema
from triomq.protocol.bounds import NAME_CHARACTERS
from triomq.protocol.codes import POLLING_FULL, POLLING_TIMEOUT, RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
)
from triomq.protocol.receipt_handle import NORMAL, ReceiptHandle, ReceiptHandleError, parse_handle
from triomq.protocol.record import iterate_records
from triomq.protocol.response_template import TemplatedResponse
from triomq.protocol.subscription import SQL92, TAG

Code: Final = schema.Code
LEAST_WAIT_SECONDS: Final = 5.0
MOST_WAIT_SECONDS: Final = 20.0
MAX_INFLATED_BYTES: Final = 8 * 1024 * 1024
"""What bodies may become longer by in one answer: inflating them holds up everybody else."""
ANSWER_SECONDS: Final = 1.0
"""How long before the deadline of a receive it is answered."""
TO_DEAD_LETTERS: Final = "-1"
"""The delay level that sends a message back to the dead letters."""
_SQL: Final = int(schema.FilterType.SQL)
_NOTHING: Final[tuple[int, ...]] = (int(ResponseCode.PULL_NOT_FOUND), POLLING_TIMEOUT)


def _found() -> bytes:
    """Return the first answer to a receive that gets messages."""
    head = schema.ReceiveMessageResponse()
    set_status(head.status, OK, None)
    return encoded(head)


_FOUND: Final = _found()


class Consuming:
    """See the module's docstring."""

    def __init__(self, serving: Serving, routes: Routes, traces: Traces) -> None:
        self._traces = traces
        self._groups = serving.tables.metadata.groups
        self._pop = serving.pop
        self._routes = routes
        self._name = serving.tables.configuration.broker.broker_name
        self._now_ms = serving.tables.now_ms
        self._reading = serving.store.reading

    # Receiving.

    def receive(self, call: Call, request: Any) -> None:
        """ReceiveMessage. Raises Refused."""
        topic = legal_topic(request.message_queue.topic.name)
        is_push = request.auto_renew
        invisible_ms = HELD_MS if is_push else to_ms(request.invisible_duration)
        if not MIN_INVISIBLE_MS <= invisible_ms <= MAX_INVISIBLE_MS:
            text = f"an invisible duration of {invisible_ms} ms: from {MIN_INVISIBLE_MS} to {MAX_INVISIBLE_MS}"
            raise Refused(Code.ILLEGAL_INVISIBLE_TIME, text)
        expression = request.filter_expression
        group, count = legal_group(request.group.name), request.batch_size
        in_order = self._is_in_order(group)
        header = PopMessageRequestHeader(
            consumer_group=group,
            topic=topic,
            # Simple consumers name a queue of the route, and mean its broker.
            queue_id=request.message_queue.id if is_push else ALL_QUEUES,
            max_msg_nums=min(count, MAX_MESSAGES) if count > 0 else MAX_MESSAGES,
            invisible_time=invisible_ms,
            poll_time=_wait_ms(call, request),
            born_time=self._now_ms(),
            init_mode=1,
            exp_type=SQL92 if expression.type == _SQL else TAG,
            exp=expression.expression or "*",
            order=in_order,
            attempt_id=_attempt(request) if in_order else None,
        )
        deliver = partial(self._deliver, call, topic, group, is_push)
        ask(call, RequestCode.POP_MESSAGE, header, deliver)

    def _deliver(self, call: Call, topic: str, group: str, is_push: bool, response: RemotingCommand) -> None:
        """Send what a receive got. Raises Refused."""
        if response.code in _NOTHING:
            raise Refused(Code.MESSAGE_NOT_FOUND, "no message")
        if response.code == POLLING_FULL:
            raise Refused(Code.TOO_MANY_REQUESTS, response.remark or "too many messages in flight")
        check(response)
        assert isinstance(response, TemplatedResponse)  # PopProcessor._response
        popped_ms, invisible_ms = response.value("popTime"), response.value("invisibleTime")
        assert isinstance(popped_ms, int) and isinstance(invisible_ms, int)
        found = {
            (Key(topic, group, stored.queue_id), stored.queue_offset): stored
            for stored in iterate_records(response.body, decompress=False)
        }
        if call.is_over or call.connection.is_full:
            self._pop.give_back(dict.fromkeys(found, popped_ms))
            raise Refused(Code.TOO_MANY_REQUESTS, "earlier messages wait for this client to take them")
        answers = [_FOUND]
        left: dict[Place, int] = {}
        inflated_bytes = 0
        for place, stored in found.items():
            if inflated_bytes > MAX_INFLATED_BYTES:
                left[place] = popped_ms  # it comes with the next receive
                continue
            offset = stored.queue_offset
            handle = ReceiptHandle(popped_ms, invisible_ms, NORMAL, self._name, stored.queue_id, offset, offset)
            answer = schema.ReceiveMessageResponse()
            inflated_bytes += max(0, fill(answer.message, stored, topic, handle.text()) - len(stored.body))
            answers.append(encoded(answer))
            if is_push:
                call.client.held.add(place, popped_ms)
            self._traces.received(call.client, group, stored, handle)
        self._pop.give_back(left)
        last = schema.ReceiveMessageResponse()
        set_ms(last.delivery_timestamp, self._now_ms())
        answers.append(encoded(last))
        call.send_encoded(b"".join(answers))
        call.finish()

    # What becomes of received messages.

    def acknowledge(self, call: Call, request: Any) -> None:
        """AckMessage. Raises Refused."""
        topic, group = legal_topic(request.topic.name), legal_group(request.group.name)
        if not request.entries:
            raise Refused(Code.BAD_REQUEST, "the request acknowledges nothing")
        acks = [(entry.message_id, entry.receipt_handle) for entry in request.entries]
        handles = [_handle(text) for _, text in acks]

        def done(responses: list[RemotingCommand]) -> None:
            answer = schema.AckMessageResponse()
            for (message_id, text), handle, response in zip(acks, handles, responses, strict=True):
                code = _code_of_handle(response)
                set_status(answer.entries.add(message_id=message_id, receipt_handle=text).status, code, response.remark)
                if code == OK:
                    call.client.held.done(topic, group, handle.queue_id, _offset(handle))
                    self._traces.consumed(call.client, group, message_id, handle, is_good=True)
            sum_up(answer)
            call.reply(answer)

        gathering = Gathering(call, len(handles), done)
        for place, ((_, text), handle) in enumerate(zip(acks, handles, strict=True)):
            gathering.ask(place, RequestCode.ACK_MESSAGE, _ack_header(topic, group, handle, text))

    def change_invisible_duration(self, call: Call, request: Any) -> None:
        """ChangeInvisibleDuration. Raises Refused."""
        topic, group = legal_topic(request.topic.name), legal_group(request.group.name)
        handle = _handle(request.receipt_handle)
        invisible_ms = to_ms(request.invisible_duration)
        if not 0 <= invisible_ms <= MAX_INVISIBLE_MS:
            text = f"an invisible duration of {invisible_ms} ms: from 0 to {MAX_INVISIBLE_MS}"
            raise Refused(Code.ILLEGAL_INVISIBLE_TIME, text)
        header = ChangeInvisibleTimeRequestHeader(
            consumer_group=group,
            topic=topic,
            queue_id=handle.queue_id,
            extra_info=request.receipt_handle,
            offset=_offset(handle),
            invisible_time=max(invisible_ms, MIN_INVISIBLE_MS),
        )

        def changed(response: RemotingCommand) -> None:
            _check_handle(response)
            was_held = call.client.held.done(topic, group, handle.queue_id, _offset(handle))
            if was_held:  # a simple consumer may only want more time
                self._traces.consumed(call.client, group, request.message_id, handle, is_good=False)
            answer = response.header(ChangeInvisibleTimeResponseHeader)
            new = handle._replace(popped_ms=answer.pop_time, invisible_ms=answer.invisible_time)
            call.reply(schema.ChangeInvisibleDurationResponse(receipt_handle=new.text()))

        ask(call, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header, changed)

    def forward_to_dead_letters(self, call: Call, request: Any) -> None:
        """ForwardMessageToDeadLetterQueue: the message goes to the dead letters, and then counts as acknowledged.
        Raises Refused."""
        topic, group = legal_topic(request.topic.name), legal_group(request.group.name)
        handle = _handle(request.receipt_handle)
        entries = self._reading.queue_entries(topic, handle.queue_id, _offset(handle), 1)
        if not entries:
            raise Refused(Code.INVALID_RECEIPT_HANDLE, "the message of the handle is not stored any more")
        back = {
            "group": group,
            "offset": str(entries[0][0]),
            "delayLevel": TO_DEAD_LETTERS,
            "originMsgId": request.message_id,
            "originTopic": topic,
        }

        def acknowledged(response: RemotingCommand) -> None:
            _check_handle(response)
            call.client.held.done(topic, group, handle.queue_id, _offset(handle))
            self._traces.consumed(call.client, group, request.message_id, handle, is_good=False)
            call.reply(schema.ForwardMessageToDeadLetterQueueResponse())

        def sent_back(response: RemotingCommand) -> None:
            check(response)
            header = _ack_header(topic, group, handle, request.receipt_handle)
            ask(call, RequestCode.ACK_MESSAGE, header, acknowledged)

        ask(call, RequestCode.CONSUMER_SEND_MSG_BACK, back, sent_back)

    def query_assignment(self, call: Call, request: Any) -> None:
        """QueryAssignment: every consumer receives from all queues of a broker at once, or from each of them, if the
        group consumes in order. Raises Refused."""
        self._routes.assign(call, request, by_queue=self._is_in_order(request.group.name))

    def _is_in_order(self, group: str) -> bool:
        config = self._groups.get(group)
        return config is not None and config.consume_message_orderly is True


def _wait_ms(call: Call, request: Any) -> int:
    """Return how long a receive may be held: as long as it says, but answered before its deadline."""
    timeout = call.head.timeout_seconds
    if request.HasField("long_polling_timeout"):
        seconds = min(max(to_ms(request.long_polling_timeout) / 1000, LEAST_WAIT_SECONDS), MOST_WAIT_SECONDS)
    else:
        seconds = MOST_WAIT_SECONDS
    if timeout is not None:
        seconds = min(seconds, max(0.0, timeout - ANSWER_SECONDS))
    return int(seconds * 1000)


def _attempt(request: Any) -> str:
    """Return the id of an attempt to receive in order. Raises Refused."""
    attempt: str = request.attempt_id
    if len(attempt) > NAME_CHARACTERS:
        raise Refused(Code.BAD_REQUEST, f"an attempt_id of {len(attempt)} characters, at most {NAME_CHARACTERS}")
    return attempt


def _handle(text: str) -> ReceiptHandle:
    try:
        handle = parse_handle(text)
    except ReceiptHandleError as error:
        raise Refused(Code.INVALID_RECEIPT_HANDLE, str(error)) from None
    if handle.queue_offset is None:
        raise Refused(Code.INVALID_RECEIPT_HANDLE, f"the receipt handle {text[:64]!r} names no message")
    return handle


def _offset(handle: ReceiptHandle) -> int:
    assert handle.queue_offset is not None
    return handle.queue_offset


def _ack_header(topic: str, group: str, handle: ReceiptHandle, text: str) -> AckMessageRequestHeader:
    return AckMessageRequestHeader(
        consumer_group=group, topic=topic, queue_id=handle.queue_id, extra_info=text, offset=_offset(handle)
    )


def _code_of_handle(response: RemotingCommand) -> int:
    """Return the status for the response to a request that names a handle."""
    if response.code == ResponseCode.NO_MESSAGE:
        return int(Code.INVALID_RECEIPT_HANDLE)
    return code_of(response)


def _check_handle(response: RemotingCommand) -> None:
    """Raise Refused unless a request that names a handle succeeded."""
    code = _code_of_handle(response)
    if code != OK:
        raise Refused(code, response.remark or "")
