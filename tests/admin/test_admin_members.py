"""Verbs about groups whose members are online, and about slaves."""

from __future__ import annotations

from typing import Any

import pytest
from fake_cluster import TEXTS, FakeCluster, fake_cluster
from verb_calls import items, set_offset

from triomq import blocking
from triomq.admin.__main__ import main
from triomq.testing import LocalCluster

Capture = pytest.CaptureFixture[str]
RECEIVE_SECONDS = 30.0
at_cluster = pytest.mark.usefixtures("at_cluster")


@pytest.fixture
def topic(request: pytest.FixtureRequest, capsys: Capture) -> str:
    """A topic of one queue, whose name is that of the test."""
    name = "".join([each for each in request.node.name if each.isalnum()])[:60]
    assert main(["updateTopic", "-c", "DefaultCluster", "-t", name, "-r", "1", "-w", "1"]) == 0
    capsys.readouterr()
    return name


# -- offsets reset with members online ---------------------------------------------------------------------------------


def received(consumer: blocking.PushConsumer, count: int) -> list[str]:
    """Return the bodies of the next messages, each of which is settled."""
    found = []
    for _ in range(count):
        message = consumer.receive(RECEIVE_SECONDS)
        assert message is not None, found
        found.append(bytes(message.body).decode())
        consumer.ack()
    return found


