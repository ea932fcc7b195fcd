"""The backlog of groups in the last hour and day, which the dashboard draws."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from broker_shown import shown
from broker_whole import WholeBroker, whole_broker

from triomq.broker.figures import lag_history
from triomq.broker.figures.lag_history import DAY_POINTS, HOUR_POINTS, SAMPLES_OF_A_DAY_POINT, LagHistory


async def commit(broker: WholeBroker, group: str, offset: int) -> None:
    fields = {"consumerGroup": group, "topic": "T", "queueId": 0, "commitOffset": offset}
    assert (await broker.ask(15, fields)).code == 0


def history_of(broker: WholeBroker) -> LagHistory:
    assert broker.controller.serving is not None
    return LagHistory(broker.controller.serving)


async def test_the_backlog_of_a_group_has_a_past(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        for _ in range(5):
            await broker.send("T")
        past = history_of(broker)
        assert (past.hour("G"), past.day("G")) == ([], [])
        for offset in (1, 3, 5):
            await commit(broker, "G", offset)
            await past.sample()
        assert past.hour("G") == [4, 2, 0]
        for _ in range(SAMPLES_OF_A_DAY_POINT - 3):
            await past.sample()
        assert past.day("G") == [0]
        assert past.hour("nobody") == []
        assert past.hour("TOOLS_CONSUMER") == []


async def test_the_past_is_bounded_in_points_and_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_history, "MOST_GROUPS", 2)
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", queues=1)
        for group in ("first", "second", "third"):
            await commit(broker, group, 0)
        past = history_of(broker)
        for _ in range(HOUR_POINTS + 5):
            await past.sample()
        lengths = sorted(len(past.hour(group)) for group in ("first", "second", "third"))
        assert lengths == [0, HOUR_POINTS, HOUR_POINTS]
        [left_out] = [group for group in ("first", "second", "third") if not past.hour(group)]
        gone = "first" if left_out != "first" else "second"
        assert (await broker.ask(207, {"groupName": gone, "removeOffset": "true"})).code == 0
        await past.sample()
        assert (past.hour(gone), len(past.hour(left_out))) == ([], 1), "one that is gone makes room"
        assert DAY_POINTS * SAMPLES_OF_A_DAY_POINT == 24 * 60


async def test_the_page_of_a_group_draws_its_backlog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_history, "SAMPLE_SECONDS", 0.01)
    async with shown(tmp_path) as here:
        await here.broker.create_topic("T", queues=1)
        await here.broker.send("T")
        await commit(here.broker, "G", 0)
        with trio.fail_after(30):
            while not (data := await here.data("/group", name="G"))["lag_hour"]:
                await trio.lowlevel.checkpoint()
        assert set(data["lag_hour"]) == {1}
        page = (await here.get("/group?name=G"))[1]
        assert ("<polyline" in page, "Last hour" in page) == (True, True)
