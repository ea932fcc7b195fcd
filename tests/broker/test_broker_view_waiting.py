"""The dashboard's pages of dead letters, delayed and half messages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from broker_whole import WholeBroker, now_ms, whole_broker

from triomq.broker.views.waiting import Waiting
from triomq.dashboard.views import Ask, Data
from triomq.remoting.scheduling.step_line import NO_LINE


@dataclass
class Reader:
    topic: str
    name: str = "reader"
    is_admin: bool = False
    stamp: str = ""

    def may_read(self, topic: str) -> bool:
        return topic == self.topic

    def may_read_group(self, group: str) -> bool:
        return False


def pages(broker: WholeBroker) -> Waiting:
    assert broker.controller.serving is not None
    return Waiting(broker.controller.serving)


async def dead(broker: WholeBroker, viewer: Reader | None = None, **query: str) -> list[tuple[str, int]]:
    data = await NO_LINE.run(pages(broker).dead_letters(Ask(query, viewer)))
    return [(row.name, row.messages) for row in data["list"].rows]


async def waiting(broker: WholeBroker) -> Data:
    return await NO_LINE.run(pages(broker).waiting(Ask()))


async def test_dead_letters_are_counted_by_group_and_shown_to_those_who_may_read_them(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        assert await dead(broker) == []
        for group, count in (("few", 1), ("many", 3), ("none", 0)):
            await broker.create_topic(f"%DLQ%{group}", queues=1)
            for _ in range(count):
                await broker.send(f"%DLQ%{group}")
        assert await dead(broker) == [("many", 3), ("few", 1)]
        assert await dead(broker, q="FE") == [("few", 1)]
        assert await dead(broker, Reader("%DLQ%few")) == [("few", 1)]
        assert await dead(broker, Reader("other")) == []


async def test_delayed_messages_wait_by_level_with_the_time_of_the_next_delivery(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        began = now_ms()
        for _ in range(2):
            await broker.send("T", properties="DELAY\x0118")
        levels = (await waiting(broker))["levels"]
        assert [(one["level"], one["waiting"]) for one in levels if one["waiting"]] == [(18, 2)]
        assert (len(levels), levels[17]["delay_seconds"], levels[17]["queue"]) == (18, 7200, 17)
        assert 0 <= levels[17]["due_ms"] - began - 7_200_000 < 60_000
        assert levels[0]["due_ms"] is None


async def test_half_messages_wait_from_the_first_that_is_not_checked(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T")
        began = now_ms()
        await broker.send("T", sysFlag=4, properties="TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U1")
        halves = (await waiting(broker))["halves"]
        assert [(one["queue"], one["waiting"], one["next"]) for one in halves] == [(0, 1, 0)]
        assert halves[0]["oldest_ms"] >= began
