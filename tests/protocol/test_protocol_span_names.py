"""Which names the attributes of spans have: the three modes of OTEL_SEMCONV_STABILITY_OPT_IN."""

from __future__ import annotations

import pytest

from triomq.protocol.span_names import RENAMED, SpanNames

GIVEN = {"messaging.system": "rocketmq", "messaging.rocketmq.message.tag": "red", "messaging.message.id": "1"}
NEW = {"messaging.system.name": "rocketmq", "rocketmq.message.tag": "red", "messaging.message.id": "1"}


@pytest.mark.parametrize(
    ("opt_in", "named"),
    [
        ("", GIVEN),
        ("http,databases/dup", GIVEN),
        ("messagings", GIVEN),
        ("messaging", NEW),
        ("http, messaging", NEW),
        ("messaging/dup", GIVEN | NEW),
        ("messaging/dup,messaging", GIVEN | NEW),
        ("messaging, messaging/dup", GIVEN | NEW),
    ],
)
def test_the_words_of_the_variable_choose_the_names(opt_in: str, named: dict[str, str]) -> None:
    assert SpanNames(opt_in).named(GIVEN) == named


def test_no_new_name_is_an_old_one() -> None:
    assert not set(RENAMED) & set(RENAMED.values())
    assert len(set(RENAMED.values())) == len(RENAMED)
