"""A server that stops while tasks of its clients still take steps."""

from __future__ import annotations

import pytest
import trio
import trio.testing
from test_remoting_poller import Bench, Crowd, run_for
from trio.testing import MockClock

from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import encode_frame
from triomq.remoting import poller as poller_module
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_tasks import MAX_TASKS
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.scheduling.policy import INTERACTIVE_READS
from triomq.remoting.scheduling.scheduler import Client, Scheduler
from triomq.remoting.server import RemotingServer
from triomq.remoting.turn import Turn

pytestmark = pytest.mark.skipif(not poller_module.HAS_EPOLL, reason="epoll is not available here")

PLAIN, STEPPED = 10, 11


class Server:
    """A server with an interactive client and one whose request walks on, in steps, once `goes_on` is set."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.goes_on = trio.Event()
        self.finished = 0
        self.table = ProcessorTable()
        self.table.register(PLAIN, self.plain)
        self.table.register(STEPPED, self.stepped)
        self.server = RemotingServer(ServerSettings(bind_address="127.0.0.1", listen_port=0), self.turn)
        self.port = self.server.bind(0, self.table)

    def plain(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        return new_response(request)

    async def stepped(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        with trio.CancelScope(shield=True):  # as a task that is about to continue when the server is cancelled
            await self.goes_on.wait()
            for _unused in range(3):
                await connection.steps.next()
        self.finished += 1
        return new_response(request)

    async def connect(self) -> trio.SocketStream:
        return await trio.open_tcp_stream("127.0.0.1", self.port)


@pytest.mark.parametrize("drains", [False, True])
async def test_steps_that_are_taken_after_the_end_of_the_poller_do_not_fail_a_stop(
    mock_clock: MockClock, drains: bool
) -> None:
    """The clock stands, so the interactive client counts as one that may ask again. One task more than run at once: its
    first step is taken outside of its processor, where an error ends the server."""
    served = Server()
    async with trio.open_nursery() as nursery:
        await nursery.start(served.server.serve)
        async with await served.connect() as interactive, await served.connect() as busy:
            await busy.send_all(encode_frame(new_request(STEPPED)) * (MAX_TASKS + 1))
            for _ in range(INTERACTIVE_READS + 1):
                await interactive.send_all(encode_frame(new_request(PLAIN)))
                await interactive.receive_some(4096)
            await trio.testing.wait_all_tasks_blocked()
            if drains:
                await served.server.drain(0)
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await trio.testing.wait_all_tasks_blocked()
                assert await interactive.receive_some(1) == b"", "the poller has ended"
                served.goes_on.set()
    assert served.finished == MAX_TASKS + 1
    assert not served.turn.scheduler.is_interactive_waiting(trio.current_time())


async def test_nobody_asks_a_poller_that_has_ended_whether_an_interactive_client_waits(nursery: trio.Nursery) -> None:
    crowd = Crowd(nursery, 0)
    crowd.ask()
    assert crowd.is_interactive_waiting()
    async with trio.open_nursery() as serving:
        serving.start_soon(crowd.bench.poller.run)
        serving.cancel_scope.cancel()
    assert not crowd.is_interactive_waiting()


async def test_each_of_those_who_are_asked_can_end_that_for_itself() -> None:
    scheduler, client, asked = Scheduler(), Client(), list[str]()
    for _ in range(INTERACTIVE_READS):
        client.was_read(1, 0.0, has_more=False)
    scheduler.was_read(client, 0.0)

    def waits(name: str) -> bool:
        asked.append(name)
        return False

    ends = [scheduler.ask(lambda name=name: waits(name)) for name in ("a", "b", "c")]  # type: ignore[misc]
    ends[1]()
    assert not scheduler.is_interactive_waiting(0.0)
    assert asked == ["a", "c"]


async def test_a_socket_that_comes_after_the_end_of_the_poller_is_closed_like_the_others(nursery: trio.Nursery) -> None:
    """A connection whose first byte tells whether it speaks TLS has a task, which may run after the poller's."""
    bench = Bench(nursery)
    await run_for(bench, lambda: True)
    late, peer = bench.connection()
    assert late.close_reason == "stopped"
    assert peer.recv(1) == b""
    assert len(bench.poller) == 0
