"""What is in flight and what is ready (POP): metrics, `mqadmin pop show`, `lag`, `check lag`, `top` and the dashboard
agree, whatever happens to the messages."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from fake_cluster import GROUP, FakeCluster, fake_cluster
from free_ports import free_port
from verb_calls import items, lines

from triomq.admin.__main__ import main
from triomq.admin.cluster_view import QUERY_IN_FLIGHT
from triomq.admin.run import Run
from triomq.admin.session import Session
from triomq.blocking import Message, Producer
from triomq.broker.embedded import LocalCluster, VirtualClock
from triomq.protocol.codes import RequestCode
from triomq.protocol.message import MessageExt
from triomq.protocol.record import decode_records

Capture = pytest.CaptureFixture[str]
INVISIBLE_SECONDS = 60
NAMES = {"consumerGroup": "G", "topic": "T"}


class Counts(NamedTuple):
    in_flight: int
    ready: int


class Lab:
    """A broker in virtual time, with a topic T of one queue and the group G."""

    def __init__(self, cluster: LocalCluster, clock: VirtualClock, ports: tuple[int, int], capsys: Capture) -> None:
        self.clock = clock
        self._name_server = cluster.name_server
        [self._broker] = cluster.brokers.values()
        self._metrics_port, self._dashboard_port = ports
        self._capsys = capsys
        self._session = Session(cluster.name_server)
        self.make_topic()

    def mqadmin(self, *words: str) -> None:
        assert main([*words]) == 0
        self._capsys.readouterr()

    def make_topic(self) -> None:
        self.mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "T", "-r", "1", "-w", "1")

    def send(self, *tags: str) -> None:
        with Producer("P", name_server=self._name_server) as producer:
            for tag in tags:
                producer.send(Message("T", tag.encode(), tags=tag))

    def ask(self, code: int, **fields: Any) -> Any:
        return self._session.call(self._broker, code, {**NAMES, **fields})

    def receive(self, most: int = 32, *, order: bool = False, tags: str = "*") -> list[tuple[MessageExt, str]]:
        """Return messages with their handles."""
        fields = {"queueId": -1, "maxMsgNums": most, "invisibleTime": INVISIBLE_SECONDS * 1000, "pollTime": 0}
        wanted = {"bornTime": self.clock.now_ms(), "initMode": 0, "expType": "TAG", "exp": tags, "order": order}
        response = self._session.request(self._broker, RequestCode.POP_MESSAGE, {**NAMES, **fields, **wanted})
        if not response.body:
            return []
        of = response.fields
        handle = f"0 {of.get('popTime')} {of.get('invisibleTime')} 0 0 broker-a 0"
        return [(message, f"{handle} {message.queue_offset}") for message in decode_records(response.body)]

    def acknowledge(self, message: MessageExt, handle: str) -> None:
        self.ask(RequestCode.ACK_MESSAGE, queueId=0, extraInfo=handle, offset=message.queue_offset)

    def expire(self) -> None:
        self.clock.advance(INVISIBLE_SECONDS + 1)

    def everywhere(self) -> dict[str, Counts | int]:
        """Return the counts of each place; those of places that know only the sum as a number."""
        [shown] = items(["pop", "show", "G", "--topic", "T"], self._capsys)
        [of_queue] = items(["lag", "G", "--topic", "T"], self._capsys)
        [of_group] = [item for item in items(["lag", "--topic", "T"], self._capsys) if item["group"] == "G"]
        page = self._json("/api/group?name=G")
        [received] = page["received"]
        [queue] = page["queues"]
        [listed] = [row for row in self._json("/api/groups")["list"]["rows"] if row["name"] == "G"]
        [checked] = items(["check", "lag", "G"], self._capsys)
        top = items(["top", "--once", "-i", "0.1"], self._capsys)
        return {
            "metrics": self._metrics(),
            "pop show": Counts(shown["inFlight"], shown["ready"]),
            "lag of a queue": Counts(of_queue["inFlight"], of_queue["ready"]),
            "lag of the group": Counts(of_group["inFlight"], of_group["ready"]),
            "page by queue": Counts(received["in_flight"], received["ready"]),
            "page of the group": Counts(page["group"]["in_flight"], page["group"]["ready"]),
            "list of groups": Counts(listed["in_flight"], listed["ready"]),
            "backlogs of lag": of_queue["backlog"],
            "backlog of the group": of_group["backlog"],
            "backlog of the page": queue["lag"],
            "top": sum(item["backlog"] for item in top if (item["kind"], item["name"]) == ("group", "G")),
            "check lag": int(checked["values"]["G"]),
        }

    def agree(self, in_flight: int, ready: int) -> None:
        """Fail unless all places say this."""
        found = self.everywhere()
        counts, total = Counts(in_flight, ready), in_flight + ready
        assert {place: value for place, value in found.items() if value not in (counts, total)} == {}
        assert found["metrics"] == counts

    def _metrics(self) -> Counts:
        text = self._fetch(self._metrics_port, "/metrics")

        def value(name: str) -> int:
            samples = re.findall(rf"^rocketmq_consumer_{name}_messages{{(.*)}} (\d+)", text, re.MULTILINE)
            [found] = [number for labels, number in samples if '"T"' in labels and '"G"' in labels]
            return int(found)

        in_flight, ready = value("inflight"), value("ready")
        assert value("lag") == in_flight + ready
        return Counts(in_flight, ready)

    def _json(self, path: str) -> Any:
        return json.loads(self._fetch(self._dashboard_port, path))

    @staticmethod
    def _fetch(port: int, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
            return str(response.read().decode())


@pytest.fixture
def lab(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    ports = free_port(), free_port()
    settings = {"metricsPort": str(ports[0]), "dashboardPort": str(ports[1])}
    clock = VirtualClock()
    with LocalCluster(clock=clock, settings=settings) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        monkeypatch.setattr(Run, "pause", lambda _, seconds: None)  # `top` waits before its picture
        yield Lab(cluster, clock, ports, capsys)


@pytest.mark.parametrize("order", [False, True])
def test_counts_agree_after_receive_acknowledgement_expiry_release_and_what_a_filter_passes_over(
    lab: Lab, order: bool, capsys: Capture
) -> None:
    lab.send("A", "B", "A", "A", "B", "A", "A")
    first, second, third = lab.receive(3, order=order, tags="A")
    lab.agree(3, 3)  # one is passed over between them
    lab.acknowledge(*second)
    lab.agree(2, 3)
    assert lines(["lag", "G"], capsys)[0].split()[3:8] == ["BACKLOG", "IN", "FLIGHT", "READY", "BEHIND"]
    lab.expire()
    lab.agree(0, 5)
    assert len(lab.receive(order=order, tags="A")) == 4
    lab.agree(4, 0)
    lab.mqadmin("pop", "release", "G", "--yes")
    lab.agree(0, 4)
    again = lab.receive(1, order=order)
    lab.agree(1, 3)
    lab.acknowledge(*again[0])
    lab.agree(0, 3)
    assert [message.queue_offset for message, _ in lab.receive(order=order)] == [3, 5, 6]
    assert (first[0].queue_offset, third[0].queue_offset) == (0, 3)


@pytest.mark.parametrize("order", [False, True])
def test_counts_agree_after_a_reset_of_offsets_and_after_a_topic_is_made_again(lab: Lab, order: bool) -> None:
    lab.send(*"abcdef")
    assert len(lab.receive(4, order=order)) == 4
    lab.agree(4, 2)
    for offset, in_flight, ready in ((1, 3, 2), (0, 0, 6)):  # forward, what lies behind the offset stays in flight
        lab.ask(RequestCode.UPDATE_CONSUMER_OFFSET, queueId=0, commitOffset=offset)
        lab.clock.advance(11)
        lab.agree(in_flight, ready)
    assert len(lab.receive(5, order=order)) == 5
    lab.agree(5, 1)

    lab.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "T", "--yes")
    lab.make_topic()
    lab.send(*"xyz")
    [(message, handle)] = lab.receive(1, order=order)
    assert message.body == b"x"
    lab.agree(1, 2)
    lab.acknowledge(message, handle)
    lab.agree(0, 2)


@pytest.mark.parametrize("order", [False, True])
def test_counts_agree_after_a_dead_letter(lab: Lab, order: bool, capsys: Capture) -> None:
    lab.mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "G", "-r", "1")
    lab.send(*"abc")
    for _ in range(2):
        assert [message.body for message, _ in lab.receive(1, order=order)] == [b"a"]
        lab.agree(1, 2)
        lab.expire()
        lab.agree(0, 3)
    assert [message.body for message, _ in lab.receive(1, order=order)] == [b"b"], "the first is a dead letter now"
    lab.send("d")  # once it is acknowledged, so is the dead letter before it in the log, which was in flight until then
    [dead] = [item for item in items(["dlq", "list"], capsys) if item["group"] == "G"]
    assert dead["messages"] == 1
    lab.agree(1, 2)


class ManyGroups(FakeCluster):
    """A broker whose response about all groups leaves some out. G receives queue 0."""

    def answer(self, code: int, fields: dict[str, str], body: bytes) -> tuple[int, str, dict[str, str], bytes]:
        if code != QUERY_IN_FLIGHT or code in self.refusals:
            return super().answer(code, fields, body)
        self.requests.append((code, fields, body))
        queue = {"consumerGroup": "G", "topic": "T", "queueId": 0, "inFlight": 1, "ready": 0}
        is_whole = "consumerGroup" in fields
        found = [queue] if fields.get("consumerGroup") == "G" else []
        return 0, "", {}, json.dumps({"queues": found, "leftOut": 0 if is_whole else 1}).encode()

    def _bodies(self) -> dict[int, Any]:
        groups = {name: {**GROUP, "groupName": name} for name in ("G", "H")}
        return {**super()._bodies(), 201: {"subscriptionGroupTable": groups}}


def test_groups_that_a_response_leaves_out_are_asked_for_one_by_one(capsys: Capture) -> None:
    with fake_cluster(ManyGroups()) as cluster:
        found = {item["group"]: item for item in items(["lag", "-n", cluster.address], capsys)}
        asked = [fields.get("consumerGroup") for code, fields, _ in cluster.requests if code == QUERY_IN_FLIGHT]
    assert asked == [None, "G", "H"]
    one, other = found["G"], found["H"]
    assert (one["inFlight"], one["ready"], one["backlog"]) == (1, 0, 1 + 3), "the other queue is pulled"
    assert (other["inFlight"], other["ready"], other["backlog"]) == (None, None, 6)


@pytest.mark.parametrize("code", [3, 16])
def test_a_broker_that_does_not_tell_what_is_in_flight_has_the_backlog_of_its_offsets(
    code: int, capsys: Capture
) -> None:
    with fake_cluster(ManyGroups()) as cluster:
        cluster.refusals[QUERY_IN_FLIGHT] = (code, "no")
        for item in items(["lag", "G", "-n", cluster.address], capsys):
            assert (item["inFlight"], item["ready"], item["backlog"]) == (None, None, 3)
        assert "IN FLIGHT" not in lines(["lag", "G", "-n", cluster.address], capsys)[0]
        assert QUERY_IN_FLIGHT in cluster.codes
