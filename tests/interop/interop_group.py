"""A DLedger group of brokers as processes, each of them TrioMQ's or Apache's, with a NameServer; and clients that send
while members fail.

What the clients were promised is compared with what can be read in the end, and the ledgers of all members with each
other.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import AsyncIterator, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

import trio
from free_ports import free_port
from interop_cluster import Daemon
from interop_processes import Child, pause, resume

from triomq import LitePullConsumer, Message, Producer
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.dledger.wire.bodies import TransferRequest, TransferResponse
from triomq.remoting.client import open_client
from triomq.store.disk.files import Files

GROUP = "RaftNode00"
FILE_BYTES = 1 << 20
TOPIC = "GroupTopic"
QUEUES = 4
EQUAL_SECONDS = 60

Place = tuple[int, int]
"""Queue id and queue offset."""

SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": GROUP,
    "enableDLegerCommitLog": "true",
    "dLegerGroup": GROUP,
    "mappedFileSizeCommitLog": str(FILE_BYTES),
    "registerNameServerPeriod": "10000",
    "bindAddress": "127.0.0.1",
    "defaultTopicQueueNums": str(QUEUES),
}


class Group:
    """`kinds`: for each member whether it is "triomq" or "apache". `settings` are added to those of all members."""

    def __init__(self, directory: Path, kinds: dict[str, str], peer: Path | None = None, **settings: str) -> None:
        self.directory = directory
        self.kinds = dict(kinds)
        self._peer = peer
        self._settings = {**SETTINGS, **settings}
        self._port = free_port()
        self.name_server = f"127.0.0.1:{self._port}"
        self.addresses = {member: f"127.0.0.1:{free_port()}" for member in kinds}
        self._brokers = {member: free_port() for member in kinds}
        self._daemons: dict[str, Daemon] = {}
        self.programs: dict[str, list[str]] = {}  # of members that run in another build of TrioMQ
        self._starter = ThreadPoolExecutor(1)  # children end with the thread that started them
        namesrv = directory / "namesrv"
        namesrv.mkdir(parents=True)
        pairs = {"listenPort": str(self._port), "kvConfigPath": str(namesrv / "kvConfig.json")}
        self._namesrv = Daemon(_triomq("mqnamesrv", namesrv, pairs), namesrv, self.name_server)

    @property
    def peers(self) -> str:
        return ";".join(f"{member}-{address}" for member, address in self.addresses.items())

    def broker_address(self, member: str) -> str:
        return f"127.0.0.1:{self._brokers[member]}"

    def start_all(self) -> None:
        """Start all members at once, and wait until they serve."""
        self._namesrv.start()
        self.start_members()

    def start_plain(self, member: str) -> None:
        """Start NameServer and a broker that is no member yet, in the directory of one of ours."""
        self._namesrv.start()
        self._begin(member, is_plain=True)
        self._daemons[member].wait_up()

    def copy_store(self, member: str) -> None:
        """Copy the store of a broker that does not run to all other members."""
        for other in self.kinds.keys() - {member}:
            shutil.copytree(self.directory / member / "store", self.directory / other / "store")

    def start_members(self) -> None:
        for member in self.kinds:
            self._begin(member)
        for daemon in self._daemons.values():
            daemon.wait_up()

    async def start_soon(self, member: str) -> None:
        """Start a member while other tasks run, and wait until it serves."""
        await trio.to_thread.run_sync(self._starter.submit(self.start, member).result)

    def start(self, member: str) -> None:
        """Start a member, and wait until it serves."""
        self._begin(member)
        self._daemons[member].wait_up()

    def _begin(self, member: str, *, is_plain: bool = False) -> None:
        home = self.directory / member
        home.mkdir(exist_ok=True)
        port = self._brokers[member]
        pairs = {**self._settings, "dLegerPeers": self.peers, "dLegerSelfId": member}
        if is_plain:
            pairs["enableDLegerCommitLog"] = "false"
        if self.kinds[member] == "apache":
            assert self._peer is not None
            del pairs["bindAddress"]
            values = [f"{key}={value}" for key, value in pairs.items()]
            argv = [str(self._peer), "broker", str(home), str(port), self.name_server, *values]
        else:
            pairs |= {"listenPort": str(port), "namesrvAddr": self.name_server, "brokerIP1": "127.0.0.1"}
            argv = _triomq("mqbroker", home, {**pairs, "storePathRootDir": str(home / "store")})
            argv = [*self.programs.get(member, argv[:-2]), *argv[-2:]]
        daemon = Daemon(argv, home, f"127.0.0.1:{port}")
        daemon.begin()
        self._daemons[member] = daemon

    @property
    def running(self) -> list[str]:
        return list(self._daemons)

    async def exchange_soon(self, member: str) -> None:
        """Start a member that does not run, on its directory, as one of the other kind."""
        self.kinds[member] = "triomq" if self.kinds[member] == "apache" else "apache"
        await self.start_soon(member)

    def kill(self, member: str) -> None:
        self._daemons.pop(member).kill()

    def stop(self, member: str) -> int | None:
        """Stop a member in an orderly way. Return its exit status."""
        return self._daemons.pop(member).stop()

    def pause(self, member: str) -> None:
        pause(self._child(member).pid)

    def resume(self, member: str) -> None:
        resume(self._child(member).pid)

    def log_of(self, member: str) -> str:
        return self._child(member).log_text()

    def logs(self) -> str:
        """Return the last lines of all members that run."""
        return "\n".join(f"{member}: {self._child(member).log_tail(40)}" for member in self.running)

    def _child(self, member: str) -> Child:
        child = self._daemons[member].child
        assert child is not None
        return child

    def end(self) -> None:
        for member in self.running:
            self.kill(member)
        self._namesrv.kill()
        self._starter.shutdown()

    def ledger_directory(self, member: str) -> str:
        return f"{self.directory}/{member}/store/dledger-{member}"

    @contextmanager
    def ledger(self, member: str) -> Iterator[Ledger]:
        """Open the ledger of a member that does not run."""
        ledger = Ledger(Files(), self.ledger_directory(member), FILE_BYTES)
        ledger.open()
        try:
            yield ledger
        finally:
            ledger.close()

    def data_until(self, member: str, last: int) -> bytes:
        """Return all bytes of a stopped member's entries, up to and with the record at this physical offset."""
        with self.ledger(member) as ledger:
            data = b"".join(file.read(0, file.size_bytes) for file in ledger.data.files)
            at = last - ledger.data.first_start
            end = at + int.from_bytes(data[at : at + 4], "big")
            held = ledger.end_pos - ledger.data.first_start
            assert end <= held, f"{member} has {held} of {end} bytes"
            return data[:end]

    def has_text(self, member: str, text: bytes) -> bool:
        """Return whether the files of a member, which may run, have a text anywhere."""
        return any(text in path.read_bytes() for path in Path(self.ledger_directory(member), "data").iterdir())

    def has_record(self, member: str, position: int, body: bytes) -> bool:
        """Return whether the files of a member, which may run, have a record with this body at a physical offset."""
        files = sorted(Path(self.ledger_directory(member), "data").iterdir())
        *_, found = [path for path in files if int(path.name) <= position]
        with found.open("rb") as file:
            file.seek(position - int(found.name))
            return body in file.read(1024)


