"""The application object: what it opens, hands to handlers and closes, in asyncio and in trio; and its command."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh, until
from client_command import appears, running
from client_fakes import NAME_SERVER, FakeCluster
from trio.testing import MockClock

import triomq
from triomq import (
    ClientClosed,
    ConfigurationError,
    ConsumeFromWhere,
    ConsumeRules,
    LocalTransactionState,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    TrioMQ,
    aio,
)
from triomq.client.app import reload
from triomq.client.app.options import ConsumerOptions, HandlerOptions
from triomq.client.app.run import find, main
from triomq.protocol.codes import RequestCode
from triomq.protocol.headers.send import SendMessageRequestHeaderV2
from triomq.serializers import Json, Text
from triomq.testing import LocalCluster, VirtualClock

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "U", "%RETRY%G", "%RETRY%H")


def test_handlers_of_an_asyncio_program_get_what_they_name(triomq: Cluster) -> None:
    topic, answers, ended = fresh(), fresh(), []
    app = TrioMQ(fresh("P"), name_server=triomq.name_server, serializer=Json(int))

    @app.provides
    async def stock() -> AsyncIterator[dict[int, str]]:
        yield {17: "in stock"}
        ended.append("stock")

    @app.provides
    def currency() -> str:
        return "EUR"

    @app.provides
    async def rate() -> float:
        return 1.5

    @app.consumer(topic, group=fresh("G"), consume_from=FIRST)
    async def on_order(
        value: int, message: MessageExt, producer: Producer, stock: Any, currency: str, rate: float, again: int = 1
    ) -> None:
        assert asyncio.get_running_loop()
        answer = f"{value} {message.keys} {stock[value]} {currency} {rate} {again}"
        await producer.send(Message(answers, answer.encode()))

    got: list[str] = []
    arrived = threading.Event()

    @app.consumer(answers, group=fresh("G"), consume_from=FIRST, serializer=Text())
    def on_answer(value: str, app: TrioMQ) -> None:
        got.append(f"{app.name}: {value}")
        arrived.set()

    async def main() -> None:
        async with app.lifespan(object()):
            assert isinstance(app.producer, aio.Producer)
            await app.producer.send_value(topic, 17, keys="k-1")
            await asyncio.to_thread(arrived.wait, LIMIT_SECONDS)
            assert ended == []
        assert ended == ["stock"]

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert got == [f"{app.name}: 17 k-1 in stock EUR 1.5 1"]


async def test_retries_end_in_the_dead_letter_topic() -> None:
    clock = VirtualClock(patience_seconds=LIMIT_SECONDS)
    heard, changed = [], [trio.Event()]
    async with LocalCluster(clock=clock) as cluster:
        app = TrioMQ("p", name_server=cluster.name_server)

        @app.consumer("Orders", group="g", retries=2, consume_from=FIRST)
        async def refuse(message: MessageExt) -> None:
            heard.append(message.reconsume_times)
            changed[0].set()
            raise RuntimeError("no")

        with trio.fail_after(LIMIT_SECONDS):
            async with app, PushConsumer("dead", name_server=cluster.name_server, consume_from=FIRST) as dead:
                assert isinstance(app.producer, Producer)
                await app.producer.send_value("Orders", b"no")
                await changed[0].wait()
                dead.subscribe("%DLQ%g")
                await clock.advance_until_async(lambda: len(heard) == 3, at_most_seconds=3600)
                assert (await dead.receive()).message.body == b"no"
    assert heard == [0, 1, 2]


async def test_without_retries_the_first_delivery_is_the_last(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    """`retries=0` is not the default of 16: the failed message goes to the dead letter topic at once."""
    rules = ConsumeRules(concurrency=2, max_reconsume_times=5)
    app = TrioMQ("p", name_server=NAME_SERVER, backend="trio")
    fakes.broker.store("T", 0, b"m")

    @app.consumer("T", group="G", retries=0, rules=rules, consume_from=FIRST)
    async def handle(message: MessageExt) -> None:
        raise RuntimeError("no")

    async with app:
        await trio.sleep(60)
    assert fakes.broker.sent_back == []
    (letter,) = fakes.broker.of(RequestCode.SEND_MESSAGE_V2)
    header = letter.header(SendMessageRequestHeaderV2)
    assert (header.reconsume_times, header.max_reconsume_times) == (1, 0)
    assert "RuntimeError: no" in (header.properties or "")


async def test_retries_leave_the_rules_that_are_given_beside_them(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.broker.store("T", 0, b"0", b"1", b"2")
    app = TrioMQ("p", name_server=NAME_SERVER, backend="trio")
    began: list[float] = []

    @app.consumer("T", group="G", retries=0, rules=ConsumeRules(concurrency=1), consume_from=FIRST)
    async def handle(message: MessageExt) -> None:
        began.append(trio.current_time())
        await trio.sleep(7)
        raise RuntimeError("no")

    async with app:
        await trio.sleep(60)
    assert [at - began[0] for at in began] == [0, 7, 14], "one after the other, and none again"
    letters = [letter.header(SendMessageRequestHeaderV2) for letter in fakes.broker.of(RequestCode.SEND_MESSAGE_V2)]
    assert [letter.max_reconsume_times for letter in letters] == [0, 0, 0]


def test_a_transaction_commits_and_is_checked(triomq: Cluster) -> None:
    topic, checked, got = fresh(), [], []
    app = TrioMQ(fresh("P"), name_server=triomq.name_server)
    arrived = threading.Event()

    @app.transaction(fresh("P"))
    async def pay(message: Message, argument: str, app: TrioMQ) -> LocalTransactionState:
        return LocalTransactionState[argument]

    @pay.check
    def was_paid(message: MessageExt) -> LocalTransactionState:
        checked.append(message.body)
        return LocalTransactionState.COMMIT_MESSAGE

    @app.consumer(topic, group=fresh("G"), consume_from=FIRST)
    def handle(value: bytes) -> None:
        got.append(value)
        if len(got) == 2:
            arrived.set()

    async def main() -> None:
        with pytest.raises(ClientClosed, match=r"transaction .*pay does not run"):
            await pay.send(Message(topic, b"early"))
        async with app:
            assert (await pay.send(Message(topic, b"dropped"), "ROLLBACK_MESSAGE")).state.name == "ROLLBACK_MESSAGE"
            assert (await pay.send(Message(topic, b"at once"), "COMMIT_MESSAGE")).state.name == "COMMIT_MESSAGE"
            assert (await pay.send(Message(topic, b"when asked"), "UNKNOW")).state.name == "UNKNOW"
            assert await asyncio.to_thread(arrived.wait, LIMIT_SECONDS)

    asyncio.run(asyncio.wait_for(main(), LIMIT_SECONDS))
    assert sorted(got) == [b"at once", b"when asked"]
    assert checked == [b"when asked"]


async def test_closing_finishes_messages_in_hand_and_stores_their_offsets(
    fakes: FakeCluster, autojump_clock: MockClock
) -> None:
    fakes.broker.store("T", 0, b"1", b"2")
    fakes.broker.store("U", 0, b"4")
    events: list[str] = []
    app = TrioMQ("p", name_server=NAME_SERVER)

    @app.provides
    async def stock() -> AsyncIterator[str]:
        yield "stock"
        events.append("stock closed")

    rules = ConsumeRules(concurrency=3)

    @app.consumer("T", group="G", retries=1, rules=rules, consume_from=FIRST)
    async def slow(message: MessageExt, stock: str, producer: Producer) -> None:
        events.append(f"{message.body.decode()} began")
        await trio.sleep(3)
        await producer.queues("T")
        events.append(f"{message.body.decode()} done")

    @app.consumer("U", group="H", consume_from=FIRST)
    async def other(message: MessageExt) -> None:
        await trio.sleep(1)
        fakes.broker.store("T", 0, b"while its consumer has not begun to close")
        events.append(f"{message.body.decode()} done")

    with pytest.raises(RuntimeError, match="the block ends by an error"):
        async with app:
            await trio.sleep(0.5)
            raise RuntimeError("the block ends by an error")
    assert sorted(events) == ["1 began", "1 done", "2 began", "2 done", "4 done", "stock closed"]
    assert events[-1] == "stock closed"
    assert fakes.broker.offsets["G", "T", 0] == 2
    assert fakes.broker.offsets["H", "U", 0] == 1


async def test_an_application_opens_again_after_it_closed(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    app = TrioMQ("p", name_server=NAME_SERVER)
    for _ in range(2):
        with pytest.raises(ClientClosed, match="the application 'p' does not run"):
            _ = app.producer
        async with app:
            assert app.producer
            with pytest.raises(ConfigurationError, match="runs already"):
                async with app:
                    pass
            with pytest.raises(ConfigurationError, match="runs already"):
                app.consumer("T", group="late")


async def test_a_failed_opening_closes_what_was_open(fakes: FakeCluster, autojump_clock: MockClock) -> None:
    ended = []
    app = TrioMQ("p", name_server=NAME_SERVER)

    @app.provides
    async def stock() -> AsyncIterator[str]:
        yield "stock"
        ended.append("stock")

    @app.consumer("T", group="G")
    async def handle(message: MessageExt, shop: str) -> None: ...

    wanted = r"handle has a parameter 'shop' that nobody provides: name it one of message, value, app, stock, producer"
    for _ in range(2):
        with pytest.raises(ConfigurationError, match=wanted):
            await app.__aenter__()
    assert ended == []  # an async generator that is thrown into ends where it stands
    assert not fakes.broker.members


async def test_what_cannot_work_is_refused_with_what_to_do(fakes: FakeCluster) -> None:
    with pytest.raises(ConfigurationError, match="is not host:port"):
        TrioMQ("p", name_server="nowhere")
    app = TrioMQ("p", name_server=NAME_SERVER)
    app.consumer("T", group="G")(print)
    with pytest.raises(ConfigurationError, match="'G' has a handler already; give each handler a group of its own"):
        app.consumer("U", group="G")
    with pytest.raises(ConfigurationError, match="the producer group 'p' is taken"):
        app.transaction("p")

    @app.transaction("pay")
    def pay(message: Message) -> None: ...

    with pytest.raises(ConfigurationError, match=r"pay has no check: decorate a function with @.*pay\.check"):
        await app.__aenter__()


OF_THE_APPLICATION = {"group", "client", "serializer"}


def test_a_handler_has_every_option_of_the_consumer_that_is_its_own() -> None:
    options = set(inspect.signature(PushConsumer.__init__).parameters) - OF_THE_APPLICATION - {"self", "options"}
    assert options == set(ConsumerOptions.__annotations__)
    parameters = set(inspect.signature(TrioMQ.consumer).parameters)
    assert not parameters & set(HandlerOptions.__annotations__)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"retires": 3}, "app.consumer has no option 'retires': did you mean 'retries'?"),
        ({"serialiser": Text()}, "app.consumer has no option 'serialiser': did you mean 'serializer'?"),
        ({"zzz": 1}, "app.consumer has no option 'zzz': it has topic, expression, group, retries, serializer, model,"),
        ({"name_server": "a:1"}, "'name_server' is an option of the application, not of a handler: TrioMQ("),
    ],
)
def test_a_misspelt_option_of_a_handler_is_refused_with_the_nearest_name(options: Any, says: str) -> None:
    app = TrioMQ("p", name_server=NAME_SERVER)
    with pytest.raises(ConfigurationError) as refused:
        app.consumer("T", group="G", **options)
    assert str(refused.value).startswith(says)


def test_a_misspelt_option_of_the_application_is_refused_with_the_nearest_name() -> None:
    options: Any = {"name_servr": NAME_SERVER}
    with pytest.raises(ConfigurationError, match="TrioMQ has no option 'name_servr': did you mean 'name_server'"):
        TrioMQ("p", **options)


# The command.

PROGRAM = """
import asyncio, pathlib
from triomq import ConsumeFromWhere, TrioMQ
{backend_import}

