"""Commands that send: one message, or many to measure the time."""

from __future__ import annotations

import os
import time

from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.routes import RETRY_PREFIX
from triomq.admin.session import Refused
from triomq.protocol.dead_letters import MOST_RETRIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

STATUS = {0: "SEND_OK", 10: "FLUSH_DISK_TIMEOUT", 11: "SLAVE_NOT_AVAILABLE", 12: "FLUSH_SLAVE_TIMEOUT"}
NEW_TOPIC_QUEUES = 4  # defaultTopicQueueNums of a producer: how many queues the broker gives a topic that it creates
MASTER_ROOM_TIME = "%Y-%m-%d %H:%M:%S"


class SendResult:
    __slots__ = ("broker_name", "msg_id", "offset_msg_id", "queue_id", "queue_offset", "status", "topic")

    def __init__(self, status: str, msg_id: str, topic: str, broker_name: str, fields: dict[str, str]) -> None:
        self.status = status
        self.msg_id = msg_id
        self.topic = topic
        self.broker_name = broker_name
        self.offset_msg_id = fields.get("msgId", "")
        self.queue_id = int(fields.get("queueId", "0"))
        self.queue_offset = int(fields.get("queueOffset", "0"))

    def item(self) -> dict[str, Any]:
        return {
            "sendStatus": self.status,
            "msgId": self.msg_id,
            "offsetMsgId": self.offset_msg_id,
            "topic": self.topic,
            "brokerName": self.broker_name,
            "queueId": self.queue_id,
            "queueOffset": self.queue_offset,
        }


def result_text(result: SendResult) -> str:
    """Return the text of SendResult.toString."""
    return (
        f"SendResult [sendStatus={result.status}, msgId={result.msg_id}, offsetMsgId={result.offset_msg_id}, "
        f"messageQueue=MessageQueue [topic={result.topic}, brokerName={result.broker_name}, "
        f"queueId={result.queue_id}], queueOffset={result.queue_offset}]"
    )


class Sender:
    """Sends to the queues of a topic in turn. For a topic without a route it uses the route of TBW102, as a producer
    does, so that the broker creates the topic.
    """

    def __init__(self, run: Run, group: str) -> None:
        from triomq.protocol.message_id import UniqKeyMaker

        self._run = run
        self.group = group
        self._ids = UniqKeyMaker(os.urandom(4), os.getpid(), int.from_bytes(os.urandom(4), "big"))
        self._turn = run.any_number()

    def queues(self, topic: str) -> list[tuple[str, int, str]]:
        """Return (broker name, queue id, address of the master) of all writable queues."""
        most = 2**31
        try:
            route = self._run.session.route(topic)
        except NotFound as missing:
            try:
                route = self._run.session.route("TBW102")
            except NotFound:
                text = f"{missing} No broker creates topics that are sent to; `mqadmin updateTopic -t {topic}` does"
                raise NotFound(text) from None
            most = NEW_TOPIC_QUEUES
        masters = {data["brokerName"]: data["brokerAddrs"].get("0") for data in route["brokerDatas"]}
        found = [
            (data["brokerName"], number, masters[data["brokerName"]])
            for data in route["queueDatas"]
            if data["perm"] & 2 and masters.get(data["brokerName"])
            for number in range(min(data["writeQueueNums"], most))
        ]
        if not found:
            raise NotFound(f"no broker accepts messages of topic {topic!r} now")
        return found

    def send(
        self,
        topic: str,
        body: bytes,
        properties: dict[str, str],
        *,
        broker_name: str = "",
        queue_id: int = -1,
        flag: int = 0,
        born_ms: int | None = None,
    ) -> SendResult:
        """Send one message, born now or at another time. Raises Refused if the broker refuses it."""
        from triomq.protocol import properties as stored

        queues = [each for each in self.queues(topic) if broker_name in ("", each[0])]
        if not queues:
            raise NotFound(f"broker {broker_name!r} accepts no messages of topic {topic!r}")
        self._turn += 1
        name, number, address = queues[self._turn % len(queues)]
        if queue_id >= 0:
            number = queue_id
        now = int(time.time() * 1000) if born_ms is None else born_ms
        properties.setdefault("UNIQ_KEY", self._ids.make(now))
        properties.setdefault("WAIT", "true")
        fields = {
            "a": self.group,
            "b": topic,
            "c": "TBW102",
            "d": NEW_TOPIC_QUEUES,
            "e": number,
            "f": 0,
            "g": now,
            "h": flag,
            "i": stored.encode(properties).decode(),
            "j": 0,
            "k": False,
            "m": False,
        }
        if topic.startswith(RETRY_PREFIX):
            fields["l"] = MOST_RETRIES
        response = self._run.session.request(address, 310, fields, body)
        if response.code not in STATUS:
            raise Refused(address, response)
        return SendResult(STATUS[response.code], properties["UNIQ_KEY"], topic, name, response.fields)


