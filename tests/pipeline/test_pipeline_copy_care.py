"""What a copy must get right: positions of queues that rest, groups after a lost state, copies in both directions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from copied import Admin, MessageQueue, bodies, copy, create, messages, send

from triomq.pipeline.copying.copier import Pace
from triomq.pipeline.copying.offset_map import OffsetMap
from triomq.pipeline.copying.requests_at import ask_all
from triomq.pipeline.copying.selection import placed
from triomq.pipeline.copying.sending import advance
from triomq.pipeline.copying.state import QueueCopy
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError
from triomq.spark.options import OptionTable, connection_options
from triomq.testing import LocalCluster


def test_positions_of_a_broker_that_is_away_are_kept(east: LocalCluster, west: LocalCluster, tmp_path: Path) -> None:
    create(east, "Resting", 1)
    send(east, "Resting", ["a"], 1)
    assert copy(east, west, tmp_path, "--topics", "Resting") == 0
    file = tmp_path / "Resting.json"
    data = json.loads(file.read_bytes())
    away = {"broker": "away", "queue": 0, "toBroker": "far", "toQueue": 0, "next": 4711, "runs": [[0, 0, 4711]]}
    data["queues"].append(away)
    file.write_text(json.dumps(data))
    send(east, "Resting", ["b"], 1)
    assert copy(east, west, tmp_path, "--topics", "Resting") == 0
    queues = json.loads(file.read_bytes())["queues"]
    assert away in queues
    assert [queue["next"] for queue in queues if queue != away] == [2]


def test_the_place_of_a_resting_queue_is_nobody_elses() -> None:
    def queues(topic: str, broker: str, count: int) -> list[MessageQueue]:
        return [MessageQueue(topic, broker, number) for number in range(count)]

    (away,) = queues("S", "gone", 1)
    places = placed(queues("S", "a", 1), queues("T", "a", 2), {away: MessageQueue("T", "a", 0)})
    assert places == {MessageQueue("S", "a", 0): MessageQueue("T", "a", 1)}


def test_queues_of_a_target_broker_that_is_away_stay_its_own(
    east: LocalCluster, west: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is made or enlarged at another broker."""
    create(east, "Absent", 2)
    assert copy(east, west, tmp_path, "--topics", "Absent") == 0
    with Admin(name_server=west.name_server) as admin:
        admin.delete_topic("Absent")
    file = tmp_path / "Absent.json"
    data = json.loads(file.read_bytes())
    for queue in data["queues"]:
        queue["toBroker"] = "away"
    file.write_text(json.dumps(data))
    assert copy(east, west, tmp_path, "--topics", "Absent") == 0
    create(east, "Absent", 3)
    assert copy(east, west, tmp_path, "--topics", "Absent") == 2
    line = "--to: broker 'away' of topic 'Absent' is not registered at the name server\n"
    assert capsys.readouterr().err == f"mqpipeline copy: {line}"
    with Admin(name_server=west.name_server) as admin:
        assert "Absent" not in admin.topics()


def test_a_group_does_not_pass_messages_of_which_nothing_is_noted(
    east: LocalCluster, west: LocalCluster, tmp_path: Path
) -> None:
    """With a lost state only the tail of the target is read, and some messages before it."""
    create(east, "Lost", 1)
    send(east, "Lost", [f"m{number}" for number in range(300)], 1)
    words = ("--topics", "Lost", "--exactly-once")
    assert copy(east, west, tmp_path / "one", *words) == 0
    queues = [MessageQueue("Lost", next(iter(each.brokers)), 0) for each in (east, west)]
    with Admin(name_server=east.name_server) as admin:
        admin.create_group("late")
        admin.set_offset("late", queues[0], 40)
    assert copy(east, west, tmp_path / "two", *words, "--groups", "late") == 0
    with Admin(name_server=west.name_server) as admin:
        assert 37 <= (admin.offset("late", queues[1]) or 0) <= 40, "of every third message the place is known"
    assert bodies(west, "Lost") == bodies(east, "Lost")


def test_a_group_begins_anew_in_a_target_topic_that_was_made_anew(
    east: LocalCluster, west: LocalCluster, tmp_path: Path
) -> None:
    create(east, "Anew", 1)
    send(east, "Anew", ["a", "b", "c"], 1)
    words = ("--topics", "Anew", "--exactly-once", "--groups", "anew")
    queues = [MessageQueue("Anew", next(iter(each.brokers)), 0) for each in (east, west)]
    with Admin(name_server=east.name_server) as admin:
        admin.create_group("anew")
        admin.set_offset("anew", queues[0], 3)
    assert copy(east, west, tmp_path, *words) == 0
    with Admin(name_server=west.name_server) as admin:
        assert admin.offset("anew", queues[1]) == 3
        admin.delete_topic("Anew")
    create(west, "Anew", 1)
    send(east, "Anew", ["d"], 1)
    assert copy(east, west, tmp_path, *words) == 0
    assert bodies(west, "Anew") == {0: [b"d"]}
    with Admin(name_server=west.name_server) as admin:
        assert (admin.offset("anew", queues[1]) or 0) == 0


def test_queues_that_the_source_gets_are_copied_too(east: LocalCluster, west: LocalCluster, tmp_path: Path) -> None:
    create(east, "Grown", 1)
    send(east, "Grown", ["a"], 1)
    assert copy(east, west, tmp_path, "--topics", "Grown") == 0
    create(east, "Grown", 3)
    send(east, "Grown", ["b", "c", "d"], 3)
    assert copy(east, west, tmp_path, "--topics", "Grown") == 0
    assert bodies(west, "Grown") == {0: [b"a", b"b"], 1: [b"c"], 2: [b"d"]}