here = pathlib.Path(__file__).parent
app = TrioMQ("p", name_server={name_server!r}, backend={backend!r})

@app.consumer({topic!r}, group={group!r}, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
async def handle(value):
    (here / f"began-{{value.decode()}}").touch()
    while not (here / "go").exists():
        await {backend}.sleep(0.02)
    (here / f"done-{{value.decode()}}").touch()
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
async def test_a_command_that_is_stopped_finishes_what_it_has_in_hand(
    triomq: Cluster, tmp_path: Path, backend: str
) -> None:
    topic, group = fresh(), fresh("G")
    settings = {"name_server": triomq.name_server, "topic": topic, "group": group}
    (tmp_path / "shop.py").write_text(PROGRAM.format(**settings, backend=backend, backend_import=f"import {backend}"))
    async with Producer(fresh("P"), name_server=triomq.name_server) as producer:
        await producer.send(Message(topic, b"1"), sharding_key="one queue")
        with running(tmp_path, "shop:app") as process:
            await appears(tmp_path / "began-1")
            process.send_signal(signal.SIGTERM)
            assert process.poll() is None
            (tmp_path / "go").touch()
            await until(lambda: process.poll() is not None)
            assert process.returncode == 0
        await producer.send(Message(topic, b"2"), sharding_key="one queue")
    assert (tmp_path / "done-1").exists()
    async with PushConsumer(group, name_server=triomq.name_server) as consumer:
        consumer.subscribe(topic)
        with trio.fail_after(LIMIT_SECONDS):
            assert (await consumer.receive()).message.body == b"2", "the offset behind 1 is stored"


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("kind", ["async def", "def"])
async def test_a_stop_says_what_it_waits_for(triomq: Cluster, tmp_path: Path, backend: str, kind: str) -> None:
    topic, group = fresh(), fresh("G")
    settings = {"name_server": triomq.name_server, "topic": topic, "group": group}
    text = PROGRAM.format(**settings, backend=backend, backend_import=f"import {backend}")
    if kind == "def":
        text = text.replace("async def", "def").replace(f"await {backend}.sleep", "time.sleep")
    (tmp_path / "shop.py").write_text(f"import time\n{text}")
    async with Producer(fresh("P"), name_server=triomq.name_server) as producer:
        await producer.send_batch([Message(topic, b"1"), Message(topic, b"2")])
        with running(tmp_path, "shop:app") as process:
            for number in (1, 2):
                await appears(tmp_path / f"began-{number}")
            process.send_signal(signal.SIGINT)
            await until(lambda: "not stopped yet" in (tmp_path / "stderr").read_text())
            (tmp_path / "go").touch()
            await until(lambda: process.poll() is not None)
            assert process.returncode == 0
    lines = [line for line in (tmp_path / "stderr").read_text().splitlines() if "not stopped yet" in line]
    said = f"p not stopped yet: 2 messages in hand of handle (group '{group}', topic '{topic}', at most 10 s)"
    assert [line.endswith(said) for line in lines] == [True]


@pytest.mark.parametrize(
    ("backend", "words", "first"),
    [("asyncio", (), signal.SIGINT), ("trio", (), signal.SIGTERM), ("asyncio", ("--reload",), signal.SIGINT)],
)
async def test_a_second_signal_ends_the_command_at_once(
    triomq: Cluster, tmp_path: Path, backend: str, words: tuple[str, ...], first: signal.Signals
) -> None:
    topic = fresh()
    settings = {"name_server": triomq.name_server, "topic": topic, "group": fresh("G")}
    (tmp_path / "shop.py").write_text(PROGRAM.format(**settings, backend=backend, backend_import=f"import {backend}"))
    async with Producer(fresh("P"), name_server=triomq.name_server) as producer:
        await producer.send(Message(topic, b"1"))
        with running(tmp_path, "shop:app", *words) as process:
            await appears(tmp_path / "began-1")
            process.send_signal(first)
            await until(lambda: "p shutdown begun; another" in (tmp_path / "stderr").read_text())
            process.send_signal(signal.SIGINT)
            await until(lambda: process.poll() is not None)
            assert process.returncode == 130
    assert not (tmp_path / "done-1").exists()
    assert "ended at once; the messages in hand will be delivered again" in (tmp_path / "stderr").read_text()


async def test_a_change_starts_the_program_again(triomq: Cluster, tmp_path: Path) -> None:
    topic = fresh()
    text = PROGRAM.format(
        name_server=triomq.name_server, topic=topic, group=fresh("G"), backend="asyncio", backend_import=""
    )
    (tmp_path / "shop.py").write_text("raise SystemExit('not finished yet')")
    (tmp_path / "go").touch()
    async with Producer(fresh("P"), name_server=triomq.name_server) as producer:
        await producer.send(Message(topic, b"1"))
        with running(tmp_path, "shop:app", "--reload") as process:
            (tmp_path / "shop.py").write_text(text)
            await appears(tmp_path / "done-1")
            (tmp_path / "shop.py").write_text(text.replace("done", "finished"))
            await until_reloaded(producer, topic, tmp_path)
            process.send_signal(signal.SIGINT)
            await until(lambda: process.poll() is not None)
            assert process.returncode == 0


async def until_reloaded(producer: Producer, topic: str, directory: Path) -> None:
    """Send until the new program answers; the old one may still take a message."""
    numbers = iter(range(2, 1000))

    async def answered() -> bool:
        number = next(numbers)
        await producer.send(Message(topic, str(number).encode()))
        await until(lambda: any((directory / f"{word}-{number}").exists() for word in ("done", "finished")))
        return (directory / f"finished-{number}").exists()

    while not await answered():
        pass


def test_the_command_says_what_it_can_do_and_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    for words, code in (([], 2), (["--version"], 0)):
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code == code
    printed = capsys.readouterr()
    assert printed.err.endswith("triomq: error: give dev, run or asyncapi; triomq --help says what they do\n")
    assert printed.out == f"triomq {triomq.__version__}\n"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("shop", "'shop' is not MODULE:NAME; for `app = TrioMQ(...)` in shop.py write shop:app"),
        ("shop:", "'shop:' is not MODULE:NAME"),
        ("nothing_there:app", "no module 'nothing_there' is in {}: give its --directory"),
        ("empty_shop:app", "'app' of the module 'empty_shop' is no TrioMQ application: add `app = TrioMQ("),
        ("other_shop:app", "'app' of the module 'other_shop' is no TrioMQ application: it has market, stall"),
        ("broken_shop:app", "no name server address: give name_server"),
        ("misspelt_shop:app", "app.consumer has no option 'retires': did you mean 'retries'?"),
    ],
)
def test_a_name_that_leads_to_no_application_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, says: str
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    (tmp_path / "empty_shop.py").write_text("app = 3")
    two = 'from triomq import TrioMQ\nmarket = TrioMQ("m", name_server="h:1")\nstall = TrioMQ("s", name_server="h:1")'
    (tmp_path / "other_shop.py").write_text(two)
    (tmp_path / "broken_shop.py").write_text('from triomq import TrioMQ\napp = TrioMQ("m")')
    one = 'from triomq import TrioMQ\napp = TrioMQ("m", name_server="h:1")\n'
    (tmp_path / "misspelt_shop.py").write_text(f'{one}app.consumer("T", group="g", retires=3)(print)')
    assert main(["run", name, "--directory", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("triomq: " + says.format(tmp_path))
    assert said.count("\n") == 1


def test_an_error_in_the_module_goes_on_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "needy_shop.py").write_text("import a_library_that_is_missing")
    with pytest.raises(ModuleNotFoundError, match="a_library_that_is_missing"):
        find("needy_shop:app", tmp_path)


def test_changes_are_new_changed_and_removed_python_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("a.py", "pack/b.py", ".hidden/c.py", "d.txt"):
        (tmp_path / name).write_text("1")
    before = reload.times_of(tmp_path)
    assert sorted(before) == [str(tmp_path / "a.py"), str(tmp_path / "pack/b.py")]
    assert reload.first_change(before, reload.times_of(tmp_path)) is None
    os.utime(tmp_path / "pack/b.py", ns=(1, 1))
    assert reload.first_change(before, reload.times_of(tmp_path)) == str(tmp_path / "pack/b.py")
    before = reload.times_of(tmp_path)
    (tmp_path / "a.py").unlink()
    assert reload.first_change(before, reload.times_of(tmp_path)) == str(tmp_path / "a.py")
    monkeypatch.setattr(reload, "MAX_FILES", 0)
    assert reload.times_of(tmp_path) == {}
