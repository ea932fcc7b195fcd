"""The identity of one queue: topic, broker name, queue id."""

from __future__ import annotations

import msgspec

from triomq.protocol.bounds import BrokerName, QueueId, TopicName


class MessageQueue(msgspec.Struct, frozen=True, order=True, gc=False, rename="camel"):
    """One queue of a topic at one broker (org.apache.rocketmq.common.message.MessageQueue).

    Ordered by topic, broker name, queue id, as Java's compareTo does; hashable, so it can be a map key.
    JSON text: `{"brokerName":"b-a","queueId":0,"topic":"T"}` (see `protocol.bodies.fastjson` for use as a map key).
    """

    topic: TopicName
    broker_name: BrokerName
    queue_id: QueueId

    def __str__(self) -> str:
        """The text of Java's toString, which appears in logs and in responses to admin commands."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"
