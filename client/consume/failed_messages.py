"""What becomes of messages that the application failed to consume: their brokers deliver them again later.

A broker that cannot take a message back (it is down, or has no such group) is replaced by any other: the message is
sent again as a new one, to the group's retry topic, by a sender of its own.
"""

from __future__ import annotations

from triomq.client.core import requests
from triomq.client.core.errors import MQClientError
from triomq.client.core.log import get_logger
from triomq.client.core.outgoing import SendRules
from triomq.client.instance.client import Client
from triomq.client.produce.sender import Attempts, Sender
from triomq.protocol import dead_letters, system_topics
from triomq.protocol import property_names as names
from triomq.protocol.message import Message, MessageExt

log = get_logger("triomq.client.consume")

DEFAULT_MAX_RECONSUME_TIMES = 16
DEAD_LETTER_REASON = dead_letters.REASON
"""The property of a dead letter that says why it is one."""

DEAD_LETTER_TRIES = dead_letters.TRIES
"""The property of a dead letter that was given up early: how often it was delivered. Its reconsume times are above the
limit of the group, or no broker would store it there."""
MAX_REASON_LENGTH = 500
ANY_DELAY_LEVEL = (1 << 31) - 1
"""Delay levels of retries grow with each delivery; a broker takes its highest level for those beyond."""


class FailedMessages:
    """Hands failed messages of one group back to the brokers; those that are given up, with the reason."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        rules = SendRules(max_delay_level=ANY_DELAY_LEVEL)
        # Until a name server knows the retry topic of a new group, messages go by the route of the default topic, which
        # has more queues than the retry topic: one, unless the group says otherwise.
        attempts = Attempts(default_topic_queues=1)
        self._sender = Sender(client, system_topics.CLIENT_INNER_PRODUCER_GROUP, attempts=attempts, rules=rules)

    async def deliver_again(
        self, message: MessageExt, broker_name: str, delay_level: int, max_times: int, reason: str | None = None
    ) -> bool:
        """Hand a failed message to its broker, or else to any broker as a new message of the retry topic. Return False
        (and log it) when neither worked. `reason`: why it goes to the dead letter topic."""
        # A message that comes back with a reason was not moved by its broker, so that must take it back.
        is_new = reason is not None and DEAD_LETTER_REASON not in message.properties
        if is_new and await self._bury(message, max_times, reason or ""):
            return True
        try:
            address = await self._client.master_of(broker_name)
            await self._client.call(
                address,
                requests.send_back(
                    self._group,
                    message,
                    delay_level=delay_level,
                    max_reconsume_times=max_times,
                    unit_mode=self._client.config.unit_mode,
                ),
            )
            return True
        except MQClientError as error:
            log.warning("message not sent back", group=self._group, id=message.msg_id, error=str(error))
        try:
            await self._sender.send(retry_message(self._group, message, delay_level, max_times))
        except MQClientError as error:
            log.warning("message retried by this consumer", group=self._group, id=message.msg_id, error=str(error))
            return False
        return True

    async def _bury(self, message: MessageExt, max_times: int, reason: str) -> bool:
        """Store a message in the dead letter topic together with the reason, which no message that its broker takes
        back can carry. Return False when that did not work."""
        reason = printable(reason)
        letter = retry_message(self._group, message, -1, max_times)
        letter.properties.pop(names.DELAY, None)
        letter.properties[DEAD_LETTER_REASON] = reason
        letter.properties[DEAD_LETTER_TRIES] = str(message.reconsume_times + 1)
        try:
            await self._sender.send(letter)
        except MQClientError as error:
            log.warning("reason not stored", group=self._group, id=message.msg_id, error=str(error))
            return False
        log.warning(
            "message given up",
            group=self._group,
            id=message.msg_id,
            tries=message.reconsume_times + 1,
            now_in=system_topics.dlq_topic(self._group),
            reason=reason,
        )
        return True


def printable(reason: str) -> str:
    """Return a reason that fits into a property: without characters that separate properties, and not too long."""
    text = " ".join("".join(char if char.isprintable() else " " for char in reason).split())
    return text if len(text) <= MAX_REASON_LENGTH else text[: MAX_REASON_LENGTH - 1] + "…"


def retry_message(group: str, failed: MessageExt, delay_level: int, max_times: int) -> Message:
    """Return the new message that stands for a failed one when its broker cannot take it back (RocketMQ:
    DefaultMQPushConsumerImpl.sendMessageBack)."""
    properties = dict(failed.properties)
    for name in (names.TRANSACTION_PREPARED, names.CONSUME_START_TIME, names.WAIT):
        properties.pop(name, None)
    properties.setdefault(names.ORIGIN_MESSAGE_ID, failed.msg_id)
    properties[names.RETRY_TOPIC] = failed.topic
    # More than the limit, not as many: 5.x moves a message to the dead letter topic only then.
    times = max_times + 1 if delay_level < 0 else failed.reconsume_times + 1
    properties[names.RECONSUME_TIME] = str(times)
    properties[names.MAX_RECONSUME_TIMES] = str(max_times)
    properties[names.DELAY] = str(delay_level if delay_level > 0 else 3 + failed.reconsume_times)
    return Message(system_topics.retry_topic(group), failed.body, flag=failed.flag, properties=properties)