def _triomq(program: str, home: Path, pairs: dict[str, str]) -> list[str]:
    """Return the command of a daemon whose configuration is these pairs."""
    path = home / f"{program}.conf"
    path.write_text("".join(f"{key}={value}\n" for key, value in pairs.items()))
    return [sys.executable, "-m", f"triomq.{program.removeprefix('mq')}", "-c", str(path)]


@contextmanager
def running_group(directory: Path, kinds: dict[str, str], peer: Path | None = None, **settings: str) -> Iterator[Group]:
    """Start a group, and end it whatever happens."""
    group = Group(directory, kinds, peer, **settings)
    try:
        group.start_all()
        yield group
    finally:
        group.end()


class Load:
    """Clients that send until they are stopped. `acknowledged`: the place of a message -> its body."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.acknowledged: dict[Place, bytes] = {}
        self.failed = 0
        self._sent = 0
        self._number = 0
        self._last_at = 0.0
        self._last_error: Exception | None = None
        self._one_more = trio.Event()
        self.longest_gap = 0.0

    def acknowledge(self, place: Place, body: bytes) -> None:
        """Note what a producer was promised, this load's or another one."""
        assert place not in self.acknowledged, f"queue offset {place} was given twice"
        self.acknowledged[place] = body

    @asynccontextmanager
    async def running(self, senders: int = 4) -> AsyncIterator[Load]:
        producing = Producer("group-load", name_server=self.group.name_server)
        async with producing as producer, trio.open_nursery() as tasks:
            self._last_at = trio.current_time()
            for _ in range(senders):
                tasks.start_soon(self._send, producer)
            yield self
            tasks.cancel_scope.cancel()

    async def _send(self, producer: Producer[Any]) -> None:
        while True:
            self._number += 1
            body = b"%d " % self._number + b"." * (self._number % 300)
            try:
                with trio.CancelScope(shield=True):  # a send that was begun is counted
                    result = await producer.send(Message(TOPIC, body, keys=f"k{self._number}"), timeout_seconds=5)
            except Exception as error:
                self.failed += 1
                self._last_error = error
                await trio.sleep(0.02)
                continue
            self.acknowledge((result.queue.queue_id, result.queue_offset), body)
            self._sent += 1
            self._one_more.set()
            now = trio.current_time()
            self.longest_gap = max(self.longest_gap, now - self._last_at)
            self._last_at = now
            await trio.sleep(0.01)  # what is sent is read later

    async def more(self, count: int, seconds: float = 60) -> None:
        """Wait until that many more messages are acknowledged to this load."""
        before = self._sent
        with trio.move_on_after(seconds):
            while self._sent < before + count:
                self._one_more = trio.Event()
                await self._one_more.wait()
            return
        raise AssertionError(
            f"{self._sent - before} of {count} messages acknowledged in {seconds:g} s, the last error"
            f" {self._last_error!r}\n{self.group.logs()}"
        )