@at_cluster
def test_a_reset_to_a_time_reaches_members_that_are_online(
    topic: str, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    items(["send", topic, "x", "-c", "3"], capsys)
    set_offset("readers", topic, 0, monkeypatch, capsys)  # members store theirs only every few seconds
    with blocking.PushConsumer("readers", name_server=cluster.name_server) as consumer:
        consumer.subscribe(topic)
        assert received(consumer, 3) == ["x", "x", "x"]
        moved = items(["offsets", "reset", "readers", topic, "--to", "first", "--yes"], capsys)
        assert [item["offset"] for item in moved] == [0]
        assert received(consumer, 3) == ["x", "x", "x"]


@at_cluster
def test_a_reset_reaches_members_that_have_stored_no_offset_yet(
    topic: str, cluster: LocalCluster, capsys: Capture
) -> None:
    items(["send", topic, "x", "-c", "3"], capsys)
    with blocking.PushConsumer("beginners", name_server=cluster.name_server) as consumer:
        consumer.subscribe(topic)
        assert received(consumer, 3) == ["x", "x", "x"]
        assert main(["offsets", "reset", "beginners", topic, "--to", "first", "--yes"]) == 0
        assert received(consumer, 3) == ["x", "x", "x"]


class Members(FakeCluster):
    """Group G has a member, and these stored offsets of topic T."""

    def __init__(self, stored: dict[str, int]) -> None:
        super().__init__()
        self.stored = stored

    def _bodies(self) -> dict[int, object]:
        return {**super()._bodies(), 43: {"offsetTable": {"T@G": self.stored, "T@other": {"0": 1, "1": 1}}}}


@pytest.mark.parametrize(
    ("stored", "given"),
    [({"0": 2, "1": 2}, []), ({"0": 2}, ["1"]), ({}, ["0", "1"])],
    ids=["all", "one", "none"],
)
def test_a_queue_without_an_offset_gets_one_before_members_hear_of_the_reset(
    stored: dict[str, int], given: list[str], capsys: Capture
) -> None:
    with fake_cluster(Members(stored)) as fake:
        moved = items(["offsets", "reset", "G", "T", "--to", "last", "--yes", "-n", fake.address], capsys)
    assert [item["offset"] for item in moved] == [5, 5]
    sent = [(code, fields.get("queueId"), fields.get("commitOffset")) for code, fields, _ in fake.requests]
    changes = [each for each in sent if each[0] in (15, 222)]
    assert changes == [*[(15, number, "5") for number in given], (222, None, None)]


@at_cluster
@pytest.mark.parametrize("words", ["--to 1", "--to +1", "--to -1", "--to first --queue 0", "--to last -b broker-a"])
def test_members_that_are_online_are_not_reset_to_what_they_would_overwrite(
    words: str, topic: str, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    items(["send", topic, "x", "-c", "3"], capsys)
    set_offset(topic, topic, 2, monkeypatch, capsys)
    with blocking.PushConsumer(topic, name_server=cluster.name_server) as consumer:
        consumer.subscribe(topic)
        assert len(received(consumer, 1)) == 1
        assert main(["offsets", "reset", topic, topic, *words.split(), "--yes"]) == 1
        assert f"members of group {topic!r} are online (" in capsys.readouterr().err
        # Nor are offsets copied or imported into a group with members, which would overwrite them.
        assert main(["offsets", "copy", topic, topic, "--yes"]) == 1


# -- tail --group ------------------------------------------------------------------------------------------------------


@at_cluster
def test_tail_begins_where_a_group_is_and_moves_it_nowhere(
    topic: str, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    items(["send", topic, "x", "-c", "15"], capsys)
    set_offset("reader", topic, 2, monkeypatch, capsys)
    shown = items(["tail", topic, "--group", "reader"], capsys)
    assert [item["queueOffset"] for item in shown] == list(range(2, 15))
    shown = items(["tail", topic, "--group", "reader", "--count", "2"], capsys)
    assert [item["queueOffset"] for item in shown] == [2, 3]
    assert items(["offsets", "show", "reader"], capsys)[0]["offset"] == 2
    assert main(["tail", topic, "--group", "nosuch"]) == 3
    assert main(["tail", topic, "--group", "reader", "--from", "first"]) == 2
    assert "give --from or --group" in capsys.readouterr().err


# -- check replication -------------------------------------------------------------------------------------------------


class Pair(FakeCluster):
    """Master and slave in one: both addresses answer with the end of the own log."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end
        self.slave = ""

    def _bodies(self) -> dict[int, object]:
        broker = {"brokerName": "b", "cluster": "C", "brokerAddrs": {"0": self.address, "1": self.slave}}
        return {
            **super()._bodies(),
            28: {"table": {**TEXTS, "commitLogMaxOffset": str(self.end)}},
            106: {"brokerAddrTable": {"b": broker}, "clusterAddrTable": {"C": ["b"]}},
        }


@pytest.mark.parametrize(
    ("behind", "status", "state"),
    [(0, 0, "OK"), (100, 0, "OK"), (101, 1, "WARNING"), (200, 1, "WARNING"), (201, 2, "CRITICAL"), (-50, 0, "OK")],
)
def test_the_bytes_that_a_slave_lacks_are_compared_with_the_thresholds(
    behind: int, status: int, state: str, capsys: Capture
) -> None:
    with fake_cluster(Pair(1000)) as master, fake_cluster(Pair(1000 - behind)) as slave:
        assert isinstance(master, Pair)
        master.slave = slave.address
        words = ["check", "replication", "-w", "100", "-c", "200", "-n", master.address]
        [item] = items(words, capsys, status=status)
    assert (item["status"], item["subject"], item["value"]) == (state, "b/1", max(0, behind))


def test_bytes_are_whole_numbers_in_the_text_for_monitoring(capsys: Capture) -> None:
    with fake_cluster(Pair(123_456_789)) as master, fake_cluster(Pair(0)) as slave:
        assert isinstance(master, Pair)
        master.slave = slave.address
        assert main(["check", "replication", "-n", master.address]) == 1
    expected = "REPLICATION WARNING - b/1 123456789 | 'b/1'=123456789;16777216;268435456\n"
    assert capsys.readouterr().out == expected


def test_a_slave_that_does_not_answer_is_unknown(capsys: Capture) -> None:
    with fake_cluster(Pair(1000)) as master:
        assert isinstance(master, Pair)
        master.slave = "127.0.0.1:1"
        [item] = items(["check", "replication", "-n", master.address], capsys, status=3)
    assert item["status"] == "UNKNOWN"
    assert "cannot connect to 127.0.0.1:1" in item["subject"]


# -- brokers of which only some are there ------------------------------------------------------------------------------


class Registered(FakeCluster):
    """A broker name with these ids, all at this address."""

    def __init__(self, *ids: str) -> None:
        super().__init__()
        self.ids = ids

    def _bodies(self) -> dict[int, Any]:
        found = super()._bodies()
        found[105]["brokerDatas"][0]["brokerAddrs"] = dict.fromkeys(self.ids, self.address)
        return found


def test_settings_of_slaves_are_shown_and_changed(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with fake_cluster(Registered("0", "1")) as pair:
        monkeypatch.setenv("NAMESRV_ADDR", pair.address)
        assert [item["brokerId"] for item in items(["config", "get", "key"], capsys)] == [0, 1]
        changed = items(["config", "set", "key", "new", "--yes"], capsys)
        assert [(item["brokerName"], item["brokerId"]) for item in changed] == [("b", 0), ("b", 1)]
        assert [body for code, _, body in pair.requests if code == 25] == [b"key=new\n"] * 2
        assert [item["brokerId"] for item in items(["config", "get", "-b", "b/1"], capsys)] == [1, 1]
        assert items(["config", "diff", "--all"], capsys) == []


def test_a_broker_that_refuses_a_setting_does_not_keep_the_others_from_it(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with fake_cluster(Registered("0", "1")) as pair:
        pair.refusals[25] = (1, "not now")
        monkeypatch.setenv("NAMESRV_ADDR", pair.address)
        assert main(["config", "set", "key", "new", "--yes"]) == 6
        told = capsys.readouterr().err
        assert "broker 'b' with id 0: " in told and "broker 'b' with id 1: " in told


def test_messages_are_read_from_a_slave_whose_master_is_down(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with fake_cluster(Registered("1")) as slave:
        monkeypatch.setenv("NAMESRV_ADDR", slave.address)
        assert main(["tail", "T"]) == 0
        assert 11 in slave.codes
        capsys.readouterr()
        assert main(["offsets", "show", "G"]) == 3
        assert main(["dlq", "show", "G"]) == 4
        assert "topic '%DLQ%G' has no master now: none of b is registered" in capsys.readouterr().err
