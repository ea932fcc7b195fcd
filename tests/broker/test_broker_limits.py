"""Requests that arrive too late, slow commits, and how both states end by themselves."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

import pytest
import trio
import trio.testing
from broker_shown import operated
from broker_whole import send_fields, whole_broker
from msgspec.structs import replace

from triomq.broker.configuration import Configuration
from triomq.broker.limits import BREATH_SECONDS, REJECT, Limits
from triomq.broker.pools import Pools
from triomq.broker.runtime_info import RuntimeInfo
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.remoting.poller import HAS_EPOLL
from triomq.remoting.turn import Turn


class Surroundings:
    """A turn and pools under a mock clock; `pass_through` runs a request of a pool at the present time."""

    def __init__(self, clock: trio.testing.MockClock, **keys: str) -> None:
        self.clock = clock
        self.configuration = Configuration.from_values(keys)
        self.pools = Pools(self.configuration.broker)
        self.turn = Turn()
        self.stuck: str | None = None
        self.limits = Limits(self.configuration, self.pools, self.turn, stuck_buffer=lambda: self.stuck)

    def wait(self, seconds: float) -> None:
        self.clock.jump(seconds)
        self.turn.read_clock()

    def ask(self, name: str = "send") -> str | None:
        pool = getattr(self.pools, name)
        assert pool.guard is not None
        remark: str | None = pool.guard()
        return remark


@pytest.mark.parametrize(
    ("name", "limit_ms"), [("send", 200), ("pull", 5000), ("heartbeat", 31_000), ("transaction", 3000)]
)
async def test_each_kind_has_its_limit(mock_clock: trio.testing.MockClock, name: str, limit_ms: int) -> None:
    around = Surroundings(mock_clock)
    around.turn.begin()
    around.wait(limit_ms / 1000 - 0.001)
    assert around.ask(name) is None
    around.wait(0.002)
    assert around.ask(name) == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, "
        f"period in queue: {limit_ms + 1}ms, size of queue: 0"
    )
    around.turn.begin()
    assert around.ask(name) is None, "the next turn begins anew"
    assert around.limits.refused()[name] == 1


async def test_unlimited_when_switched_off_and_limits_follow_the_configuration(
    mock_clock: trio.testing.MockClock,
) -> None:
    around = Surroundings(mock_clock)
    around.turn.begin()
    around.wait(1)
    assert around.ask() is not None
    broker = around.configuration.broker
    around.configuration.broker = replace(broker, wait_time_in_send_queue_ms=2000)
    around.limits.settings_changed()
    assert around.ask() is None
    around.configuration.broker = replace(broker, broker_fast_failure_enable=False)
    around.limits.settings_changed()
    around.wait(100)
    assert [around.ask(name) for name in ("send", "pull", "heartbeat", "transaction")] == [None] * 4


async def test_requests_outside_of_turns_have_not_waited(mock_clock: trio.testing.MockClock) -> None:
    around = Surroundings(mock_clock)
    around.wait(1000)
    assert around.ask() is None


async def test_a_slow_commit_refuses_what_came_meanwhile_and_ends_by_itself(mock_clock: trio.testing.MockClock) -> None:
    around = Surroundings(mock_clock)
    around.turn.begin()
    around.limits.commit_took(1000)
    assert around.ask() is None, "that is just allowed"
    around.wait(1.5)
    around.limits.commit_took(1500)
    around.turn.begin()
    remark = around.ask()
    assert remark is not None
    assert remark.startswith("[PCBUSY_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 1500ms")
    assert around.ask("pull") is None, "only sends go to the store"
    around.limits.commit_took(0)
    around.wait(0.01)
    around.turn.begin()
    why = "the last commit of the store took 1500 ms, more than osPageCacheBusyTimeOutMills"
    assert around.ask() == f"{REJECT}: {why}"
    around.wait(BREATH_SECONDS)
    around.turn.begin()
    assert around.ask() is None
    around.wait(0.3)
    assert (around.ask() or "").startswith("[TIMEOUT_CLEAN_QUEUE]"), "the old limit counts again"


async def test_a_settings_change_does_not_end_the_pause(mock_clock: trio.testing.MockClock) -> None:
    around = Surroundings(mock_clock)
    around.turn.begin()
    around.limits.commit_took(5000)
    around.limits.settings_changed()
    around.turn.begin()
    assert (around.ask() or "").startswith("[PCBUSY_CLEAN_QUEUE]")


async def test_a_write_buffer_that_cannot_be_emptied_refuses_sends(mock_clock: trio.testing.MockClock) -> None:
    around = Surroundings(mock_clock)
    around.turn.begin()
    around.stuck = "no space for the commit log"
    around.limits.commit_took(0)
    assert around.ask() == f"{REJECT}: no space for the commit log"
    around.stuck = None
    around.limits.commit_took(0)
    assert around.ask() is None


class SlowClock:
    """trio's clock, which each GET_BROKER_RUNTIME_INFO moves ahead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step_seconds: float) -> None:
        clock_type = type(trio.lowlevel.current_clock())
        real_time = clock_type.current_time
        late_seconds = 0.0

        def current_time(clock: trio.abc.Clock) -> float:
            return real_time(clock) + late_seconds

        def slow_values(info: RuntimeInfo) -> dict[str, str]:
            nonlocal late_seconds
            late_seconds += step_seconds
            return {}

        monkeypatch.setattr(clock_type, "current_time", current_time)
        monkeypatch.setattr(RuntimeInfo, "values", slow_values)


