"""Names, permissions, queues and subscriptions: the small values of the protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol import permission, system_topics
from triomq.protocol.errors import RequestRefused
from triomq.protocol.java import string_hash
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SubscriptionError, build_subscription


@pytest.mark.parametrize("topic", ["T", "%RETRY%G", "a|b", "A-b_9", "x" * 127])
def test_good_topic_names(topic: str) -> None:
    system_topics.check_topic_name(topic)


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        (None, "The specified topic is blank."),
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("T\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("ä", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, "The specified topic is longer than topic max length."),
    ],
)
def test_bad_topic_names(topic: str | None, remark: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        system_topics.check_topic_name(topic)
    assert (refused.value.code, refused.value.remark) == (1, remark)
    assert isinstance(refused.value, ValueError)


def test_system_topics_are_refused() -> None:
    for topic in [*system_topics.SYSTEM_TOPICS, "rmq_sys_mine", "DefaultCluster"]:
        with pytest.raises(system_topics.TopicReserved) as refused:
            system_topics.check_not_system_topic(topic, {"DefaultCluster"})
        assert refused.value.code == 1
        assert refused.value.remark == f"The topic[{topic}] is conflict with system topic."
    system_topics.check_not_system_topic("DefaultCluster")


def test_sending_to_broker_topics_is_refused() -> None:
    with pytest.raises(system_topics.TopicNotForSending) as refused:
        system_topics.check_may_send("SCHEDULE_TOPIC_XXXX")
    assert refused.value.code == 16
    assert refused.value.remark == "Sending message to topic[SCHEDULE_TOPIC_XXXX] is forbidden."
    system_topics.check_may_send("TBW102")
    assert system_topics.NOT_ALLOWED_SEND_TOPICS < system_topics.SYSTEM_TOPICS


def test_derived_names() -> None:
    assert system_topics.retry_topic("G") == "%RETRY%G"
    assert system_topics.group_of_retry_topic("%RETRY%G") == "G"
    assert system_topics.dlq_topic("G") == "%DLQ%G"
    assert system_topics.reply_topic("C") == "C_REPLY_TOPIC"
    assert system_topics.is_lmq("%LMQ%x")
    assert not system_topics.is_lmq(None)
    assert system_topics.is_retry_topic("%RETRY%G")
    assert not system_topics.is_retry_topic("%DLQ%G")


@pytest.mark.parametrize(("perm", "text"), [(0, "---"), (2, "-W-"), (4, "R--"), (6, "RW-"), (7, "RWX")])
def test_permission_text(perm: int, text: str) -> None:
    assert permission.perm_text(perm) == text
    assert permission.is_readable(perm) == ("R" in text)
    assert permission.is_writeable(perm) == ("W" in text)
    assert permission.is_inherited(perm) == ("X" in text)


def test_queues_are_ordered_as_in_java() -> None:
    queues = [MessageQueue(topic, broker, number) for topic in "ba" for broker in "dc" for number in (10, 9)]
    assert sorted(queues) == [
        MessageQueue(topic, broker, number) for topic in "ab" for broker in "cd" for number in (9, 10)
    ]
    assert len(set(queues)) == 8
    assert str(queues[0]) == "MessageQueue [topic=b, brokerName=d, queueId=10]"


@pytest.mark.parametrize("expression", [None, "", "*"])
@pytest.mark.parametrize("expression_type", [None, "", "TAG"])
def test_no_expression_and_a_star_subscribe_to_everything(expression: str | None, expression_type: str | None) -> None:
    data = build_subscription("T", expression, expression_type, sub_version=5)
    assert (data.sub_string, data.tags_set, data.code_set, data.sub_version) == ("*", frozenset(), frozenset(), 5)
    assert data.expression_type == "TAG"


def test_tags_are_split_at_double_bars_and_trimmed() -> None:
    data = build_subscription("T", " TagA ||TagB||| | || ")
    assert data.tags_set == {"TagA", "TagB", "| |"}
    assert data.code_set == {2598919, 2598920, string_hash("| |")}
    assert data.sub_string == " TagA ||TagB||| | || "
    assert data.is_tag


@pytest.mark.parametrize("expression", ["||", " || ", " "])
def test_no_tag_left(expression: str) -> None:
    with pytest.raises(SubscriptionError):
        build_subscription("T", expression)


def test_sql() -> None:
    data = build_subscription("T", "a > 5", "SQL92", sub_version=1)
    assert (data.sub_string, data.expression_type, data.tags_set) == ("a > 5", "SQL92", frozenset())
    assert not data.is_tag
    with pytest.raises(SubscriptionError):
        build_subscription("T", "", "SQL92")


@given(st.lists(st.text(st.characters(exclude_characters="|", codec="utf-8"), min_size=1), min_size=1))
def test_tags_of_any_text(tags: list[str]) -> None:
    wanted = {tag.strip() for tag in tags} - {""}
    if not wanted or tags == ["*"]:
        return
    data = build_subscription("T", "||".join(tags))
    assert data.tags_set == wanted
    assert data.code_set == {string_hash(tag) for tag in wanted}
