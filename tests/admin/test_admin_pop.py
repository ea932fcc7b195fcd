"""`mqadmin pop show` and `pop release` against a running cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fake_cluster import fake_cluster
from verb_calls import items, lines

from triomq.admin.__main__ import main
from triomq.blocking import ConsumeFromWhere, SimpleConsumer

Capture = pytest.CaptureFixture[str]
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def group(request: pytest.FixtureRequest, at_cluster: None, capsys: Capture, cluster: Any) -> Iterator[str]:
    """A group that has received 3 of the messages of each of two queues, of which 4 and 3 are there."""
    name = "".join([each for each in request.node.name if each.isalnum()])[:60]
    assert main(["updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "2", "-w", "2"]) == 0
    capsys.readouterr()
    [broker] = {item["brokerName"] for item in items(["config", "get", "brokerName"], capsys)}
    for queue, count in (("0", "4"), ("1", "3")):
        items(["send", name, "x", "-b", broker, "-q", queue, "-c", count], capsys)
    with SimpleConsumer(name, name_server=cluster.name_server, consume_from=FIRST) as consumer:
        consumer.subscribe(name)
        received = 0
        while received < 6:
            received += len(consumer.receive(6 - received, invisible_seconds=600, wait_seconds=1))
    yield name


def in_flight(group: str, capsys: Capture) -> list[int]:
    return [item["inFlight"] for item in items(["pop", "show", group], capsys)]


def test_what_is_in_flight_is_shown_by_queue(group: str, capsys: Capture) -> None:
    found = items(["pop", "show", group, "--topic", group], capsys)
    assert [item["queueId"] for item in found] == [0, 1]
    assert sum(item["inFlight"] for item in found) == 6
    assert sum(item["ready"] for item in found) == 1
    for item in found:
        assert (item["group"], item["topic"], item["mostAttempts"], item["oldestOffset"]) == (group, group, 1, 0)
        assert item["nextOffset"] == item["inFlight"]
        assert 0 <= item["oldestAgeMs"] < 600_000
    assert group in {item["group"] for item in items(["pop", "show"], capsys)}
    assert lines(["pop", "show", group], capsys)[0].split()[:4] == ["GROUP", "TOPIC", "BROKER", "QUEUE"]
    assert items(["pop", "show", "nosuch"], capsys) == []
    assert main(["pop", "show", "--broker", "nosuch"]) == 3


def test_a_queue_or_all_of_a_group_is_released_after_consent(group: str, capsys: Capture) -> None:
    before = in_flight(group, capsys)
    assert main(["pop", "release", group]) == 2
    printed = capsys.readouterr()
    assert f"let {before[0]} messages in flight of topic {group}, queue 0, be received again" in printed.err
    assert "nothing was changed: --yes does this" in printed.err
    plan = [line for line in lines(["pop", "release", group, "-t", group, "-q", "1", "--dry-run"], capsys) if line]
    assert len([line for line in plan if "messages in flight" in line]) == 1
    assert in_flight(group, capsys) == before

    [item] = items(["pop", "release", group, "-t", group, "-q", "1", "--yes"], capsys)
    assert item["released"] == before[1]
    assert in_flight(group, capsys) == [before[0], 0]
    assert [item["released"] for item in items(["pop", "release", group, "--yes"], capsys)] == [before[0]]
    assert in_flight(group, capsys) == [0, 0]
    assert sum(item["ready"] for item in items(["pop", "show", group], capsys)) == 7
    assert main(["pop", "release", group, "-q", "1", "--yes"]) == 2


def test_a_broker_that_has_no_such_request_is_named(capsys: Capture) -> None:
    with fake_cluster() as fake, fake_cluster() as older:
        older.refusals = dict.fromkeys((106, 30_001, 30_002), (3, "request type not supported"))
        for words in (["show"], ["release", "G", "--yes"]):
            assert main(["pop", *words, "-n", fake.address, "--broker", older.address]) != 0
            assert f"{older.address} does not tell what is in flight" in capsys.readouterr().err
