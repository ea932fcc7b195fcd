"""Which filter applies to a pull: the subscription in the request, or the one that the group registered by heartbeat.

Source: PullMessageProcessor. One difference: a pull with an SQL92 expression that does not compile is refused; RocketMQ
returns every message.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

from triomq.broker.configuration import Configuration
from triomq.broker.errors import FilterError
from triomq.broker.filters.limits import MAX_EXPRESSION_CHARACTERS, REMEMBERED_CHARACTERS
from triomq.broker.pulls.message_filter import message_filter
from triomq.broker.put_responses import FAQ
from triomq.broker.tables import entry_costs
from triomq.broker.tables.consumers import ConsumerTable
from triomq.broker.tables.filters import ConsumerFilter, FilterTable
from triomq.broker.tables.groups import GroupTable
from triomq.protocol import sys_flag
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.subscription import (
    SQL92,
    SUB_ALL,
    SubscriptionData,
    SubscriptionError,
    build_subscription,
    is_tag_type,
)
from triomq.protocol.system_topics import is_retry_topic
from triomq.remoting.table_memory import TableAccount, TableMemory
from triomq.store.results import MessageFilter

BROADCASTING = "BROADCASTING"

MAX_KEPT_CHARACTERS = 1_000_000
"""Characters of the expressions whose compiled filters are kept, as long as the tables have memory."""

KEPT_SUBSCRIPTION_CHARACTERS = 1024
TYPE_CHARACTERS = 64


class FilterChooser:
    """See the module's docstring."""

    def __init__(
        self,
        configuration: Configuration,
        consumers: ConsumerTable,
        groups: GroupTable,
        filters: FilterTable,
        *,
        now_ms: Callable[[], int],
        account: TableAccount | None = None,
    ) -> None:
        self._configuration = configuration
        self._consumers = consumers
        self._groups = groups
        self._filters = filters
        self._now_ms = now_ms
        self._kept: OrderedDict[tuple[str, str, str], ConsumerFilter] = OrderedDict()
        self._kept_characters = 0
        self._account = account if account is not None else TableMemory().account("compiled filters")

    def choose(self, header: PullMessageRequestHeader) -> MessageFilter | None:
        """Return the filter of a pull, None if it wants every message. Raises RequestRefused."""
        if header.sys_flag & sys_flag.PULL_SUBSCRIPTION:
            return self.of_request(header.topic, header.consumer_group, header.subscription, header.expression_type)
        subscription = self._registered(header)
        if subscription.is_tag:
            return self._tag_filter(header.topic, subscription)
        self._check_enabled(subscription)
        return self._filter(subscription, self._registered_filter(header))

    def of_request(
        self, topic: str, group: str, expression: str | None, expression_type: str | None
    ) -> MessageFilter | None:
        """Return the filter that a request itself names, None if it wants every message. Raises RequestRefused."""
        if expression == SUB_ALL and is_tag_type(expression_type) and not self._supports_retry:
            return None  # the usual case
        try:
            is_short = expression is None or len(expression) <= KEPT_SUBSCRIPTION_CHARACTERS
            build = _kept_subscription if is_short else _subscription
            subscription = build(topic, expression, expression_type)
        except SubscriptionError:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            ) from None
        if subscription.is_tag:
            return self._tag_filter(topic, subscription)
        self._check_enabled(subscription)
        if subscription.expression_type != SQL92:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"parse the consumer's subscription failed: {unknown_type(subscription.expression_type)}",
            )
        return self._filter(subscription, self._compiled(topic, group, subscription.sub_string))

    @property
    def _supports_retry(self) -> bool:
        return self._configuration.broker.filter_support_retry

    def _tag_filter(self, topic: str, subscription: SubscriptionData) -> MessageFilter | None:
        if subscription.sub_string == SUB_ALL and not (self._supports_retry and is_retry_topic(topic)):
            return None
        return self._filter(subscription, None)

    def _filter(self, subscription: SubscriptionData, compiled: ConsumerFilter | None) -> MessageFilter | None:
        return message_filter(subscription, compiled, self._filters, support_retry=self._supports_retry)

    def _check_enabled(self, subscription: SubscriptionData) -> None:
        if not self._configuration.broker.enable_property_filter:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"The broker does not support consumer to filter message by {subscription.expression_type}",
            )

    def must_compile(self, topic: str, group: str, expression: str | None, expression_type: str | None) -> bool:
        """Return whether `of_request` would compile an expression that takes long."""
        return (
            expression is not None
            and len(expression) > REMEMBERED_CHARACTERS
            and expression_type == SQL92
            and self._configuration.broker.enable_property_filter
            and (topic, group, expression) not in self._kept
        )

    def _compiled(self, topic: str, group: str, expression: str) -> ConsumerFilter:
        """Return the filter of an expression. The most recently used ones are kept."""
        key = (topic, group, expression)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        try:
            made = ConsumerFilter(topic, group, expression, 0, self._now_ms(), None)
        except FilterError as error:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED, f"parse the consumer's subscription failed: {error}"
            ) from None
        self._kept[key] = made
        self._kept_characters += sum(map(len, key))
        self._count()
        while self._kept and (self._kept_characters > MAX_KEPT_CHARACTERS or not self._account.fits(0)):
            oldest, _ = self._kept.popitem(last=False)
            self._kept_characters -= sum(map(len, oldest))
            self._count()
        return made

    def _count(self) -> None:
        characters = entry_costs.FILTER_CHARACTER * self._kept_characters
        self._account.set(entry_costs.FILTER * len(self._kept) + characters)

    def _registered_filter(self, header: PullMessageRequestHeader) -> ConsumerFilter:
        compiled = self._filters.get(header.topic, header.consumer_group)
        if compiled is None:
            raise RequestRefused(
                ResponseCode.FILTER_DATA_NOT_EXIST,
                "The broker's consumer filter data is not exist!Your expression may be wrong!",
            )
        if compiled.client_version < header.sub_version:
            raise RequestRefused(ResponseCode.FILTER_DATA_NOT_LATEST, "the consumer's consumer filter data not latest")
        return compiled

    def _registered(self, header: PullMessageRequestHeader) -> SubscriptionData:
        """Return the subscription to the topic that the group registered by heartbeat."""
        group = self._consumers.get(header.consumer_group)
        if group is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's group info not exist\n{FAQ}")
        config = self._groups.find(header.consumer_group)
        is_broadcast = group.consumption.message_model == BROADCASTING
        if is_broadcast and config is not None and not config.consume_broadcast_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION,
                f"the consumer group[{header.consumer_group}] can not consume by broadcast way",
            )
        subscription = group.subscriptions.get(header.topic)
        if subscription is None:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_EXIST, f"the consumer's subscription not exist\n{FAQ}")
        if subscription.sub_version < header.sub_version:
            raise RequestRefused(ResponseCode.SUBSCRIPTION_NOT_LATEST, "the consumer's subscription not latest")
        return subscription


def unknown_type(expression_type: str | None) -> str:
    """Return the remark for an unknown expression type."""
    return f"the expression type {expression_type} is neither TAG nor SQL92"


def _subscription(topic: str, expression: str | None, expression_type: str | None) -> SubscriptionData:
    for text, limit in ((expression, MAX_EXPRESSION_CHARACTERS), (expression_type, TYPE_CHARACTERS)):
        if text is not None and len(text) > limit:
            raise SubscriptionError(f"it has {len(text)} characters, {limit} are allowed")
    if not is_tag_type(expression_type):
        return build_subscription(topic, expression, expression_type)
    return build_subscription(topic, expression)


_kept_subscription = lru_cache(maxsize=4096)(_subscription)
