"""The subscription of a consumer group to one topic, and its construction from a filter expression.

Source: SubscriptionData, FilterAPI, ExpressionType of RocketMQ 4.9.7. SQL92 expressions stay text here; the broker
compiles them.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from triomq.protocol.bounds import (
    SUBSCRIBED,
    TAGS,
    Bound,
    Expression,
    ExpressionType,
    SubscriptionVersion,
    Tag,
    TagCode,
    TopicName,
)
from triomq.protocol.java import string_hash

SUB_ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"


class SubscriptionError(ValueError):
    """The expression of a subscription is malformed."""


class SubscriptionData(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The subscription of a consumer group to one topic, as heartbeats carry it.

    `sub_string` is "*" for all messages, tags separated by `||` (TAG), or an expression (SQL92). `code_set` holds
    Java's String.hashCode of each tag, as consume queue entries do. `sub_version` is the creation time in ms; the
    broker keeps the newest version. Two values are equal if all their fields are, as in Java.
    """

    class_filter_mode: bool = False
    code_set: Annotated[
        frozenset[TagCode], msgspec.Meta(max_length=TAGS), Bound("hashes of tags", clients=SUBSCRIBED)
    ] = frozenset()
    expression_type: ExpressionType | None = TAG
    sub_string: Expression = SUB_ALL
    sub_version: SubscriptionVersion = 0
    tags_set: Annotated[frozenset[Tag], msgspec.Meta(max_length=TAGS), Bound("tags", clients=SUBSCRIBED)] = frozenset()
    topic: TopicName = ""

    @property
    def is_tag(self) -> bool:
        """True for tag subscriptions; an absent type counts as TAG."""
        return is_tag_type(self.expression_type)


def is_tag_type(expression_type: str | None) -> bool:
    """True for TAG, and for an absent or empty type, which RocketMQ reads as TAG."""
    return not expression_type or expression_type == TAG


def build_subscription(
    topic: str, expression: str | None, expression_type: str | None = TAG, *, sub_version: int = 0
) -> SubscriptionData:
    """Build SubscriptionData from an expression; `sub_version` is the creation time in ms.

    TAG: None, "" and "*" match all messages. Any other expression is split at `||` into tags, which are trimmed; empty
    ones are dropped. Raise `SubscriptionError` if no tag is left. An expression of another type must not be empty;
    raise `SubscriptionError` if it is.
    """
    if not is_tag_type(expression_type):
        if not expression:
            raise SubscriptionError(f"Expression can't be null! {expression_type}")
        return SubscriptionData(
            topic=topic, sub_string=expression, expression_type=expression_type, sub_version=sub_version
        )
    if not expression or expression == SUB_ALL:
        return SubscriptionData(topic=topic, sub_version=sub_version)
    tags = frozenset(tag for part in expression.split("||") if (tag := part.strip()))
    if not tags:
        raise SubscriptionError(f"subString split error: no tag in {expression!r}")
    return SubscriptionData(
        topic=topic,
        sub_string=expression,
        sub_version=sub_version,
        tags_set=tags,
        code_set=frozenset(string_hash(tag) for tag in tags),
    )
