"""`triomq run --workers`: several processes of one application, which are started again, and stop together."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh, until
from client_command import running
from trio.testing import MockClock

from triomq import Admin, Message, MQClientError, Producer
from triomq.client.app.run import main
from triomq.client.app.workers import FIRST_PAUSE_SECONDS, MOST_PAUSE_SECONDS, STEADY_SECONDS, Workers, said

# Which workers run, by example.


class FakeWorker:
    """A worker that ends when a test says so; one that is asked to stop ends with `code_of_stop`, None: never."""

    def __init__(self, number: int, opened: Callable[[], object], code_of_stop: int | None) -> None:
        self.number = number
        self.opened = opened
        self.began = trio.current_time()
        self._code_of_stop = code_of_stop
        self._code = 0
        self._ended = trio.Event()

    async def wait(self) -> int:
        await self._ended.wait()
        return self._code

    def end(self, code: int) -> None:
        self._code = code
        self._ended.set()

    def stop(self) -> None:
        if self._code_of_stop is not None:
            self.end(self._code_of_stop)

    def kill(self) -> None:
        self.end(-9)


class FakeCommand:
    """A command with workers that are fakes."""

    def __init__(self) -> None:
        self.started: list[FakeWorker] = []
        self.signal, self._signals = trio.open_memory_channel[int](10)
        self.code: int | None = None
        self.code_of_stop: int | None = 0
        self.failing_starts = 0

    @asynccontextmanager
    async def running(self, count: int) -> AsyncIterator[None]:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run, count)
            await trio.testing.wait_all_tasks_blocked()
            yield

    async def _run(self, count: int) -> None:
        self.code = await Workers(self._start, count).run(self._signals)

    async def _start(self, number: int, opened: Callable[[], object]) -> FakeWorker:
        if self.failing_starts:
            self.failing_starts -= 1
            raise OSError("no more processes")
        self.started.append(FakeWorker(number, opened, self.code_of_stop))
        return self.started[-1]

    @property
    def numbers(self) -> list[int]:
        return [worker.number for worker in self.started]

    async def send(self) -> None:
        self.signal.send_nowait(signal.SIGTERM)
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
def command() -> FakeCommand:
    return FakeCommand()


async def test_the_others_start_when_the_first_one_has_opened(command: FakeCommand, autojump_clock: MockClock) -> None:
    async with command.running(3):
        await trio.sleep(100)
        assert command.numbers == [1]
        command.started[0].opened()
        await trio.sleep(1)
        assert sorted(command.numbers) == [1, 2, 3]
        await command.send()
    assert command.code == 0


@pytest.mark.parametrize(("ends_with", "code"), [(1, 1), (0, 1), (3, 3), (-9, 137)])
async def test_a_first_one_that_does_not_open_ends_the_command(
    command: FakeCommand, autojump_clock: MockClock, ends_with: int, code: int
) -> None:
    async with command.running(3):
        command.started[0].end(ends_with)
    assert (command.numbers, command.code) == ([1], code)


async def test_one_that_ends_is_started_again_after_pauses_that_grow_to_a_bound(
    command: FakeCommand, autojump_clock: MockClock
) -> None:
    async with command.running(2):
        command.started[0].opened()
        await trio.testing.wait_all_tasks_blocked()
        pauses = []
        for code in (1, 0, -11, 1, 1, 1, 1):
            ended = trio.current_time()
            command.started[-1].end(code)
            await trio.sleep(MOST_PAUSE_SECONDS + 0.5)
            pauses.append(command.started[-1].began - ended)
        assert pauses == pytest.approx([1, 2, 4, 8, 16, 30, 30])
        assert command.numbers == [1, *[2] * 8]
        await trio.sleep(STEADY_SECONDS)
        ended = trio.current_time()
        command.started[-1].end(1)
        await trio.sleep(MOST_PAUSE_SECONDS)
        assert command.started[-1].began - ended == pytest.approx(FIRST_PAUSE_SECONDS), "it had run for long"
        await command.send()
    assert command.code == 0


async def test_one_that_cannot_be_started_is_tried_again_unless_it_is_the_first(
    command: FakeCommand, autojump_clock: MockClock
) -> None:
    async with command.running(2):
        command.failing_starts = 2
        command.started[0].opened()
        await trio.sleep(10)
        assert command.numbers == [1, 2]
        await command.send()
    assert command.code == 0
    command.failing_starts = 1
    command.started.clear()
    async with command.running(2):
        pass
    assert (command.numbers, command.code) == ([], 1)


async def test_a_stop_starts_none_again_and_has_the_first_code_that_is_not_zero(
    command: FakeCommand, autojump_clock: MockClock
) -> None:
    command.code_of_stop = None
    async with command.running(3):
        command.started[0].opened()
        await trio.testing.wait_all_tasks_blocked()
        first, second, third = command.started
        second.end(1)
        await trio.testing.wait_all_tasks_blocked()
        await command.send()  # in the pause of the second one
        third.end(3)
        await trio.sleep(100)
        assert command.code is None, "the first one has something in hand"
        first.end(0)
    assert (len(command.started), command.code) == (3, 3)


async def test_a_second_signal_kills(
    command: FakeCommand, autojump_clock: MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    command.code_of_stop = None
    async with command.running(2):
        for _ in range(3):
            await command.send()
    assert command.code == 130
    assert capsys.readouterr().err.count("ended at once; the messages in hand will be delivered again") == 1


def test_how_a_process_ended_is_said_in_words() -> None:
    assert [said(code) for code in (3, 137, 250)] == ["exit code 3", "SIGKILL", "exit code 250"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--workers", "0"], "argument --workers: '0' is not a number from 1 to 1000"),
        (["--workers", "many"], "'many' is not a number from 1 to 1000"),
        (["--workers", "2", "--reload"], "--reload is for development, where one process runs: leave out --reload, or"),
    ],
)
def test_what_workers_cannot_be_is_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "shop:app", *words])
    assert ended.value.code == 2
    assert says in capsys.readouterr().err


# The command.

PROGRAM = """
import asyncio, os, pathlib, signal, trio
from triomq import ConsumeFromWhere, TrioMQ

