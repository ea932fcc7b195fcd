"""The stop of a broker: in every state of its connections, and with each of its parts failing."""

from __future__ import annotations

import json
import ssl
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing
from broker_whole import WholeBroker, pull_fields, send_fields, whole_broker

from triomq.broker.client_notifier import ClientNotifier
from triomq.broker.controller import BrokerController
from triomq.broker.nameservers.registration import Registration
from triomq.broker.replication.log_server import LogServer
from triomq.broker.tables.filters import FilterTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.daemon.errors import ExitCode
from triomq.daemon.run import report
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.frame import FrameDecoder, encode_frame
from triomq.remoting.scheduling.policy import INTERACTIVE_READS
from triomq.remoting.server import RemotingServer
from triomq.store.message_store import DefaultMessageStore

TLS = {"tls.server.mode": "permissive", "tls.test.mode.enable": "true"}
OFFSET = 7


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.05)


def frame(code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> bytes:
    texts = {name: str(value) for name, value in (fields or {}).items()}
    return encode_frame(new_request(code, ext_fields=texts, body=body))


def heartbeat(groups: int) -> bytes:
    """A heartbeat that takes many steps."""
    consumers = [{"groupName": f"G{number}", "subscriptionDataSet": []} for number in range(groups)]
    return json.dumps({"clientID": "c1", "consumerDataSet": consumers, "producerDataSet": []}).encode()


class Clients:
    """Connections of one broker. They stay open until the broker closes them."""

    def __init__(self, broker: WholeBroker, stack: AsyncExitStack) -> None:
        self.broker = broker
        self.stack = stack

    async def connect(self) -> trio.SocketStream:
        host, port = self.broker.address.rsplit(":", 1)
        return await self.stack.enter_async_context(await trio.open_tcp_stream(host, int(port)))

    async def silent(self) -> None:
        await self.connect()

    async def interactive(self) -> None:
        stream = await self.connect()
        for _ in range(INTERACTIVE_READS + 2):
            await stream.send_all(frame(10, send_fields("T"), b"interactive"))
            await stream.receive_some(4096)

    async def bulk(self) -> None:
        for _ in range(3):
            await (await self.connect()).send_all(frame(10, send_fields("T"), b"bulk") * 300)

    async def steps(self) -> None:
        await (await self.connect()).send_all(frame(34, body=heartbeat(500)) * 100)

    async def unread(self) -> None:
        stream = await self.connect()
        for _ in range(60):
            await self.broker.send("T", bytes(60_000))
        await stream.send_all(frame(11, pull_fields("T", maxMsgNums=32)) * 60)

    async def held(self) -> None:
        fields = pull_fields("Empty", sysFlag=6, suspendTimeoutMillis=15_000)
        await (await self.connect()).send_all(frame(11, fields) * 5)

    async def tls(self) -> None:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        stream = trio.SSLStream(await self.connect(), context)
        await stream.send_all(frame(34, body=heartbeat(100)) * 20)
        await stream.send_all(frame(11, pull_fields("Empty", sysFlag=6, suspendTimeoutMillis=15_000)))

    async def half_of_a_handshake(self) -> None:
        await (await self.connect()).send_all(b"\x16\x03\x01")


STATES = [
    Clients.silent,
    Clients.interactive,
    Clients.bulk,
    Clients.steps,
    Clients.unread,
    Clients.held,
    Clients.tls,
    Clients.half_of_a_handshake,
]


async def stop_with(folder: Path, *states: Callable[[Clients], Awaitable[None]]) -> None:
    """Run a broker with connections in these states until they have sent all, and stop it. Raises what it raises."""
    async with AsyncExitStack() as stack, whole_broker(folder, TLS) as broker:
        await broker.create_topic("T", 4)
        await broker.create_topic("Empty", 1)
        clients = Clients(broker, stack)
        for state in states:
            await state(clients)
        fields = {"consumerGroup": "G", "topic": "T", "queueId": 0, "commitOffset": OFFSET}
        assert (await broker.ask(15, fields)).code == 0


async def stored_offset(folder: Path) -> str | None:
    """Return the offset that a restarted broker knows. Its lock and its store must be free and whole for that."""
    assert not (folder / "store" / "abort").exists()
    async with whole_broker(folder) as broker:
        answer = await broker.ask(14, {"consumerGroup": "G", "topic": "T", "queueId": 0})
        return (answer.ext_fields or {}).get("offset")


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
async def test_a_stop_with_connections_in_this_state_writes_all(
    tmp_path: Path, clock: trio.testing.MockClock, state: Callable[[Clients], Awaitable[None]]
) -> None:
    with structlog.testing.capture_logs() as logs:
        await stop_with(tmp_path, state)
    events = [line["event"] for line in logs]
    assert events[-1] == "broker stopped" and "broker unregistered" in events
    assert not [line for line in logs if line["log_level"] in ("error", "critical")]
    assert await stored_offset(tmp_path) == str(OFFSET)


async def test_a_client_has_the_response_to_every_pull_when_a_stop_closes_its_connection(
    tmp_path: Path, clock: trio.testing.MockClock
) -> None:
    """RocketMQ's Java client pulls again at once when it gets PULL_NOT_FOUND, and 3 s later when refused. It would
    wait 30 s for a response that its connection took along."""
    codes: list[int] = []
    sent = 0

    async def pull(stream: trio.SocketStream, count: int) -> None:
        nonlocal sent
        sent += count
        await stream.send_all(frame(11, pull_fields("Empty", sysFlag=6, suspendTimeoutMillis=15_000)) * count)

    async def consume(stream: trio.SocketStream) -> None:
        decoder = FrameDecoder()
        async for data in stream:
            new = [command.code for command in decoder.feed(data) if isinstance(command, RemotingCommand)]
            codes.extend(new)
            await pull(stream, new.count(ResponseCode.PULL_NOT_FOUND))

    async with trio.open_nursery() as client, whole_broker(tmp_path) as broker:
        await broker.create_topic("Empty", 1)
        host, port = broker.address.rsplit(":", 1)
        stream = await trio.open_tcp_stream(host, int(port))
        await pull(stream, 5)
        client.start_soon(consume, stream)
        assert broker.controller.serving is not None
        polling = broker.controller.serving.pull.long_polling
        with trio.fail_after(5):
            while len(polling) < 5:  # noqa: ASYNC110 (over TCP)
                await trio.sleep(0.01)
    assert codes == [ResponseCode.PULL_NOT_FOUND] * 5 + [ResponseCode.SERVICE_NOT_AVAILABLE] * 5
    assert sent == 10
    await stream.aclose()


def raises(*_: object) -> None:
    raise RuntimeError("boom")


async def raises_later(*_: object) -> None:
    await trio.lowlevel.checkpoint()
    raise RuntimeError("boom")


async def raises_at_its_end(*_: object) -> None:
    try:
        await trio.sleep_forever()
    finally:
        raise RuntimeError("boom")


async def raises_when_closed(store: DefaultMessageStore, close: Any = DefaultMessageStore.close) -> None:
    await close(store)
    raise RuntimeError("boom")


def raises_when_ports_close(controller: BrokerController, close: Any = BrokerController._close_ha_port) -> None:
    close(controller)
    raise RuntimeError("boom")


FAILING = [
    ("the held pulls", BrokerController, "_end_pulls", raises_later),
    ("the clients", RemotingServer, "drain", raises_later),
    ("the last messages", DefaultMessageStore, "commit", raises),
    ("the slaves", LogServer, "drain", raises_later),
    ("the registration", Registration, "stop", raises_later),
    ("the background tasks", ClientNotifier, "run", raises_at_its_end),
    ("the consumer offsets", OffsetTable, "persist", raises),
    ("the filters", FilterTable, "persist", raises),
    ("the ports", BrokerController, "_close_ha_port", raises_when_ports_close),
    ("the store", DefaultMessageStore, "close", raises_when_closed),
]


@pytest.mark.parametrize(("part", "owner", "name", "fails"), FAILING, ids=[each[0] for each in FAILING])
async def test_a_part_that_fails_keeps_no_other_from_stopping(
    tmp_path: Path,
    clock: trio.testing.MockClock,
    monkeypatch: pytest.MonkeyPatch,
    part: str,
    owner: type,
    name: str,
    fails: Callable[..., Any],
) -> None:
    if name == "run":
        monkeypatch.setattr(owner, name, fails)  # a task begins with the broker

    async def break_part(_: Clients) -> None:
        monkeypatch.setattr(owner, name, fails)

    with structlog.testing.capture_logs() as logs, pytest.raises(BaseExceptionGroup) as caught:
        await stop_with(tmp_path, *STATES, break_part)
    assert caught.value.subgroup(RuntimeError) is not None
    assert report("mqbroker", caught.value) is ExitCode.FAILED
    assert [line["part"] for line in logs if line["event"] == "part failed"] == [part]
    events = [line["event"] for line in logs]
    assert ("broker unregistered" in events) is (part != "the registration")
    assert "broker stopped" in events
    monkeypatch.undo()
    assert await stored_offset(tmp_path) == (str(OFFSET) if part != "the consumer offsets" else "0")
