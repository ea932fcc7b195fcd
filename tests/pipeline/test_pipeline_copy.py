"""`mqpipeline copy` between two clusters: what arrives, in which order, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from copied import Admin, Message, MessageQueue, bodies, copy, create, messages, send

from triomq.blocking import Producer, PullConsumer, PushConsumer
from triomq.testing import LocalCluster

TEXTS = [f"m{number}" for number in range(100)]


def test_messages_arrive_in_their_queues_in_order_as_they_were(
    east: LocalCluster, west: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(east, "Orders", 3)
    send(east, "Orders", TEXTS, 3)
    with Producer("writers", name_server=east.name_server) as producer:
        large = producer.send(Message("Orders", b"x" * 20_000))  # compressed
    assert copy(east, west, tmp_path, "--topics", "Orders") == 0
    assert capsys.readouterr().out.endswith("101 messages of 1 topics copied\n")
    ours, theirs = messages(east, "Orders"), messages(west, "Orders")
    assert sorted(theirs) == [0, 1, 2]
    for number, found in theirs.items():
        assert [message.body for message in found] == [message.body for message in ours[number]]
        for one, other in zip(found, ours[number], strict=True):
            assert (one.tags, one.keys, one.msg_id) == (other.tags, other.keys, other.msg_id)
            assert (one.born_timestamp, one.flag) == (other.born_timestamp, other.flag)
            assert one.properties.get("number") == other.properties.get("number")
            assert "COPY_SOURCE" not in one.properties
    assert large.message_id in {message.msg_id for found in theirs.values() for message in found}
    send(east, "Orders", ["later"], 3)
    assert copy(east, west, tmp_path, "--topics", "Orders") == 0
    assert bodies(west, "Orders") == bodies(east, "Orders")


def test_batches_have_the_born_time_of_their_first_message(
    east: LocalCluster, west: LocalCluster, tmp_path: Path
) -> None:
    create(east, "Batched", 1)
    send(east, "Batched", TEXTS, 1)
    assert copy(east, west, tmp_path, "--topics", "Batched", "--born-within-ms", "60000") == 0
    found = messages(west, "Batched")[0]
    assert [message.body.decode() for message in found] == TEXTS
    assert len({message.born_timestamp for message in found}) == 3, "rounds of 32, 64 and 4 messages"
    assert [message.msg_id for message in found] == [message.msg_id for message in messages(east, "Batched")[0]]


def test_names_are_matched_excluded_and_changed(east: LocalCluster, west: LocalCluster, tmp_path: Path) -> None:
    for topic in ("PayIn", "PayOut", "PayTest"):
        create(east, topic, 1)
        send(east, topic, [topic], 1)
    words = ("--topics", "Pay*", "--exclude", "*Test", "--rename", "PayOut=Paid")
    assert copy(east, west, tmp_path, *words) == 0
    assert (bodies(west, "PayIn"), bodies(west, "Paid")) == ({0: [b"PayIn"]}, {0: [b"PayOut"]})
    with Admin(name_server=west.name_server) as admin:
        assert {"PayOut", "PayTest"}.isdisjoint(admin.topics())


def test_a_group_continues_where_it_was_and_is_never_moved_back(
    east: LocalCluster, west: LocalCluster, tmp_path: Path
) -> None:
    create(east, "Bills", 1)
    create(west, "Bills", 1)
    send(west, "Bills", ["theirs", "theirs too"], 1)  # so offsets differ
    send(east, "Bills", TEXTS, 1)
    queues = [MessageQueue("Bills", next(iter(each.brokers)), 0) for each in (east, west)]
    with Admin(name_server=east.name_server) as admin:
        admin.create_group("billing")
        admin.set_offset("billing", queues[0], 40)
    words = ("--topics", "Bills", "--groups", "bill*")
    assert copy(east, west, tmp_path, *words) == 0
    with PullConsumer("billing", name_server=west.name_server) as consumer:
        offset = consumer.committed_offset(queues[1], from_store=True)
        assert offset == 42
        assert consumer.pull(queues[1], "*", offset).messages[0].body == b"m40"
    with Admin(name_server=west.name_server) as admin:
        assert admin.group_config(west.brokers[queues[1].broker_name], "billing") is not None
        admin.set_offset("billing", queues[1], 60)
        assert copy(east, west, tmp_path, *words) == 0
        assert admin.offset("billing", queues[1]) == 60


def test_with_exactly_once_a_lost_state_is_read_back_from_the_target(
    east: LocalCluster, west: LocalCluster, tmp_path: Path
) -> None:
    create(east, "Once", 2)
    send(east, "Once", TEXTS, 2)
    words = ("--topics", "Once", "--exactly-once")
    assert copy(east, west, tmp_path / "one", *words) == 0
    send(east, "Once", ["one more"], 2)
    assert copy(east, west, tmp_path / "two", *words) == 0
    assert bodies(west, "Once") == bodies(east, "Once")
    broker = next(iter(east.brokers))
    places = {message.properties["COPY_SOURCE"] for message in messages(west, "Once")[1]}
    assert places == {f"east/Once/{broker}/1/{offset}" for offset in range(50)}


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--topics", "Nothing"], "--from: topic 'Nothing' does not exist"),
        (["--topics", "TBW102"], "--from: topic 'TBW102' is a topic of the system"),
        (["--topics", "*", "--groups", "nobody"], "--from: group 'nobody' does not exist"),
        (["--topics", "Wide"], "--to: target topic 'Wide' has 2 queues, the source has 3; give it more"),
        (["--topics", "Wide", "--rename", "Wide=a b"], "--rename: 'a b': The specified topic contains illegal"),
        (["--topics", "Wide", "--from", "127.0.0.1:9"], "--from: no name server responded (127.0.0.1:9: Conn"),
        (["--topics", "Wide", "--to", "127.0.0.1:9"], "--to: no name server responded (127.0.0.1:9: Conn"),
        (["--topics", "Wide", "--to", "nowhere"], "--to: option nameServer: 'nowhere' is not host:port"),
    ],
)
def test_what_is_wrong_is_one_line(
    east: LocalCluster,
    west: LocalCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    line: str,
) -> None:
    create(east, "Wide", 3)
    create(west, "Wide", 2)
    short = ("--from-option", "retryTimeoutMs=100", "--to-option", "retryTimeoutMs=100")
    assert copy(east, west, tmp_path, *short, *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"mqpipeline copy: {line}")
    assert error.count("\n") == 1


def test_a_cluster_is_not_copied_into_itself(
    east: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(east, "Loop", 1)
    send(east, "Loop", ["a"], 1)
    assert copy(east, east, tmp_path, "--topics", "Loop") == 2
    assert "topic 'Loop' would be copied into itself" in capsys.readouterr().err
    assert copy(east, east, tmp_path, "--topics", "Loop", "--rename", "Loop=Loop2") == 0
    assert bodies(east, "Loop2") == {0: [b"a"]}


def test_a_dry_run_says_what_would_be_made(
    east: LocalCluster, west: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(east, "Dry", 2)
    send(east, "Dry", ["a", "b", "c"], 2)
    assert copy(east, west, tmp_path / "state", "--topics", "Dry", "--dry-run") == 0
    broker = next(iter(west.brokers))
    line = f"topic Dry -> Dry: 2 queues, 3 messages; the target would be made at {broker}\n"
    assert capsys.readouterr().out.endswith(line)
    assert not (tmp_path / "state").exists()
    with Admin(name_server=west.name_server) as admin:
        assert "Dry" not in admin.topics()


def test_a_group_with_members_at_the_target_is_moved_by_force_only(
    east: LocalCluster, west: LocalCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    create(east, "Held", 1)
    create(west, "Idle", 1)
    send(east, "Held", TEXTS[:10], 1)
    queues = [MessageQueue("Held", next(iter(each.brokers)), 0) for each in (east, west)]
    with Admin(name_server=east.name_server) as admin:
        admin.create_group("held")
        admin.set_offset("held", queues[0], 4)
    words = ("--topics", "Held", "--groups", "held")
    with Admin(name_server=west.name_server) as admin:
        admin.create_group("held")
    with Admin(name_server=west.name_server) as admin, PushConsumer("held", name_server=west.name_server) as member:
        member.subscribe("Idle")
        member.receive(timeout_seconds=0.1)
        assert admin.members("held")
        assert copy(east, west, tmp_path, *words) == 0
        assert (admin.offset("held", queues[1]) or 0) == 0
        line = "group 'held' has members at the target; its offsets there stay as they are\n"
        assert capsys.readouterr().err == f"mqpipeline copy: {line}"
        assert copy(east, west, tmp_path, *words, "--force") == 0
        assert admin.offset("held", queues[1]) == 4
