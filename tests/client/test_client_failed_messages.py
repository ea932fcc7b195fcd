"""What a listener's results and exceptions mean, in all three facades; the last try says that it was the last."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

import triomq
from triomq import ConsumeRules, ConsumeStatus, MessageExt, RetryLater, aio, blocking
from triomq.client.consume.failed_messages import MAX_REASON_LENGTH, FailedMessages, printable, retry_message
from triomq.protocol import properties as property_text
from triomq.protocol.codes import RequestCode
from triomq.protocol.dead_letters import REASON, TRIES
from triomq.protocol.headers.send import SendMessageRequestHeaderV2

FIRST = triomq.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
Handle = Callable[[MessageExt], Any]


class OtherStatus(Enum):
    """As another library has it."""

    RECONSUME_LATER = 1


def in_trio(handle: Handle, done: Callable[[], bool], options: dict[str, Any]) -> None:
    async def later(message: MessageExt) -> Any:
        return handle(message)

    async def main() -> None:
        with trio.fail_after(LIMIT_SECONDS):
            async with triomq.PushConsumer("G", **options) as consumer:
                consumer.subscribe("T")
                consumer.listen(later)
                while not done():  # noqa: ASYNC110
                    await trio.sleep(0.01)

    trio.run(main)


def in_asyncio(handle: Handle, done: Callable[[], bool], options: dict[str, Any]) -> None:
    async def later(message: MessageExt) -> Any:
        return handle(message)

    async def main() -> None:
        async with aio.PushConsumer("G", **options) as consumer:
            consumer.subscribe("T")
            consumer.listen(later)
            while not done():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))


def in_threads(handle: Handle, done: Callable[[], bool], options: dict[str, Any]) -> None:
    waiting = threading.Event()
    with blocking.PushConsumer("G", **options) as consumer:
        consumer.subscribe("T")
        consumer.listen(handle)
        for _ in range(LIMIT_SECONDS * 100):
            if done():
                return
            waiting.wait(0.01)
        raise TimeoutError


FACADES = pytest.mark.parametrize("facade", [in_trio, in_asyncio, in_threads])


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "%RETRY%G")


def options(**rules: Any) -> dict[str, Any]:
    return {"name_server": NAME_SERVER, "consume_from": FIRST, "rules": ConsumeRules(**rules)}


def sent_back(fakes: FakeCluster) -> int:
    return len(fakes.broker.of(RequestCode.CONSUMER_SEND_MSG_BACK))


def letters(fakes: FakeCluster) -> list[tuple[str | None, str | None]]:
    """Return reason and tries of what was sent to be a dead letter."""
    found = []
    for request in fakes.broker.of(RequestCode.SEND_MESSAGE_V2):
        properties = property_text.parse(request.header(SendMessageRequestHeaderV2).properties or "")
        found.append((properties.get(REASON), properties.get(TRIES)))
    return found


@FACADES
@pytest.mark.parametrize(
    "value", [None, True, 0, 2, "saved", {"id": 7}, [], 0.0, ConsumeStatus.CONSUME_SUCCESS, float("nan")], ids=repr
)
def test_a_message_is_consumed_whatever_value_the_listener_returns(
    facade: Callable[..., None], value: object, fakes: FakeCluster
) -> None:
    fakes.broker.store("T", 0, b"x", b"y")
    seen: list[bytes] = []

    def handle(message: MessageExt) -> object:
        seen.append(message.body)
        return value

    facade(handle, lambda: len(seen) == 2, options())
    assert fakes.broker.offsets["G", "T", 0] == 2
    assert sent_back(fakes) == 0


class Odd:
    """A value without a usable comparison, as arrays and tables have none."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]


@FACADES
def test_a_value_that_cannot_be_compared_is_a_value_like_others(
    facade: Callable[..., None], fakes: FakeCluster
) -> None:
    fakes.broker.store("T", 0, b"x", b"y")
    seen: list[bytes] = []

    def handle(message: MessageExt) -> object:
        seen.append(message.body)
        return Odd()

    facade(handle, lambda: len(seen) == 2, options())
    assert (fakes.broker.offsets["G", "T", 0], sent_back(fakes)) == (2, 0)


