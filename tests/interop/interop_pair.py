"""Send every request to two brokers, TrioMQ and Apache, and compare the responses field by field.

Both start empty and get the same requests in the same order, so physical offsets, queue offsets and counters are equal
as well. Values that cannot be equal are first replaced by a placeholder: addresses and ports, message ids except for
their offset, present times. Everything else that differs is a difference; they are collected and reported at the end of
a conversation.

The conversation uses the plain socket client of interop_wire. Only bodies with fastjson's object keys need the
project's own lenient reader, which then reads both sides.
"""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import interop_wire as wire
from interop_wire import frame

from triomq.protocol.bodies import fastjson
from triomq.protocol.message_queue import MessageQueue

ANSWER_SECONDS = 10.0
QUIET_SECONDS = 0.3
RESPONSE_FLAG = 1
ONEWAY_FLAG = 2
RECORD_CODES = frozenset({11, 12, 33, 309})
READS = frozenset({11, 12, 14, 21, 29, 30, 31, 32, 33, 38, 43, 201, 202, 208, 300, 303, 308, 317, 321})
"""Requests that are asked again when the answers differ: Apache dispatches to queues and index behind its answers."""
PATIENCE_SECONDS = 5.0
"""How long they are asked: only a difference takes so long."""
PULL_OFFSET_MOVED = 21
DELAY_MS = 60_000

_MESSAGE_ID = re.compile(r"7F000001[0-9A-F]{8}([0-9A-F]{16})")
_ADDRESS = re.compile(r"127\.0\.0\.1:\d+")
_TIME = re.compile(r"\b(\d{13})\b")
_JAVA_EXCEPTION = re.compile(r"(java|com|org)\.[\w.$]+(Exception|Error)\b")
_PYTHON_EXCEPTION = re.compile(r"[\w.]*(Error|Exception)\b")
_DATE = re.compile(r"\b\d{4}-\d\d-\d\d[# ]\d\d:\d\d:\d\d[:,]\d{3}")


@dataclass
class Each:
    """A value of a request that differs between the brokers (an id from an earlier response)."""

    ours: Any
    theirs: Any

    def of(self, side: int) -> Any:
        return (self.ours, self.theirs)[side]


@dataclass
class Reply:
    """One frame that a broker sent: a response, or a request of its own."""

    header: dict[str, Any]
    body: bytes = b""

    @property
    def code(self) -> int:
        return int(self.header["code"])

    @property
    def remark(self) -> str | None:
        remark: str | None = self.header.get("remark")
        return remark

    @property
    def fields(self) -> dict[str, str]:
        return self.header.get("extFields") or {}

    def json(self) -> Any:
        return fastjson.loads(self.body)


@dataclass
class Both:
    """The two responses to one request."""

    ours: Reply
    theirs: Reply

    @property
    def code(self) -> int:
        return self.ours.code

    def field(self, name: str) -> Each:
        return Each(self.ours.fields.get(name), self.theirs.fields.get(name))

    @property
    def physical_offset(self) -> Each:
        """Return the position of the (first) sent message in each log."""
        return Each(*(int(reply.fields["msgId"][16:32], 16) for reply in (self.ours, self.theirs)))


@dataclass(frozen=True)
class Difference:
    """One difference: the name of the request, the place in the response, and both values."""

    label: str
    place: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.label}: {self.place}: TrioMQ {self.ours!r:.400}, Apache {self.theirs!r:.400}"


class End:
    """A connection to one of the two; requests that the broker sends are kept apart from its responses."""

    def __init__(self, address: str) -> None:
        self.wire = wire.Wire(address)
        host, port = self.wire.socket.getsockname()
        self.local = f"{host}:{port}"
        self.pushed: list[Reply] = []

    def _receive(self, timeout_seconds: float) -> Reply | None:
        """Return the next frame, None if none arrives in time. Raises AssertionError if the peer closed."""
        self.wire.socket.settimeout(timeout_seconds)
        try:
            length = self.wire._exactly(4)
        except TimeoutError:
            return None
        assert length is not None, "the broker closed the connection"
        self.wire.socket.settimeout(ANSWER_SECONDS)
        rest = self.wire._exactly(struct.unpack(">I", length)[0])
        assert rest is not None, "the broker closed the connection"
        header_bytes = struct.unpack(">I", rest[:4])[0] & 0xFFFFFF
        return Reply(json.loads(rest[4 : 4 + header_bytes]), rest[4 + header_bytes :])

    def answer(self, opaque: int, timeout_seconds: float) -> Reply | None:
        deadline = time.monotonic() + timeout_seconds
        while (left := deadline - time.monotonic()) > 0:
            reply = self._receive(left)
            if reply is None:
                return None
            if not reply.header["flag"] & RESPONSE_FLAG:
                self.pushed.append(reply)
            elif reply.header["opaque"] == opaque:
                return reply
        return None

    def collect(self, count: int, timeout_seconds: float) -> None:
        """Read until the broker has sent `count` requests, or the time is over."""
        deadline = time.monotonic() + timeout_seconds
        while len(self.pushed) < count and (left := deadline - time.monotonic()) > 0:
            reply = self._receive(left)
            if reply is not None and not reply.header["flag"] & RESPONSE_FLAG:
                self.pushed.append(reply)

    def send(self, header: dict[str, Any], body: bytes) -> None:
        self.wire.send(frame(json.dumps(header).encode(), body))


