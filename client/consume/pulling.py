"""One pull, as all consumers do it: which broker, which request, which messages of the response.

Remembers for each queue which replica the broker suggested last. Owned by one consumer; `forget` bounds the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from triomq.client.core import requests
from triomq.client.core.hooks import FilterHook
from triomq.client.core.log import get_logger
from triomq.client.core.namespace import Namespace
from triomq.client.core.results import PullResult
from triomq.client.instance.client import Client
from triomq.client.instance.user_errors import concerns_one_call
from triomq.protocol import property_names as names
from triomq.protocol import sys_flag, system_topics
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.message import MessageExt, may_have
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SubscriptionData

log = get_logger("triomq.client.pull")

PREPARED = names.TRANSACTION_PREPARED.encode()


class Puller:
    """Pulls for one group. Queues and topics are wire names; messages come back with the application's names."""

    def __init__(self, client: Client, group: str, filter_hooks: Sequence[FilterHook] = ()) -> None:
        self._client = client
        self._group = group
        self._retry_topic = system_topics.retry_topic(group)
        self._filter_hooks = filter_hooks
        self._suggested_ids: dict[MessageQueue, int] = {}

    def forget(self, queue: MessageQueue) -> None:
        self._suggested_ids.pop(queue, None)

    async def pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        queue_offset: int,
        *,
        max_count: int,
        suspend_seconds: float = 0.0,
        timeout_seconds: float = 10.0,
        send_expression: bool = True,
    ) -> PullResult:
        """Return up to `max_count` messages from `queue_offset` on.

        `suspend_seconds`: how long the broker may hold the request until there is a message. `send_expression`: False
        when the broker knows it from heartbeats. Raises BrokerRefused, BrokerUnreachable, BrokerUnknown,
        OperationTimeout, NoRoute.
        """
        broker = await self._client.readable_broker(queue.broker_name, queue.topic, self._suggested_ids.get(queue, 0))
        flags = 0
        if suspend_seconds > 0:
            flags |= sys_flag.PULL_SUSPEND
        if send_expression:
            flags |= sys_flag.PULL_SUBSCRIPTION
        header = PullMessageRequestHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            max_msg_nums=max_count,
            sys_flag=flags,
            commit_offset=0,
            suspend_timeout_millis=int(suspend_seconds * 1000),
            subscription=subscription.sub_string if send_expression else None,
            sub_version=subscription.sub_version,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        result = await self._client.call(broker.address, requests.pull(header), timeout_seconds)
        self._suggested_ids[queue] = result.suggested_broker_id
        if not result.messages:
            return result
        messages = self._kept(queue, subscription, result.messages)
        return PullResult(
            result.status,
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            messages,
            result.suggested_broker_id,
        )

    def _kept(
        self, queue: MessageQueue, subscription: SubscriptionData, messages: Sequence[MessageExt]
    ) -> Sequence[MessageExt]:
        # The broker compares only the hashes of tags, so their texts are compared here.
        if subscription.tags_set and not subscription.class_filter_mode:
            messages = [message for message in messages if message.tags in subscription.tags_set]
        for hook in self._filter_hooks:
            try:
                messages = hook.keep(self._group, queue, messages)
            except BaseException as error:
                if not concerns_one_call(error):
                    raise
                log.exception("filter hook failed", group=self._group)
        namespace = self._client.namespace
        for message in messages:
            if message.topic == self._retry_topic:
                message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
            show(message, namespace)
        return messages


def show(message: MessageExt, namespace: Namespace) -> None:
    """Give a message the topic and the transaction id that the application knows."""
    if namespace.name is not None:
        message.topic = namespace.unwrap(message.topic)
    if may_have(message, PREPARED) and message.properties.get(names.TRANSACTION_PREPARED) == "true":
        message.transaction_id = message.uniq_key