def send_message(run: Run) -> None:
    if run.has("i") and not run.has("b"):
        raise UsageError("Broker name must be set if the queue is chosen!")
    properties = {"KEYS": run.get("k"), "TAGS": run.get("c")}
    sender = Sender(run, str(int(time.time() * 1000)))
    layout = "%-32s  %-4s  %-20s    %s"
    run.out.header(layout % ("#Broker Name", "#QID", "#Send Result", "#MsgId"))
    began = time.monotonic()
    try:
        result = sender.send(
            run.get("t"),
            run.get("p").encode(),
            {key: value for key, value in properties.items() if value},
            broker_name=run.get("b"),
            queue_id=run.number("i", -1),
        )
    except AdminError:
        run.out.line(layout % ("Unknown", "Unknown", "Failed", "None"))
        raise
    run.out.line(layout % (result.broker_name, result.queue_id, result.status, result.msg_id))
    run.out.item(**result.item())
    if run.flag("m"):
        _send_trace(run, sender, result, int((time.monotonic() - began) * 1000), len(run.get("p").encode()))


def _send_trace(run: Run, sender: Sender, result: SendResult, cost_ms: int, size: int) -> None:
    """Send one record of type Pub to the trace topic (TraceDataEncoder)."""
    now = str(int(time.time() * 1000))
    cells = (
        "Pub",
        now,
        "DefaultRegion",
        sender.group,
        result.topic,
        result.msg_id,
        run.get("c"),
        run.get("k"),
        "",
        str(size),
        str(cost_ms),
        "0",
        result.offset_msg_id,
        "true",
    )
    keys = " ".join([text for text in (result.msg_id, *run.get("k").split()) if text])
    sender.send("RMQ_SYS_TRACE_TOPIC", ("\x01".join(cells) + "\x02").encode(), {"KEYS": keys})


def _body(size: int) -> bytes:
    return b"a" * size


def send_msg_status(run: Run) -> None:
    """Send messages; the first one is a warm-up."""
    topic = run.get("b")
    size = run.number("s", 128)
    count = run.number("c", 50)
    sender = Sender(run, "PID_SMSC")
    sender.send(topic, _body(16), {})
    for _ in range(count):
        began = time.monotonic()
        result = sender.send(topic, _body(size), {})
        cost_ms = int((time.monotonic() - began) * 1000)
        run.out.line(f"rt={cost_ms}ms, SendResult={result_text(result)}")
        run.out.item(rt=cost_ms, **result.item())


def check_msg_send_rt(run: Run) -> None:
    """Send messages; the first one does not count for the average."""
    topic = run.get("t")
    count = run.number("a", 100)
    size = run.number("s", 128)
    sender = Sender(run, str(int(time.time() * 1000)))
    layout = "%-32s  %-4s  %-20s    %s"
    run.out.header(layout % ("#Broker Name", "#QID", "#Send Result", "#RT"))
    total = 0
    for index in range(count):
        began = time.monotonic()
        try:
            result: SendResult | None = sender.send(topic, _body(size), {})
        except AdminError as error:
            result = None
            run.failed(str(error))
        cost_ms = int((time.monotonic() - began) * 1000)
        total += cost_ms if index else 0
        name, number = (result.broker_name, result.queue_id) if result else ("", "")
        run.out.line(layout % (name, number, "true" if result else "false", cost_ms))
        run.out.item(brokerName=name or None, queueId=number if result else None, success=bool(result), rt=cost_ms)
    run.out.line(f"Avg RT: {total / max(1, count - 1):.2f}")


def cluster_rt(run: Run) -> None:
    """Measure until interrupted."""
    count = run.number("a", 100)
    size = run.number("s", 128)
    interval = run.number("i", 10)
    as_log = run.flag("p")
    room = run.get("m", "noname")
    if not as_log:
        layout = "%-24s  %-24s  %-4s  %-8s  %-8s"
        names = ("#Cluster Name", "#Broker Name", "#RT", "#successCount", "#failCount")
        run.out.header(layout % names)
    sender = Sender(run, str(int(time.time() * 1000)))
    while True:
        run.session.forget_cluster_info()
        table = run.session.cluster_info().get("clusterAddrTable", {})
        for cluster in [run.get("c")] if run.has("c") else sorted(table):
            for name in sorted(run.session.broker_names(cluster)):
                _cluster_round(run, sender, (cluster, name), (count, size), room if as_log else None)
        run.pause(interval)


def _cluster_round(run: Run, sender: Sender, place: tuple[str, str], load: tuple[int, int], room: str | None) -> None:
    """Send to the topic named like the broker; the first message does not count."""
    cluster, name = place
    count, size = load
    total, good, bad = 0.0, 0, 0
    for index in range(count):
        began = time.monotonic()
        try:
            sender.send(name, _body(size), {})
            good += 1
        except AdminError:
            bad += 1
        if index:
            total += int((time.monotonic() - began) * 1000)
    average = total / max(1, count - 1)
    if room is not None:
        stamp = time.strftime(MASTER_ROOM_TIME)
        run.out.line(f"{stamp}|{room}|{cluster}|{name}|{round(average)}")
    else:
        run.out.line("%-24s  %-24s  %-8s  %-16s  %-16s" % (cluster, name, f"{average:.2f}", good, bad))
    run.out.item(cluster=cluster, brokerName=name, rt=average, successCount=good, failCount=bad)
