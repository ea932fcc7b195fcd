"""Redirection: what a message becomes before it is stored elsewhere than its sender said, or once more.

A delayed message and a half message wait in a topic of the broker's own, a delayed one for its time, a half one for the
end of its transaction, with their real topic and queue in their properties (RocketMQ: CommitLog.asyncPutMessage,
TransactionalMessageBridge). A message that the store would refuse in its real queue is not redirected: so the store
refuses it now, while its sender waits, and not when it is due. Retries and dead letters are messages that are stored
again.
"""

from __future__ import annotations

from triomq.protocol import property_names as names
from triomq.protocol import stored_properties, sys_flag
from triomq.protocol.message_id import offset_message_id
from triomq.protocol.record import RecordFields
from triomq.protocol.system_topics import SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from triomq.store.delay import DelayLevels
from triomq.store.results import MessageToStore
from triomq.store.writing.appending import refusal_of


def delay(message: MessageToStore, level_text: str, levels: DelayLevels, wait: str | None = None) -> None:
    """Redirect a message to the queue of its delay level, which its DELAY has as `level_text`; one below 1 is none. A
    level above the last one is lowered to the last one. `wait` is its WAIT, if its properties have lost that on their
    way here."""
    if message.sys_flag & sys_flag.TRANSACTION_PREPARED:
        return
    try:
        level = int(level_text)
    except ValueError:
        return
    if level <= 0:
        return
    added: dict[str, str] = {}
    if level > levels.max_level:
        level = levels.max_level
        added[names.DELAY] = str(level)
    if _redirect(message, SCHEDULE_TOPIC, level - 1, added, wait):
        message.deliver_after_ms = levels.delay_ms(level)


def hold(message: MessageToStore, wait: str | None = None) -> None:
    """Redirect the first half of a transaction. `wait` as in `delay`."""
    _redirect(message, TRANS_HALF_TOPIC, 0, {}, wait)
    message.sys_flag = sys_flag.with_transaction_type(message.sys_flag, sys_flag.TRANSACTION_NOT)


def _redirect(message: MessageToStore, topic: str, queue_id: int, added: dict[str, str], wait: str | None) -> bool:
    if refusal_of(message.topic, message.queue_id) is not None:
        return False
    if wait is not None:
        added[names.WAIT] = wait
    added[names.REAL_TOPIC] = message.topic
    added[names.REAL_QUEUE_ID] = str(message.queue_id)
    message.properties = message.properties.with_(added)
    message.topic = topic
    message.queue_id = queue_id
    return True


def stored_again(record: RecordFields, body: bytes, physical_offset: int, reconsume_times: int) -> MessageToStore:
    """Return the message of a record for another topic; it names the topic and the id that it had first."""
    first = {
        names.RETRY_TOPIC: record.topic.decode("utf-8", "replace"),
        names.ORIGIN_MESSAGE_ID: offset_message_id(record.store_host, physical_offset),
    }
    properties = stored_properties.read(record.properties).table()
    return MessageToStore(
        topic="",
        queue_id=0,
        body=body,
        properties=stored_properties.of({**first, **properties}),
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=record.store_host,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=reconsume_times,
    )
