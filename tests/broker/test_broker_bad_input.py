"""Every request of a client gets a response that says what is wrong with it, and the broker keeps running.

One broker in its own thread serves all examples. Each request code gets fields and bodies that are valid, missing, of
the wrong type, too large, or random, in both header codecs. Afterwards the stored messages are still there, no request
is unfinished, and the store is sound.
"""

from __future__ import annotations

import json
import re
import struct
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_whole import SETTINGS, WholeBroker, pull_fields, send_fields, whole_broker
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from triomq.protocol import record
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.settings import bind
from triomq.remoting.errors import RemotingTimeout
from triomq.store.config import StoreSettings
from triomq.store.upkeep import offline

SPEC: dict[str, Any] = json.loads((Path(__file__).parent / "broker_spec.json").read_text())
CODES = sorted(int(code) for code in SPEC["requests"])
KEPT = [b"kept %d" % number for number in range(5)]
END_TRANSACTION = 37
# What error_response (remoting.processor_table) says when a processor has no message of its own.
PYTHON_EXCEPTION = re.compile(r"^[\w.]*(Error|Exception|Group|Exit|Interrupt|Failed)(:|$)")


class Thread:
    """A running broker in a thread, and a way to send it requests."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=trio.run, args=(self._live,), daemon=True)

    async def _live(self) -> None:
        self._end = trio.Event()
        self._token = trio.lowlevel.current_trio_token()
        async with whole_broker(self._folder) as broker:
            self.broker: WholeBroker = broker
            self._is_up.set()
            await self._end.wait()

    def start(self) -> None:
        self._thread.start()
        assert self._is_up.wait(10)

    def stop(self) -> None:
        trio.from_thread.run_sync(self._end.set, trio_token=self._token)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def ask(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", *, is_binary: bool = False
    ) -> RemotingCommand:
        ask = partial(self.broker.ask, is_binary=is_binary)
        answer: RemotingCommand = trio.from_thread.run(ask, code, fields, body, trio_token=self._token)
        return answer


@pytest.fixture(scope="module")
def thread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Thread]:
    """The broker; at the end, check everything that must hold."""
    folder = tmp_path_factory.mktemp("bad_input")
    thread = Thread(folder)
    thread.start()
    create_topic(thread, "Kept")
    for body in KEPT:
        assert thread.ask(10, send_fields("Kept"), body).code == 0
    yield thread
    assert thread.ask(28).code == 0
    kept = thread.ask(11, pull_fields("Kept", consumerGroup="KeptG"))
    assert [message.body for message in record.iterate_records(kept.body)] == KEPT
    serving = thread.broker.controller.serving
    assert serving is not None
    pools = serving.tables.pools.all()
    assert {pool.name: pool.in_flight for pool in pools if pool.in_flight} == {}, "requests left behind"
    thread.stop()
    directory = str(folder / "store")
    values, _ = bind(StoreSettings, {**SETTINGS, "storePathRootDir": directory}, source="test")
    findings = offline.verify(values)
    assert findings.records > len(KEPT)
    assert not [problem for problem in findings.problems if "a deleted topic" not in problem]


def create_topic(thread: Thread, topic: str) -> None:
    fields: dict[str, Any] = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": 1, "writeQueueNums": 1}
    fields |= {"perm": 6, "topicFilterType": "SINGLE_TAG", "order": "false"}
    assert thread.ask(17, fields).code == 0


# Never "Kept", which must survive, and few new names, since the first send creates a topic.
NAMES: tuple[str, ...] = (
    "T",
    "T",
    "U",
    "G",
    "G2",
    "",
    " ",
    "a b",
    "a/../b",
    "%RETRY%G",
    "%DLQ%G",
    "TBW102",
    "SCHEDULE_TOPIC_XXXX",
)
NAMES += ("RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT", "rmq_sys_x", "x" * 128, "é" * 60, "null", "\x00", "%LMQ%a")
NUMBERS = (0, 1, -1, 2, 3, 7, 18, 100, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63), 2**70)
WORDS = ("", "x", "1.5", " 1", "0x10", "NaN", "true", "false", "TRUE", "1", "null", "{}", "一")
PROPERTY_TEXTS: tuple[str, ...] = (
    "KEYS\x01k\x02TAGS\x01a",
    "DELAY\x011",
    "DELAY\x01x",
    "TRAN_MSG\x01true",
    "\x01\x02\x01",
    "a",
    "\x02" * 9,
)
PROPERTY_TEXTS += ("WAIT\x01false", "REPLY_TO_CLIENT\x01c", "INNER_MULTI_DISPATCH\x01%LMQ%a", "p\x01" + "v" * 40_000)


def values_of(name: str, kind: str) -> st.SearchStrategy[str | None]:
    """Values for one field, valid and invalid."""
    odd = st.sampled_from((None, *WORDS)) | st.text(max_size=20)
    if kind in ("Integer", "Long"):
        return st.sampled_from(NUMBERS).map(str) | st.integers(-3, 40).map(str) | odd
    if kind == "Boolean":
        return st.sampled_from(("true", "false")) | odd
    if name in ("properties", "i"):
        return st.sampled_from(PROPERTY_TEXTS) | odd
    if "sgId" in name:
        return (
            st.sampled_from(("7F00000100002A9F0000000000000000", "7F00000100002A9FFFFFFFFFFFFFFFFF", "AB" * 28)) | odd
        )
    return st.sampled_from(NAMES) | odd


def fields_of(code: int) -> st.SearchStrategy[dict[str, Any] | None]:
    """The fields of a request: most are present, any may be invalid."""
    rows = SPEC["requests"][str(code)]["fields"]
    if not rows:
        return st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=2)
    made = st.fixed_dictionaries({name: values_of(name, kind) for name, kind, _ in rows})
    plain = st.fixed_dictionaries({name: usual(name, kind) for name, kind, _ in rows})
    one_odd = st.tuples(plain, st.sampled_from(rows)).flatmap(
        lambda pair: values_of(pair[1][0], pair[1][1]).map(lambda value: {**pair[0], pair[1][0]: value})
    )
    return st.none() | one_odd | one_odd | made


def usual(name: str, kind: str) -> st.SearchStrategy[str | None]:
    if kind in ("Integer", "Long"):
        return st.sampled_from(("0", "0", "1", "4"))
    if kind == "Boolean":
        return st.sampled_from(("false", "true"))
    return st.sampled_from(("T", "T", "G", "*"))


OBJECTS = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.floats() | st.sampled_from(NAMES),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
MEMBERS: tuple[str, ...] = (
    "clientID",
    "clientId",
    "consumerGroup",
    "mqSet",
    "groupName",
    "consumerDataSet",
    "producerDataSet",
)
MEMBERS += ("subscriptionDataSet", "subscriptionData", "topic", "subString", "expressionType", "tagsSet", "codeSet")
MEMBERS += ("retryQueueNums", "retryMaxTimes", "brokerName", "queueId", "consumeType", "messageModel", "unitMode")
KNOWN = st.recursive(
    OBJECTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=6),
    max_leaves=12,
)
TEXTS: tuple[bytes, ...] = (
    b"",
    b"{}",
    b"[]",
    b"null",
    b"{",
    b'{"a"',
    b"[" * 5000,
    b'{"a":' * 5000,
    b"\xff\xfe",
    b"{{}:1}",
    b'{"$ref":"$"}',
)
TEXTS += (b"a=b\nc", b"\\u00", struct.pack(">i", 40) + b"\0" * 36, b"\x7f" * 40, b"x" * 70_000, b'{1:2,"a":}')
BODIES = (
    st.sampled_from(TEXTS)
    | st.binary(max_size=60)
    | (KNOWN | OBJECTS).map(lambda value: json.dumps(value).encode("utf-8", "surrogatepass"))
)


def may_hold(code: int, fields: dict[str, Any] | None) -> bool:
    """Whether the request may be held: a pull that asks for a long hold is valid input."""
    text = str((fields or {}).get("sysFlag"))
    return code == 11 and (not re.fullmatch(r"-?\d+", text) or bool(int(text) & 2))


def assert_answered(thread: Thread, code: int, fields: dict[str, Any] | None, body: bytes, is_binary: bool) -> None:
    if may_hold(code, fields):
        fields = {**(fields or {}), "sysFlag": "4"}
    if code == END_TRANSACTION and (fields or {}).get("commitOrRollback") == "0":
        return  # no client waits for a response to "unknown"
    try:
        answer = thread.ask(code, fields, body, is_binary=is_binary)
    except RemotingTimeout:
        pytest.fail("no answer")
    assert answer.code in {int(known) for known in ResponseCode}
    if answer.code != 0:
        assert answer.remark, "a refusal without a word"
        assert not PYTHON_EXCEPTION.match(answer.remark), answer.remark
        assert "Traceback" not in answer.remark


@pytest.mark.parametrize("code", CODES, ids=lambda code: str(SPEC["requests"][str(code)]["name"]))
def test_bad_requests_are_answered(thread: Thread, code: int) -> None:
    create_topic(thread, "T")  # some codes delete it

    @settings(max_examples=50, suppress_health_check=list(HealthCheck), database=None, derandomize=True)
    @given(fields_of(code), BODIES, st.booleans())
    def ask(fields: dict[str, Any] | None, body: bytes, is_binary: bool) -> None:
        assert_answered(thread, code, fields, body, is_binary)

    run: Callable[[], None] = ask
    run()
    assert thread.ask(30, {"topic": "Kept", "queueId": 0}).ext_fields == {"offset": str(len(KEPT))}


@pytest.mark.parametrize("code", [0, -1, 9999, 32767, *(int(code) for code in SPEC["unanswered"])])
def test_codes_that_are_none(thread: Thread, code: int) -> None:
    answer = thread.ask(code, {"topic": "T"}, b"x")
    assert (answer.code, answer.remark) == (3, f" request type {code} not supported")