here = pathlib.Path(__file__).parent
app = TrioMQ("p", name_server={name_server!r}, backend={backend!r}, instance_name="fixed")

@app.consumer({topic!r}, group={group!r}, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
async def handle(value):
    (here / f"began-{{value.decode()}}").write_text(str(os.getpid()))
    while not (here / "go").exists():
        await {backend}.sleep(0.02)
    (here / f"done-{{value.decode()}}").touch()
"""


class Shop:
    """A program in a directory, and its topic with four queues."""

    def __init__(self, directory: Path, cluster: Cluster, backend: str = "asyncio") -> None:
        self.directory = directory
        self.cluster = cluster
        self.topic, self.group = fresh(), fresh("G")
        self._sent = 0
        text = PROGRAM.format(name_server=cluster.name_server, topic=self.topic, group=self.group, backend=backend)
        (directory / "shop.py").write_text(text)

    @property
    def said(self) -> str:
        return (self.directory / "stderr").read_text()

    def began(self) -> dict[str, int]:
        """Return the messages whose handler has begun, each with the process."""
        found = {path.name: path.read_text() for path in self.directory.glob("began-*")}
        return {name.removeprefix("began-"): int(text) for name, text in found.items() if text}

    def done(self) -> set[str]:
        """Return the messages whose handler has ended."""
        return {path.name.removeprefix("done-") for path in self.directory.glob("done-*")}

    async def until_members(self, count: int) -> set[str]:
        """Wait until the group has this number of members; return their client ids."""
        found: set[str] = set()
        async with Admin(name_server=self.cluster.name_server, timeout_seconds=LIMIT_SECONDS) as admin:
            with trio.fail_after(LIMIT_SECONDS):
                while len(found) != count:
                    await trio.sleep(0.05)
                    with suppress(MQClientError):  # no member yet
                        connection = await admin.consumer_connection(self.group)
                        found = {one.client_id for one in connection.connection_set}
        return found

    async def until_processes(self, wanted: Callable[[set[int]], bool]) -> set[int]:
        """Send until the handlers of such processes have begun; return the processes."""
        async with Producer(fresh("P"), name_server=self.cluster.name_server) as producer:
            with trio.fail_after(LIMIT_SECONDS):
                while not wanted(set(self.began().values())):
                    self._sent += 1
                    await producer.send(Message(self.topic, str(self._sent).encode()))
                    await trio.sleep(0.05)
        return set(self.began().values())


async def until_ended(process: subprocess.Popen[bytes]) -> int:
    await until(lambda: process.poll() is not None)
    assert process.returncode is not None
    return process.returncode


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_workers_share_the_queues_and_one_that_dies_is_started_again(triomq: Cluster, tmp_path: Path) -> None:
    shop = Shop(tmp_path, triomq)
    (tmp_path / "go").touch()
    await shop.until_processes(lambda _: shop._sent > 0)  # the topic is there
    with running(tmp_path, "shop:app", "--workers", "2") as process:
        members = await shop.until_members(2)
        assert sorted(member.partition("@")[2] for member in members) == ["fixed-1", "fixed-2"]
        pids = await shop.until_processes(lambda pids: len(pids) == 2)
        assert process.pid not in pids
        before = set(pids)
        os.kill(pids.pop(), signal.SIGKILL)
        await until(lambda: ", SIGKILL; to be started again in 1 s" in shop.said)
        await shop.until_processes(lambda now: bool(now - before))
        process.send_signal(signal.SIGTERM)
        assert await until_ended(process) == 0
    assert "worker 2 triomq.app p started" in shop.said


@pytest.mark.parametrize(("backend", "to_all"), [("asyncio", False), ("asyncio", True), ("trio", False)])
async def test_all_workers_finish_what_they_have_in_hand(
    triomq: Cluster, tmp_path: Path, backend: str, to_all: bool
) -> None:
    """`to_all`: every process gets the signal, as systemd sends it, and yet stops in order."""
    shop = Shop(tmp_path, triomq, backend)
    await shop.until_processes(lambda _: shop._sent > 0)
    with running(tmp_path, "shop:app", "--workers", "2") as process:
        await shop.until_members(2)
        pids = await shop.until_processes(lambda pids: len(pids) == 2)
        for pid in (process.pid, *(pids if to_all else ())):
            os.kill(pid, signal.SIGTERM)
        await until(lambda: shop.said.count(" p shutdown begun") == 2)
        assert process.poll() is None
        (tmp_path / "go").touch()
        assert await until_ended(process) == 0
    assert shop.done() >= shop.began().keys()


async def test_a_second_signal_ends_the_workers_at_once(triomq: Cluster, tmp_path: Path) -> None:
    shop = Shop(tmp_path, triomq)
    with running(tmp_path, "shop:app", "--workers", "2") as process:
        pids = await shop.until_processes(lambda pids: len(pids) == 2)
        process.send_signal(signal.SIGINT)
        await until(lambda: "shutdown begun; another Ctrl-C or SIGTERM ends all" in shop.said)
        process.send_signal(signal.SIGINT)
        assert await until_ended(process) == 130
        await until(lambda: not any(map(runs, pids)))
    assert not shop.done()
    assert shop.said.count("ended at once; the messages in hand will be delivered again") == 1


async def test_workers_stop_in_order_when_their_parent_is_gone(triomq: Cluster, tmp_path: Path) -> None:
    shop = Shop(tmp_path, triomq)
    with running(tmp_path, "shop:app", "--workers", "2") as process:
        pids = await shop.until_processes(lambda pids: len(pids) == 2)
        process.kill()
        await until(lambda: shop.said.count(" p shutdown begun") == 2)
        (tmp_path / "go").touch()
        await until(lambda: not any(map(runs, pids)))
    assert shop.done() >= shop.began().keys()


async def test_an_application_that_cannot_open_ends_the_command_with_one_error(tmp_path: Path) -> None:
    lines = ["from triomq import TrioMQ", 'app = TrioMQ("p", name_server="127.0.0.1:1")', "@app.provides"]
    (tmp_path / "shop.py").write_text("\n".join([*lines, "def stock(nothing): ..."]))
    errors = {"shop:app": "has a parameter 'nothing'", "shop:market": "'market' of the module 'shop' is no TrioMQ"}
    for name, error in errors.items():
        with running(tmp_path, name, "--workers", "4") as process:
            assert await until_ended(process) == 1
        said = (tmp_path / "stderr").read_text()
        assert said.count(error) == 1
        assert said.count("application not opened; its worker ended: exit code 1") == 1
