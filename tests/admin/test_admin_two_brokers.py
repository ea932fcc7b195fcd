"""Verbs in a cluster of two brokers: each is asked for what is its own, and gets what belongs to it."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from fake_cluster import FakeCluster, fake_cluster
from stored_records import encoded
from verb_calls import items, typed

from triomq.admin.__main__ import main
from triomq.admin.diagnosis import Finding
from triomq.admin.diagnosis.topics import examine_topics
from triomq.admin.output import Output
from triomq.admin.run import Run
from triomq.admin.session import Session

Capture = pytest.CaptureFixture[str]
FOUND, NO_NEW_MESSAGE, NOT_FOUND = 0, 19, 22
PULL, QUERY, UPDATE_OFFSET, UPDATE_CONFIG, RESET, SEND = 11, 12, 15, 25, 222, 310


class Broker(FakeCluster):
    """A broker of two queues. `addresses` are those of all brokers by name, `bodies` what its first queue holds."""

    def __init__(self, name: str, addresses: dict[str, str]) -> None:
        super().__init__()
        self.name = name
        self.addresses = addresses
        self.bodies: list[bytes] = []
        self.more: dict[int, Any] = {}

    @property
    def sent(self) -> list[bytes]:
        return [body for _, _, body in self._sends()]

    def fields_of(self, wanted: int) -> list[dict[str, str]]:
        return [fields for code, fields, _ in self.requests if code == wanted]

    def _bodies(self) -> dict[int, Any]:
        brokers = [
            {"brokerName": name, "cluster": "C", "brokerAddrs": {"0": address}}
            for name, address in self.addresses.items()
        ]
        queues = [
            {"brokerName": name, "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 0}
            for name in self.addresses
        ]
        ends = {
            json.dumps({"topic": "T", "brokerName": self.name, "queueId": number}): {
                "minOffset": 0,
                "maxOffset": 0 if number else len(self.bodies),
                "lastUpdateTimestamp": 1,
            }
            for number in (0, 1)
        }
        return {
            **super()._bodies(),
            105: {"brokerDatas": brokers, "queueDatas": queues, "filterServerTable": {}},
            106: {
                "brokerAddrTable": {broker["brokerName"]: broker for broker in brokers},
                "clusterAddrTable": {"C": list(self.addresses)},
            },
            202: {"offsetTable": ends},
            **self.more,
        }

    def answer(self, code: int, fields: dict[str, str], body: bytes) -> tuple[int, str, dict[str, str], bytes]:
        answer = super().answer(code, fields, body)
        if code == PULL:
            at, count = int(fields["queueOffset"]), len(self.bodies)
            bounds = {"nextBeginOffset": str(count), "minOffset": "0", "maxOffset": str(count)}
            held = self.bodies[at:]
            if fields["queueId"] != "0" or not held:
                return NO_NEW_MESSAGE, "", bounds, b""
            tail = bytearray()
            for number, each in enumerate(held, at):
                encoded(fields["topic"].encode(), each, queue_offset=number, physical_offset=number * 1000, tail=tail)
            return FOUND, "", bounds, bytes(tail)
        if code == QUERY:
            for _, sent, kept in self._sends():
                if f"UNIQ_KEY\x01{fields['key']}\x02" in sent["i"] + "\x02":
                    return FOUND, "", {}, bytes(encoded(sent["b"].encode(), kept, sent["i"].encode()))
            return NOT_FOUND, "nothing has this key", {}, b""
        return answer

    def _sends(self) -> list[tuple[int, dict[str, str], bytes]]:
        return [request for request in self.requests if request[0] == SEND]


@contextmanager
def two_brokers(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Broker, Broker]]:
    """Yield the brokers "b" and "c"; the first one answers for the NameServer."""
    addresses: dict[str, str] = {}
    first, second = Broker("b", addresses), Broker("c", addresses)
    with fake_cluster(first), fake_cluster(second):
        addresses |= {"b": first.address, "c": second.address}
        monkeypatch.setenv("NAMESRV_ADDR", first.address)
        yield first, second


def test_dead_letters_are_resent_at_the_broker_that_holds_them_where_a_second_run_finds_them(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    words = ["dlq", "resend", "G", "--all", "--yes"]
    with two_brokers(monkeypatch) as (first, second):
        second.bodies = [b"0", b"1", b"2", b"3"]
        first_run = items(words, capsys)
        assert [(item["sendStatus"], item["brokerName"]) for item in first_run] == [("SEND_OK", "c")] * 4
        assert (first.sent, second.sent) == ([], second.bodies)
        second_run = items(words, capsys)
        assert [(item["sendStatus"], item["brokerName"]) for item in second_run] == [("RESENT_BEFORE", "c")] * 4
        assert len(second.sent) == 4


def test_letters_that_were_resent_are_no_finding(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with two_brokers(monkeypatch) as (first, second):
        now = time.time_ns() // 1_000_000
        first.more = {206: {"topicList": ["%DLQ%G"]}, 202: {"offsetTable": {}}}
        second.bodies = [b"0", b"1", b"2", b"3"]
        second.more = {202: {"offsetTable": queue_ends("c", 4, now)}}
        assert dead_letters_found(capsys) == ["group G gave up on messages within a day: 4 dead letters"]
        assert main(["dlq", "resend", "G", "--all", "--yes"]) == 0
        capsys.readouterr()
        assert dead_letters_found(capsys) == []
        second.bodies.append(b"4")
        second.more = {202: {"offsetTable": queue_ends("c", 5, now)}}
        assert dead_letters_found(capsys) == ["group G gave up on messages within a day: 1 dead letter"]


def queue_ends(name: str, end: int, last_ms: int) -> dict[str, Any]:
    queue = json.dumps({"topic": "%DLQ%G", "brokerName": name, "queueId": 0})
    return {queue: {"minOffset": 0, "maxOffset": end, "lastUpdateTimestamp": last_ms}}


def dead_letters_found(capsys: Capture) -> list[str]:
    main(["doctor", "--output", "json"])
    found = json.loads(capsys.readouterr().out)
    return [each["what"] for each in found if each["code"] == "dead-letters"]


def progress_of(broker: str, offset: int, last_ms: int) -> dict[str, Any]:
    queue = json.dumps({"topic": "T", "brokerName": broker, "queueId": 0})
    row = {"brokerOffset": 10, "consumerOffset": offset, "lastTimestamp": last_ms}
    return {"consumeTps": 1.0, "offsetTable": {queue: row}}


def member(name: str) -> dict[str, Any]:
    one = {"clientId": name, "clientAddr": "127.0.0.1:1", "language": "JAVA", "version": 407}
    return {"connectionSet": [one], "subscriptionTable": {}}


@contextmanager
def readers(monkeypatch: pytest.MonkeyPatch, *, online: bool) -> Iterator[tuple[Broker, Broker]]:
    """A group that is 2 messages behind at "b", which has stored nothing since, and 4 at "c"."""
    with two_brokers(monkeypatch) as (first, second):
        first.more = {208: progress_of("b", 8, 1_000), 203: member("1@m") if online else {}}
        second.more = {208: progress_of("c", 6, 1 << 50), 203: member("2@m") if online else {}}
        for broker in (first, second):
            broker.bodies = [b"x"] * 10
        yield first, second


def test_the_lag_of_a_group_is_that_of_all_brokers_and_its_members_are_those_of_all(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with readers(monkeypatch, online=True):
        [lag] = items(["lag", "--atLeast", "6"], capsys)
        assert (lag["backlog"], lag["members"], lag["behindMs"] > 0) == (6, 2, True)
        assert items(["lag", "--atLeast", "7"], capsys) == []
        assert [row["brokerName"] for row in items(["lag", "G"], capsys)] == ["c", "b"]


def test_a_reset_with_members_online_is_passed_on_by_each_broker(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with readers(monkeypatch, online=True) as (first, second):
        items(["offsets", "reset", "G", "T", "--to", "first", "--yes"], capsys)
        assert [len(broker.fields_of(RESET)) for broker in (first, second)] == [1, 1]


def test_a_reset_at_one_broker_leaves_the_other_as_it_is(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with readers(monkeypatch, online=False) as (first, second):
        words = ["offsets", "reset", "G", "T", "--queue", "0", "--yes"]
        [moved] = items([*words, "--broker", "c", "--to", "+3"], capsys)
        assert (moved["brokerName"], moved["before"], moved["offset"]) == ("c", 6, 9)
        assert (first.fields_of(UPDATE_OFFSET), len(second.fields_of(UPDATE_OFFSET))) == ([], 1)
        moved_both = items([*words, "--to", "-7"], capsys)
        assert [(each["brokerName"], each["offset"]) for each in moved_both] == [("b", 1), ("c", 0)]


def test_the_plan_of_a_reset_names_the_broker_and_invents_no_offset(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with readers(monkeypatch, online=False):
        assert main(["offsets", "reset", "G", "T", "--to", "first", "--broker", "c", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  set the offset of group G in topic T, broker c, queue 0: 6 -> 0",
        "  set the offset of group G in topic T, broker c, queue 1: - -> 0",
    ]


def test_the_progress_of_a_group_without_a_retry_topic_is_shown_by_the_command_that_the_error_names(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    with readers(monkeypatch, online=False) as (first, _):
        first.refusals[105] = (17, "no route")
        assert main(["consumerProgress", "-g", "G"]) == 3
        assert "group 'G' has no retry topic" in (error := capsys.readouterr().err)
        assert "`mqadmin lag G`" in error
        assert [row["backlog"] for row in items(["lag", "G"], capsys)] == [4, 2]


def test_all_lines_are_sent_when_nobody_reads_the_output_any_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with two_brokers(monkeypatch) as brokers, open(writing, "w") as output:
        typed(b"".join(b"%d\n" % number for number in range(50)), monkeypatch)
        monkeypatch.setattr(sys, "stdout", output)
        status = main(["send", "T", "--lines"])
        monkeypatch.undo()
    assert (status, sum(len(broker.sent) for broker in brokers)) == (0, 50)


def test_a_quota_of_a_cluster_is_set_at_each_of_its_brokers(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    with two_brokers(monkeypatch) as brokers:
        items(["quota", "set", "group", "G", "messagesIn=1", "--cluster", "C", "--yes"], capsys)
        assert [len(broker.fields_of(UPDATE_CONFIG)) for broker in brokers] == [1, 1]


def findings_of_topics(address: str) -> list[Finding]:
    with Session(address) as session:
        return list(examine_topics(Run(session, {}, cast(Output, None))))


def test_letters_of_today_at_the_first_of_two_brokers_are_recent(monkeypatch: pytest.MonkeyPatch) -> None:
    recent, old = {"lastUpdateTimestamp": 1 << 50}, {"lastUpdateTimestamp": 1}
    with two_brokers(monkeypatch) as (first, second):
        for broker, last in ((first, recent), (second, old)):
            queue = json.dumps({"topic": "%DLQ%G", "brokerName": broker.name, "queueId": 0})
            broker.more = {
                202: {"offsetTable": {queue: {"minOffset": 0, "maxOffset": 2, **last}}},
                206: {"topicList": ["%DLQ%G"]},
            }
        [found] = findings_of_topics(first.address)
    assert (found.code, "4 dead letters" in found.what) == ("dead-letters", True)


def test_a_wiped_permission_is_told_by_the_broker_that_lost_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with two_brokers(monkeypatch) as (first, second):
        first.more = {206: {"topicList": ["T"]}, 21: {"topicConfigTable": {"T": {"perm": 4}}}}
        second.more = {21: {"topicConfigTable": {"T": {"perm": 6}}}}
        route = first._bodies()[105]
        route["queueDatas"][1]["perm"] = 4
        first.more[105] = route
        [found] = findings_of_topics(first.address)
    assert (found.code, found.subject) == ("wiped", "c")


def test_a_backup_of_one_cluster_has_its_brokers_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with two_brokers(monkeypatch) as (first, _):
        brokers = {
            name: {"brokerName": name, "cluster": cluster, "brokerAddrs": {"0": address}}
            for (name, address), cluster in zip(first.addresses.items(), ("C", "D"), strict=True)
        }
        first.more[106] = {"brokerAddrTable": brokers, "clusterAddrTable": {"C": ["b"], "D": ["c"]}}
        first.more[219] = {"table": {}}
        assert main(["backup", str(tmp_path / "saved"), "--cluster", "D"]) == 0
    saved = json.loads((tmp_path / "saved" / "backup.json").read_bytes())
    assert (saved["clusters"], saved["brokers"].keys()) == ({"D": ["c"]}, {"c"})


@pytest.mark.parametrize(("second_remark", "status"), [("AclException: no", 5), ("busy", 1)])
def test_what_all_brokers_refuse_for_one_reason_has_its_exit_status(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture, second_remark: str, status: int
) -> None:
    with two_brokers(monkeypatch) as (first, second):
        first.refusals[17] = (1, "AclException: no")
        second.refusals[17] = (1, second_remark)
        assert main(["updateTopic", "-c", "C", "-t", "T"]) == status
    assert capsys.readouterr().err.count("refused") == 2