class Link:
    """A connection to each of the two brokers, as one client would have it."""

    def __init__(self, talk: Talk, number: int, ends: list[End]) -> None:
        self._talk = talk
        self._number = number
        self._ends = ends
        self._opaque = 0

    def call(
        self,
        label: str,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes | Each = b"",
        *,
        version: int = wire.VERSION_4_9_7,
        language: str = "JAVA",
        only: str | None = None,
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> Both:
        """Send the request to both and compare the responses. A field whose value is None is omitted; `fields=None`
        sends no extFields. With `only`, tables are compared only where the name contains it.

        With `only`, tables of names are compared where the name contains it.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            both = self.ask(code, fields, body, version=version, language=language, timeout_seconds=timeout_seconds)
            assert both is not None, f"{label}: neither side answered"
            found = self._talk.differences_of(label, code, both, only)
            if not found or code not in READS or both.code == PULL_OFFSET_MOVED or time.monotonic() > deadline:
                self._talk.differences += found
                return both
            time.sleep(0.05)

    def ask(
        self,
        code: int,
        fields: dict[str, Any] | None = None,
        body: bytes | Each = b"",
        *,
        version: int = wire.VERSION_4_9_7,
        language: str = "JAVA",
        timeout_seconds: float = ANSWER_SECONDS,
    ) -> Both | None:
        """Send the request to both without comparing; None if both do not respond in time. If one does, the other may
        only be slow, and has longer."""
        self._opaque += 1
        for side in (0, 1):
            self._send(side, code, fields, body, 0, version, language)
        replies = [end.answer(self._opaque, timeout_seconds) for end in self._ends]
        if replies == [None, None]:
            return None
        for side, end in enumerate(self._ends):
            replies[side] = replies[side] or end.answer(self._opaque, ANSWER_SECONDS)
        silent = Reply({"code": -1, "remark": "no answer"})
        return Both(replies[0] or silent, replies[1] or silent)

    def ask_both(self, code: int) -> tuple[Reply, Reply]:
        """Return the two responses to a request without fields, for the caller to compare."""
        both = self.ask(code)
        assert both is not None
        return both.ours, both.theirs

    def oneway(self, code: int, fields: dict[str, Any] | None = None, body: bytes | Each = b"") -> None:
        """Send both a one-way request. TrioMQ handles later requests on this link after it; Apache usually does."""
        self._opaque += 1
        for side in (0, 1):
            self._send(side, code, fields, body, ONEWAY_FLAG, wire.VERSION_4_9_7, "JAVA")

    def _send(
        self,
        side: int,
        code: int,
        fields: dict[str, Any] | None,
        body: bytes | Each,
        flag: int,
        version: int,
        language: str,
    ) -> None:
        header: dict[str, Any] = {
            "code": code,
            "flag": flag,
            "language": language,
            "opaque": self._opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": version,
        }
        if fields is not None:
            values = {name: value.of(side) if isinstance(value, Each) else value for name, value in fields.items()}
            header["extFields"] = {name: str(value) for name, value in values.items() if value is not None}
        self._ends[side].send(header, body.of(side) if isinstance(body, Each) else body)

    def respond(self, requests: Both, code: int, remark: str | None = None, body: bytes = b"") -> None:
        """Respond to the requests of both brokers."""
        for end, request in zip(self._ends, (requests.ours, requests.theirs), strict=True):
            header = {"code": code, "flag": 1, "language": "JAVA", "opaque": request.header["opaque"], "version": 407}
            end.send({**header, "remark": remark} if remark is not None else header, body)

    def pushed(self, label: str, count: int = 1, *, timeout_seconds: float = 5.0) -> list[Both]:
        """Compare the requests that both brokers sent; a `count` of 0 checks that none arrive."""
        for end in self._ends:
            end.collect(count or 1, timeout_seconds if count else QUIET_SECONDS)
        requests = [end.pushed[: count or None] for end in self._ends]
        for end in self._ends:
            del end.pushed[: count or None]
        if len(requests[0]) != count or len(requests[1]) != count:
            counts = [[reply.code for reply in each] for each in requests]
            self._talk.differ(Difference(label, "requests of the broker", *counts))
            return []
        pairs = [Both(ours, theirs) for ours, theirs in zip(*requests, strict=True)]
        for pair in pairs:
            self._talk.compare(label, pair.code, pair)
        return pairs

    def forget_pushed(self) -> None:
        """Drop the requests that both brokers have sent so far."""
        for end in self._ends:
            end.collect(1000, QUIET_SECONDS)
            end.pushed.clear()

    def close(self) -> None:
        for end in self._ends:
            end.wire.socket.close()


class Talk:
    """One conversation with both brokers."""

    def __init__(self, addresses: tuple[str, str], excused: Excused) -> None:
        self._excused = excused
        self._addresses = addresses
        self._texts: list[list[tuple[str, str]]] = [[(address, "BROKER")] for address in addresses]
        self._links: list[Link] = []
        self._began_ms = int(time.time() * 1000) - 3600_000
        self.differences: list[Difference] = []

    def connect(self, port_distance: int = 0) -> Link:
        ends = []
        for side, address in enumerate(self._addresses):
            host, port = address.rsplit(":", 1)
            end = End(f"{host}:{int(port) + port_distance}")
            self._texts[side].append((end.local, f"CLIENT{len(self._links)}"))
            ends.append(end)
        link = Link(self, len(self._links), ends)
        self._links.append(link)
        return link

    def close(self) -> None:
        for link in self._links:
            link.close()

    def differ(self, difference: Difference) -> None:
        self.differences += self._excused.left([difference])

    def compare(self, label: str, code: int, both: Both) -> None:
        self.differences += self.differences_of(label, code, both)

    def differences_of(self, label: str, code: int, both: Both, only: str | None = None) -> list[Difference]:
        """Return the differences that the table of excuses does not cover."""
        ours, theirs = self.plain(0, both.ours, code), self.plain(1, both.theirs, code)
        if _JAVA_EXCEPTION.match(theirs.get("remark") or "") and helps(ours["remark"]):
            # Apache's remark is an exception and a line of its source; TrioMQ's must say what is wrong.
            ours["remark"] = theirs["remark"]
            for standing in ("MSG_REGION", "TRACE_ON"):  # lost with the exception
                ours["fields"].pop(standing, None)
        if only is not None:
            ours, theirs = keep_only(ours, only), keep_only(theirs, only)
        return self._excused.left(list(differences(label, "", ours, theirs)))

    def plain(self, side: int, reply: Reply, code: int) -> dict[str, Any]:
        """Return a response with all values replaced that must differ."""
        header = {key: value for key, value in reply.header.items() if key not in {"opaque", "extFields"}}
        header["remark"] = self.text(side, header.get("remark"))
        header["fields"] = {name: self.text(side, value) for name, value in reply.fields.items()}
        if "\x01" in header["fields"].get("properties", ""):
            header["fields"]["properties"] = sorted(header["fields"]["properties"].split("\x02"))
        if reply.code < 0:
            return {"code": -1}
        header["body"] = self.body(side, reply.body, code)
        return header

    def body(self, side: int, body: bytes, code: int) -> Any:
        if code in RECORD_CODES and body and body[:1] == b"\0":
            return [self.value(side, record) for record in records(body)]
        if body[:1] in (b"{", b"["):
            return self.value(side, fastjson.loads(body))
        return self.text(side, body.decode(errors="backslashreplace")) if body else None

    def text(self, side: int, text: str | None) -> str | None:
        if text is None:
            return None
        for address, word in self._texts[side]:
            text = text.replace(address, word)
        text = _ADDRESS.sub("SOMEBODY", text)
        text = _MESSAGE_ID.sub(r"ID\1", text)
        text = _DATE.sub("DATE", text)
        return _TIME.sub(lambda found: "TIME" if self._is_now(int(found[1])) else found[1], text)

    def _is_now(self, number: int) -> bool:
        return self._began_ms <= number <= self._began_ms + 3 * 3600_000

    def value(self, side: int, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(side, value)
        if isinstance(value, int) and not isinstance(value, bool) and self._is_now(value):
            return "TIME"
        if isinstance(value, dict):
            return {self.value(side, key): self.value(side, item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.value(side, item) for item in value]
        return value


def differences(label: str, place: str, ours: Any, theirs: Any) -> Iterator[Difference]:
    """Return all places where two plain responses differ."""
    ours, theirs = without_order(ours), without_order(theirs)
    if place.endswith(".delayTime") and all(
        isinstance(delay, int) and 0 < delay < DELAY_MS for delay in (ours, theirs)
    ):
        return  # two looks at two clocks
    if place.endswith(".pullOffset") and theirs == "ABSENT":
        return  # RocketMQ 5 has it
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted(ours.keys() | theirs.keys(), key=str):
            here = f"{place}.{_name(key)}" if place else _name(key)
            yield from differences(label, here, ours.get(key, "ABSENT"), theirs.get(key, "ABSENT"))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (our_item, their_item) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(label, f"{place}[{number}]", our_item, their_item)
    elif ours != theirs or type(ours) is not type(theirs):
        yield Difference(label, place, ours, theirs)


def _name(key: Any) -> str:
    return f"{key.topic}:{key.queue_id}" if isinstance(key, MessageQueue) else str(key)


def without_order(value: Any) -> Any:
    """Sort lists that are sets or tables in Java, because their order is that of hash tables."""
    if isinstance(value, list) and value:
        if all(isinstance(item, str) for item in value):
            return sorted(value)
        if all(isinstance(item, dict) and len(item) == 1 for item in value):
            return {key: inner for item in value for key, inner in item.items()}
        if all(isinstance(item, dict) and "clientId" in item for item in value):
            return {item["clientId"]: item for item in value}
        if all(isinstance(item, dict) and "queueId" in item for item in value):
            return {f"{item.get('topic')}:{item['queueId']}": item for item in value}
        if all(isinstance(item, dict) and "brokerName" in item for item in value):
            return {item["brokerName"]: item for item in value}
        if all(isinstance(item, dict) and isinstance(item.get("messageQueue"), MessageQueue | dict) for item in value):
            return {str(item["messageQueue"]): item for item in value}
    return value


def keep_only(value: Any, name: str) -> Any:
    """Keep only the members of tables whose key contains `name`, and no counters."""
    if not isinstance(value, dict):
        return value
    kept = {key: keep_only(without_order(item), name) for key, item in value.items() if key != "dataVersion"}
    tables = ("topicConfigTable", "subscriptionGroupTable", "offsetTable", "consumeStatsList", "data")
    for table in tables:
        if isinstance(kept.get(table), dict):
            kept[table] = {key: item for key, item in kept[table].items() if name in str(key)}
    return kept


def helps(remark: str | None) -> bool:
    """Return whether this is a sentence, not the name of a Python exception."""
    return bool(remark) and _PYTHON_EXCEPTION.match(remark or "") is None


def records(body: bytes) -> list[dict[str, Any]]:
    """Return consecutive stored messages in wire format (IPv4 hosts)."""
    found = []
    while body:
        size, magic, crc, queue_id, flag, queue_offset, physical, sys_flag, born_ms = struct.unpack_from(
            ">iiiiiqqiq", body
        )
        born_ip, born_port, store_ms, store_ip, store_port, reconsumed, prepared, body_size = struct.unpack_from(
            ">4siq4siiqi", body, 48
        )
        at = 88
        content = body[at : at + body_size]
        at += body_size
        topic_size = body[at]
        topic = body[at + 1 : at + 1 + topic_size]
        at += 1 + topic_size
        (properties_size,) = struct.unpack_from(">h", body, at)
        properties = body[at + 2 : at + 2 + properties_size].decode()
        found.append(
            {
                "size": size,
                "magic": magic,
                "crc": crc,
                "queue": queue_id,
                "flag": flag,
                "queue_offset": queue_offset,
                "physical_offset": physical,
                "sys_flag": sys_flag,
                "born_ms": born_ms,
                "born_host": f"{'.'.join(map(str, born_ip))}:{born_port}",
                "store_ms": store_ms,
                "store_host": f"{'.'.join(map(str, store_ip))}:{store_port}",
                "reconsumed": reconsumed,
                "prepared": prepared,
                "body": content.decode(errors="backslashreplace"),
                "topic": topic.decode(),
                # Java writes them in the order of its hash table, TrioMQ in order of arrival; readers treat them as a
                # table.
                "properties": sorted(properties.split("\x02")),
            }
        )
        assert at + 2 + properties_size == size, "a record is not as long as it says"
        body = body[size:]
    return found


@dataclass
class Excused:
    """The table of permitted differences: (label, place) -> reason; both may have * as a wildcard at the end or the
    beginning.
    """

    table: dict[tuple[str, str], str]
    used: set[tuple[str, str]] = field(default_factory=set)

    def left(self, found: list[Difference]) -> list[Difference]:
        return [difference for difference in found if not self._covers(difference)]

    def _covers(self, difference: Difference) -> bool:
        for label, place in self.table:
            if _matches(label, difference.label) and _matches(place, difference.place):
                self.used.add((label, place))
                return True
        return False


def _matches(pattern: str, text: str) -> bool:
    return fnmatchcase(text, pattern)


@contextmanager
def conversation(addresses: tuple[str, str], excused: Excused) -> Iterator[Talk]:
    talk = Talk(addresses, excused)
    try:
        yield talk
    finally:
        talk.close()
    assert not talk.differences, "\n".join(map(str, talk.differences))