@pytest.mark.skipif(not HAS_EPOLL, reason="without epoll each connection has turns of its own")
async def test_what_a_turn_has_no_time_for_is_late_but_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of many connections brings a slow request and a send at the same moment."""
    SlowClock(monkeypatch, 0.15)
    async with whole_broker(tmp_path, waitTimeMillsInSendQueue="200") as broker:
        await broker.create_topic("T")
        texts = {name: str(value) for name, value in send_fields("T").items()}
        host, _, port = broker.address.rpartition(":")
        streams = [await trio.open_tcp_stream(host, int(port)) for _ in range(5)]
        slow, send = new_request(28), new_request(10, ext_fields=texts, body=b"x")
        slow.opaque, send.opaque = 1, 2
        for stream in streams:  # without a pause, so that the next turn finds all of them
            with socket.socket(fileno=os.dup(stream.socket.fileno())) as sock:
                sock.send(encode_frame(slow) + encode_frame(send))
        codes = []
        for stream in streams:
            decoder = FrameDecoder()
            answers: list[RemotingCommand] = []
            with trio.fail_after(10):
                while len(answers) < 2:
                    answers += decoder.feed(await stream.receive_some())
            codes.append(sorted(answer.code for answer in answers))
            await stream.aclose()
    assert codes == [[0, 0]] * len(streams)


async def test_requests_behind_a_long_one_are_refused_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read brings a slow request with sends before and after it: only the later ones are refused, and only in that
    turn.
    """
    SlowClock(monkeypatch, 0.25)
    async with whole_broker(tmp_path, waitTimeMillsInSendQueue="200") as broker:
        await broker.create_topic("T")
        texts = {name: str(value) for name, value in send_fields("T").items()}
        requests = [
            new_request(10, ext_fields=texts, body=b"x"),
            new_request(28),
            *(new_request(10, ext_fields=texts, body=b"x") for _ in range(2)),
            new_request(34, body=b"{}"),
        ]
        for opaque, request in enumerate(requests):
            request.opaque = opaque
        answers: dict[int, RemotingCommand] = {}
        decoder = FrameDecoder()
        host, _, port = broker.address.rpartition(":")
        stream = await trio.open_tcp_stream(host, int(port))
        async with stream:
            await stream.send_all(b"".join(map(encode_frame, requests)))
            with trio.fail_after(10):
                while len(answers) < len(requests):
                    answers.update({each.opaque: each for each in decoder.feed(await stream.receive_some())})
        assert (await broker.send("T")).code == 0
    assert [answers[opaque].code for opaque in (0, 1)] == [0, 0]
    for opaque in (2, 3):
        assert answers[opaque].code == 2
        assert re.fullmatch(
            r"\[TIMEOUT_CLEAN_QUEUE\]broker busy, start flow control for a while, "
            r"period in queue: 2[5-9]\dms, size of queue: \d+",
            answers[opaque].remark or "",
        )
    assert answers[4].code != 2, "a heartbeat may wait longer"


async def test_a_send_of_the_dashboard_is_not_as_old_as_the_last_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients leave the broker alone for five seconds; then an operator sends a message."""
    SlowClock(monkeypatch, 5)  # half of what the test's own client waits for a response
    async with operated(tmp_path, waitTimeMillsInSendQueue="2000") as (here, browser):
        await here.broker.create_topic("T", queues=1)
        assert (await here.broker.ask(28)).code == 0
        status, page = await browser.act("/act/send", topic="T", tags="", keys="", body="x")
        assert (status, "The message was stored" in page) == (200, True), page
        assert len((await here.data("/messages", topic="T"))["rows"]) == 1