@pytest.mark.parametrize("more", [(), ("--exactly-once",)])
def test_two_clusters_are_copied_into_each_other(
    east: LocalCluster, west: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    topic = f"Both{len(more)}"
    create(east, topic, 1)
    create(west, topic, 1)
    send(east, topic, ["east"], 1)
    send(west, topic, ["west"], 1)
    for _ in range(2):
        assert copy(east, west, tmp_path / "there", "--topics", topic, *more) == 0
        assert copy(west, east, tmp_path / "back", "--topics", topic, *more) == 0
    assert bodies(east, topic) == {0: [b"east", b"west"]}
    assert bodies(west, topic) == {0: [b"west", b"east"]}
    assert "1 messages came from cluster 'east' and were not copied back\n" in capsys.readouterr().out
    assert messages(west, topic)[0][1].properties["COPY_CLUSTERS"] == "east"


def test_clusters_of_one_name_must_be_told_apart(
    east: LocalCluster, west: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(east, "Same", 1)
    send(east, "Same", ["a"], 1)
    named = ("--topics", "Same", "--source-name", "x", "--target-name", "x")
    assert copy(east, west, tmp_path / "there", *named) == 0
    assert copy(west, east, tmp_path / "back", *named) == 2
    error = capsys.readouterr().err
    assert error.endswith("both sides are called 'x': tell them apart with --source-name and --target-name\n")
    assert bodies(east, "Same") == {0: [b"a"]}


def test_what_the_source_lacks_between_messages_is_counted() -> None:
    queue = MessageQueue("T", "a", 0)
    one = QueueCopy(queue, queue, 10, OffsetMap())
    advance(one, 13, 1, [11])
    advance(one, 20, 0, [11, 15])
    assert (one.counts.copied, one.counts.returned, one.counts.lost, one.next_offset) == (1, 2, 7, 20)


def test_a_rate_does_not_save_what_was_not_used() -> None:
    now = 0.0
    pace = Pace(10, lambda: now)
    pace.add(20)
    assert pace.wait_seconds() == 2
    now = 3600.0
    assert pace.wait_seconds() == 0
    pace.add(20)
    assert pace.wait_seconds() == 1.5


def test_what_the_target_lost_after_it_was_confirmed_is_sent_again(
    east: LocalCluster, west: LocalCluster, tmp_path: Path
) -> None:
    """As after a change of masters: the state knows more than the target has, and others have written since."""
    create(east, "Behind", 1)
    send(east, "Behind", [f"m{number}" for number in range(60)], 1)
    words = ("--topics", "Behind", "--exactly-once")
    assert copy(east, west, tmp_path, *words) == 0
    send(east, "Behind", ["m60", "m61"], 1)
    file = tmp_path / "Behind.json"
    data = json.loads(file.read_bytes())
    data["queues"][0] |= {"next": 62, "runs": [[0, 0, 62]]}
    file.write_text(json.dumps(data))
    send(west, "Behind", ["other"] * 5, 1)
    assert copy(east, west, tmp_path, *words) == 0
    assert bodies(west, "Behind")[0] == [*bodies(east, "Behind")[0][:60], *[b"other"] * 5, b"m60", b"m61"]


def test_a_queue_without_news_is_asked_less_often() -> None:
    queue = MessageQueue("T", "a", 0)
    one = QueueCopy(queue, queue, 0, OffsetMap())
    rests = []
    for _ in range(6):
        one.rest(100.0)
        rests.append(round(one.rests_until - 100.0, 3))
    assert rests == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_name_servers_that_are_silent_are_asked_once_for_all_queues() -> None:
    """Otherwise each queue would wait for retryTimeoutMs."""

    class Silent(Cluster):
        asked = 0

        def address(self, topic: str, broker_name: str) -> str:
            self.asked += 1
            raise BrokerError("asking the name servers failed (tried for 5000 ms)")

    cluster = Silent(connection_options(OptionTable({"nameServer": "127.0.0.1:9"}, ())))
    queues = [MessageQueue("T", "a", number) for number in range(100)]
    results = ask_all(cluster, {queue: (queue, lambda: new_request(RequestCode.PULL_MESSAGE)) for queue in queues})
    assert cluster.asked == 1
    assert {str(results[queue]) for queue in queues} == {"asking the name servers failed (tried for 5000 ms)"}


def test_a_state_that_cannot_be_used_is_one_line(
    east: LocalCluster, west: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(east, "Stated", 1)
    create(west, "Other", 1)
    send(east, "Stated", ["a"], 1)
    words = ("--topics", "Stated")
    assert copy(east, west, tmp_path / "good", *words) == 0
    (tmp_path / "file").touch()
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "Stated.json").write_text('{"source": "east", "targ')
    for state, more, line in (
        ("file", (), "cannot be used: File exists\n"),
        ("torn", (), "; without it the topic is copied again\n"),
        ("good", ("--rename", "Stated=Other"), "is of a copy to 'Stated' from 'east'; use another directory\n"),
        ("good", ("--source-name", "x"), "is of a copy to 'Stated' from 'east'; use another directory\n"),
    ):
        assert copy(east, west, tmp_path / state, *words, *more) == 2
        error = capsys.readouterr().err
        assert error.startswith("mqpipeline copy: --state: ")
        assert error.endswith(line)
        assert error.count("\n") == 1