class Observer:
    """Asks the members of a group who leads, and for transfers."""

    def __init__(self, group: Group, client: GroupClient) -> None:
        self._group = group
        self._client = client

    async def leader(self, among: list[str] | None = None, seconds: float = 40) -> str:
        """Return the leader that a member names and that is one of `among`, once there is one."""
        able = among or self._group.running
        with trio.fail_after(seconds):
            while True:
                for member in able:
                    try:
                        leader = (await self._client.metadata(member)).leader_id
                    except GroupFailed:
                        continue
                    if leader == member:
                        return leader
                await trio.sleep(0.05)

    async def transfer(self, leader: str, to: str) -> int:
        """Ask the leader to hand over. Return DLedger's code."""
        term = await self._term_of(leader)
        request = TransferRequest(
            group=GROUP, local_id="test", remote_id=leader, term=term, transfer_id=leader, transferee_id=to
        )
        try:
            return (await self._client.ask(leader, request, TransferResponse)).code
        except GroupFailed as error:
            return error.code or -1

    async def make_lead(self, to: str, seconds: float = 40) -> None:
        """Let a member lead; the leader may refuse for a while, because that member has just started."""
        with trio.fail_after(seconds):
            while (leader := await self.leader()) != to:
                if await self.transfer(leader, to) != 200:
                    await trio.sleep(0.2)

    async def _term_of(self, leader: str) -> int:
        term, _ = TermFiles(Files(), self._group.ledger_directory(leader)).load_term()
        return term


@asynccontextmanager
async def observing(group: Group) -> AsyncIterator[Observer]:
    async with open_client() as client:
        yield Observer(group, GroupClient(client, GROUP, group.addresses))


async def read_all(group: Group, wanted: Collection[Place]) -> dict[Place, bytes]:
    """Return what a client reads of the topic from its beginning until it has all that is wanted, or no more comes."""
    found: dict[Place, bytes] = {}
    missing = set(wanted)
    async with LitePullConsumer("group-reader", name_server=group.name_server, auto_commit=False) as consumer:
        queues = await consumer.queues(TOPIC)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek_to_begin(queue)
        while missing and (messages := await consumer.poll(timeout_seconds=5)):
            for message in messages:
                place = message.queue_id, message.queue_offset
                assert place not in found, f"{place} was read twice"
                found[place] = message.body
                missing.discard(place)
    return found


async def check_promises(group: Group, load: Load) -> None:
    """Everything acknowledged is read, where it was promised."""
    found = await read_all(group, load.acknowledged)
    lost = {place: body for place, body in load.acknowledged.items() if found.get(place) != body}
    assert not lost, f"{len(lost)} of {len(load.acknowledged)} acknowledged messages are lost: {sorted(lost)[:10]}"


async def check_equal(group: Group) -> None:
    """Send once more, wait until each member has it, kill all, and compare the ledgers that they leave: up to this last
    message they are equal to the byte.

    What lies behind it is not compared. While one member after the other is killed, or stands still on a busy machine,
    another one may be elected and begin its term with an entry of its own, which nobody else has yet."""
    body = b"the last one"
    async with Producer("group-last", name_server=group.name_server) as producer:
        result = await producer.send(Message(TOPIC, body), timeout_seconds=30)
    position = int(result.offset_message_id[-16:], 16)
    with trio.move_on_after(EQUAL_SECONDS):
        while not all(group.has_record(member, position, body) for member in group.kinds):  # noqa: ASYNC110, others write
            await trio.sleep(0.05)
    for member in group.running:
        group.kill(member)
    first, *others = group.kinds
    data = group.data_until(first, position)
    for member in others:
        found = group.data_until(member, position)
        assert found == data, f"{member} has {len(found)} bytes and {first} {len(data)}, or they differ"


# What happens to a leader, which is over when another one leads.


async def _kill(group: Group, observer: Observer, leader: str) -> None:
    group.kill(leader)
    await observer.leader()
    await group.start_soon(leader)


async def _stop(group: Group, observer: Observer, leader: str) -> None:
    status = await trio.to_thread.run_sync(group.stop, leader)
    assert status == (0 if group.kinds[leader] == "triomq" else 143)
    await observer.leader()
    await group.start_soon(leader)


async def _pause(group: Group, observer: Observer, leader: str) -> None:
    await trio.to_thread.run_sync(group.pause, leader)
    await observer.leader([member for member in group.running if member != leader])
    group.resume(leader)


async def _transfer(group: Group, observer: Observer, leader: str) -> None:
    await observer.make_lead(next(member for member in group.running if member != leader))


TROUBLES: Final = {"kill": _kill, "stop": _stop, "pause": _pause, "transfer": _transfer}
