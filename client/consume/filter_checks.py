"""SQL92 filters are shown to the brokers before anything waits for messages: one that cannot work raises.

Otherwise a consumer whose broker does not filter, or cannot read the expression, would wait forever while pulls fail.
RocketMQ's client asks the same (MQClientInstance.checkClientInBroker), but only when it starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import trio

from triomq.client.core import cluster_requests
from triomq.client.core.errors import BrokerRefused, ConfigurationError, MQClientError
from triomq.client.core.log import get_logger
from triomq.client.instance.client import Client
from triomq.protocol.codes import ResponseCode
from triomq.protocol.subscription import SubscriptionData

log = get_logger("triomq.client.consumer")

R = TypeVar("R")
_UNSUPPORTED = "does not support"


class FilterChecks:
    """The SQL92 subscriptions of one consumer. Topics are wire names."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group
        self._unchecked: dict[str, SubscriptionData] = {}
        self._refused: dict[str, str] = {}
        self._waiting: set[trio.CancelScope] = set()

    @property
    def are_settled(self) -> bool:
        """Whether brokers have accepted all filters."""
        return not self._unchecked and not self._refused

    def unchecked(self) -> list[str]:
        """Return the topics whose brokers were not asked yet."""
        return list(self._unchecked)

    def subscribed(self, subscription: SubscriptionData) -> None:
        """Note a subscription, which replaces the one before."""
        self.unsubscribed(subscription.topic)
        if not subscription.is_tag:
            self._unchecked[subscription.topic] = subscription

    def unsubscribed(self, topic: str) -> None:
        self._unchecked.pop(topic, None)
        self._refused.pop(topic, None)

    async def check(self, topic: str) -> None:
        """Ask the brokers of a topic with a known route, unless they have accepted its filter. A broker that does not
        answer is asked again in the next round. A refusal ends the calls that wait for messages."""
        subscription = self._unchecked.get(topic)
        route = self._client.routes.get(topic)
        if subscription is None or route is None:
            return
        for broker in route.data.broker_datas:
            try:
                address = (await self._client.readable_broker(broker.broker_name, topic)).address
                await self._client.call(
                    address, cluster_requests.check_subscription(self._client.client_id, self._group, subscription)
                )
            except BrokerRefused as error:
                if error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED or _UNSUPPORTED in (error.remark or ""):
                    self._refuse(subscription, broker.broker_name, error)
                    return
            except MQClientError as error:
                log.debug("filter not checked yet", topic=topic, error=str(error))
                return
        if self._unchecked.get(topic) is subscription:
            del self._unchecked[topic]

    def _refuse(self, subscription: SubscriptionData, broker_name: str, error: BrokerRefused) -> None:
        topic = subscription.topic
        if self._unchecked.get(topic) is not subscription:
            return  # the application has changed it meanwhile
        del self._unchecked[topic]
        why = error.remark or f"code {error.code}"
        if _UNSUPPORTED in why:
            why += " (set enablePropertyFilter=true there)"
        text = f"the filter of topic {self._client.namespace.unwrap(topic)!r} cannot work at {broker_name}: {why}"
        log.error("filter refused by a broker", group=self._group, reason=text, filter=subscription.sub_string)
        self._refused[topic] = text
        for scope in self._waiting:
            scope.cancel()

    def raise_refusal(self) -> None:
        """Raise ConfigurationError if a broker has refused a filter."""
        for text in self._refused.values():
            raise ConfigurationError(text)

    async def guard(self, function: Callable[..., Awaitable[R]], *args: object) -> R:
        """Call what waits for messages. Raises ConfigurationError, also in the middle of it, when a filter is refused;
        then it has taken no message."""
        self.raise_refusal()
        with trio.CancelScope() as scope:
            self._waiting.add(scope)
            try:
                return await function(*args)
            finally:
                self._waiting.discard(scope)
        self.raise_refusal()
        return await self.guard(function, *args)  # the filter was replaced in the same moment