@FACADES
@pytest.mark.parametrize(
    "value",
    [False, ConsumeStatus.RECONSUME_LATER, ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, OtherStatus.RECONSUME_LATER],
    ids=repr,
)
def test_a_status_that_asks_for_it_and_false_have_a_message_delivered_again(
    facade: Callable[..., None], value: object, fakes: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fakes.broker.store("T", 0, b"x")
    facade(lambda _: value, lambda: sent_back(fakes) == 1, options())
    assert ("listener returned False" in caplog.text) is (value is False)
    assert letters(fakes) == []


def fail(error: Exception, _: MessageExt) -> None:
    raise error


@FACADES
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("payment gateway down"), "RuntimeError: payment gateway down"),
        (KeyError(), "KeyError"),
        (RetryLater(5), "RetryLater: deliver again later (delay level 5)"),
    ],
    ids=["error", "without text", "RetryLater"],
)
def test_the_last_failed_try_makes_a_dead_letter_with_its_reason(
    facade: Callable[..., None], error: Exception, reason: str, fakes: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fakes.broker.store("T", 0, b"x")
    facade(partial(fail, error), lambda: bool(letters(fakes)), options(max_reconsume_times=0))
    assert letters(fakes) == [(reason, "1")]
    assert sent_back(fakes) == 0
    assert "message given up" in caplog.text
    assert "now_in='%DLQ%G'" in caplog.text
    assert ("attempt='1 of 1'" in caplog.text) is ("next='none: to %DLQ%G'" in caplog.text)
    assert ("listener failed" in caplog.text) is not isinstance(error, RetryLater)


@FACADES
def test_a_listener_that_returns_false_to_the_end_is_the_reason(
    facade: Callable[..., None], fakes: FakeCluster
) -> None:
    fakes.broker.store("T", 0, b"x")
    facade(lambda _: False, lambda: bool(letters(fakes)), options(max_reconsume_times=0))
    assert letters(fakes) == [("the listener returned False", "1")]


@FACADES
def test_an_earlier_failed_try_says_which_it_was_and_when_the_next_comes(
    facade: Callable[..., None], fakes: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    fakes.broker.store("T", 0, b"x")
    facade(partial(fail, RuntimeError("down")), lambda: sent_back(fakes) == 1, options(max_reconsume_times=2))
    assert "attempt='1 of 3'" in caplog.text
    assert "next='in 10 s'" in caplog.text
    assert letters(fakes) == []


async def test_an_ordered_queue_counts_its_tries(
    fakes: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    fakes.broker.store("T", 0, b"x")
    async with triomq.PushConsumer("G", ordered=True, **options(max_reconsume_times=1, suspend_seconds=3)) as consumer:
        consumer.subscribe("T")
        consumer.listen(partial(fail_later, RuntimeError("down")))
        await trio.sleep(60)
    assert letters(fakes) == [("RuntimeError: down", "2")]
    assert "attempt='1 of 2'" in caplog.text
    assert "next='in 3 s'" in caplog.text
    assert "next='none: to %DLQ%G'" in caplog.text


async def test_an_ordered_queue_without_a_limit_names_none(
    fakes: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    fakes.broker.store("T", 0, b"x")
    async with triomq.PushConsumer("G", ordered=True, **options(suspend_seconds=3)) as consumer:
        consumer.subscribe("T")
        consumer.listen(partial(fail_later, RuntimeError("down")))
        await trio.sleep(10)
    assert "attempt='3'" in caplog.text
    assert letters(fakes) == []


async def fail_later(error: Exception, _: MessageExt) -> None:
    raise error


async def test_a_message_that_takes_too_long_at_its_last_try_has_that_for_a_reason(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.broker.store("T", 0, b"x")
    async with triomq.PushConsumer("G", **options(max_reconsume_times=0, consume_timeout_seconds=5)) as consumer:
        consumer.subscribe("T")
        consumer.listen(sleep)
        await trio.sleep(20)
    assert letters(fakes) == [("consuming took longer than 5 s", "1")]


async def sleep(_: MessageExt) -> None:
    await trio.sleep(1000)


@pytest.mark.parametrize(("asked", "level"), [(0, "5"), (1, "1"), (18, "18")])
def test_a_new_message_for_a_failed_one_has_the_delay_asked_for_or_a_growing_one(asked: int, level: str) -> None:
    failed = MessageExt("T", b"x")
    failed.reconsume_times = 2
    again = retry_message("G", failed, asked, 16)
    assert (again.topic, again.properties["DELAY"], again.properties["RECONSUME_TIME"]) == ("%RETRY%G", level, "3")


async def test_a_message_that_comes_back_with_a_reason_is_taken_back_by_its_broker(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    """To store it again, with the reason, has not moved it to the dead letters before: it would come back forever."""
    failed = MessageExt("T", b"x", properties={REASON: "no", TRIES: "1"})
    async with triomq.Producer("P", name_server=NAME_SERVER) as producer:
        await producer.client.route("T")
        assert await FailedMessages(producer.client, "G").deliver_again(failed, "a", -1, 16, "still no")
    assert (sent_back(fakes), letters(fakes)) == (1, [])


def test_a_reason_of_just_the_greatest_length_is_whole() -> None:
    assert printable("x" * MAX_REASON_LENGTH) == "x" * MAX_REASON_LENGTH
    assert printable("x" * MAX_REASON_LENGTH + "y") == "x" * (MAX_REASON_LENGTH - 1) + "…"
