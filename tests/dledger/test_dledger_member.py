"""A member: the rules bound to a ledger, a network and time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from file_faults import FaultyFiles
from member_lab import GROUP, PORT, MemberLab, ask, group_client, reports_of, run_lab
from trio.testing import MockClock

from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.member.calls import Calls
from triomq.dledger.member.client import GroupFailed
from triomq.dledger.member.peers import PeersRefused, parse_peers
from triomq.dledger.member.syncing import NOTE_SECONDS, Syncing
from triomq.dledger.rules.actions import Role, Send
from triomq.dledger.rules.core import Setup
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import (
    AppendRequest,
    Entry,
    HeartBeatRequest,
    MetadataRequest,
    MetadataResponse,
    Response,
    VoteRequest,
    VoteResponse,
    push_request,
)
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.remoting.client import RemotingClient
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer
from triomq.remoting.turn import Turn
from triomq.store.disk.files import Files

OVER_WIRE = {"group": GROUP, "leader_id": "n1", "local_id": "n1", "remote_id": "n0"}


def vote_request(term: int) -> bytes:
    return VoteRequest(**OVER_WIRE, term=term).encode()


async def test_a_busy_disk_under_a_checkpoint_does_not_hold_up_the_event_loop(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """A leader of RocketMQ gives a follower three seconds for an answer."""
    files = FaultyFiles()
    ledger = Ledger(files, str(tmp_path), 65536, is_whole=lambda entry: True)
    ledger.open()
    ledger.append(1, [b"x"])
    files.calls.clear()

    async def offload(function: Callable[..., Any], *arguments: Any) -> None:
        thread = threading.Thread(target=function, args=arguments)
        thread.start()
        thread.join()  # the clock stands meanwhile

    async with trio.open_nursery() as nursery:
        syncing = Syncing(
            ledger,
            offload,
            is_sync_flush=False,
            syncs=True,
            synced=lambda: None,
            failed=lambda error: None,
            committed=lambda: 0,
        )
        ledger.append(1, [b"y"])
        nursery.start_soon(syncing.run)
        await trio.sleep(2 * NOTE_SECONDS)
        nursery.cancel_scope.cancel()
    ledger.close()
    assert TermFiles(files, str(tmp_path)).load_checkpoint() == (1, 0)
    syncs = files.noted("datasync", "sync_directory")
    assert syncs and threading.get_ident() not in {call.thread for call in syncs}


def test_a_vote_is_on_disk_before_it_is_answered(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        node = lab.nodes["n0"]
        await node.start()
        term = node.member.term + 5
        answer = await ask(client, lab.addresses["n0"], codes.VOTE, vote_request(term))
        assert VoteResponse.decode(answer.body).vote_result == codes.REJECT_TERM_NOT_READY
        gate, waits = trio.Event(), trio.Event()

        async def offload(function: Callable[..., Any], *arguments: Any) -> Any:
            waits.set()
            await gate.wait()
            return function(*arguments)

        node.offload = offload
        answers: list[RemotingCommand] = []

        async def vote() -> None:
            answers.append(await ask(client, lab.addresses["n0"], codes.VOTE, vote_request(term)))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(vote)
            await waits.wait()
            await trio.sleep(1)
            assert answers == []
            gate.set()
        assert VoteResponse.decode(answers[0].body).vote_result == codes.ACCEPT
        assert TermFiles(Files(), node.directory).load_term() == (term, "n1")

    run_lab(tmp_path, scenario)


def test_requests_that_wait_for_a_term_to_be_stored_have_a_bound(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        node = lab.nodes["n0"]
        await node.start()
        node.disk.is_full = True
        body = MetadataRequest(group=GROUP, remote_id="n0").encode()
        answers: list[int] = []

        async def look() -> None:
            answers.append((await client_answer(client, lab.addresses["n0"], body)).code)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask_in_vain, client, lab.addresses["n0"])
            await trio.sleep(1)
            for _ in range(1100):
                nursery.start_soon(look)
            await trio.sleep(1)
            assert set(answers) == {ResponseCode.SYSTEM_BUSY}
            assert len(answers) > 50
            node.disk.is_full = False
        assert answers.count(codes.SUCCESS) > 900

    run_lab(tmp_path, scenario)


async def client_answer(client: RemotingClient, address: str, body: bytes) -> RemotingCommand:
    return await ask(client, address, codes.METADATA, body)


async def ask_in_vain(client: RemotingClient, address: str) -> None:
    """Make a member raise its term."""
    await ask(client, address, codes.VOTE, vote_request(50))


def entry(**changes: int) -> Entry:
    return Entry(**{"body": b"x", "size": 49, "index": 0, "pos": 0, "term": 1, **changes})


def push(found: Entry) -> bytes:
    return push_request(
        "APPEND", group=GROUP, leader="n1", follower="n0", term=1, committed=-1, entries=[found]
    ).encode()


@pytest.mark.parametrize(
    ("code", "body", "answer", "said"),
    [
        (codes.VOTE, b"no json", ResponseCode.SYSTEM_ERROR, "the body is not a valid VoteRequest"),
        (codes.VOTE, b'{"term":"many"}', ResponseCode.SYSTEM_ERROR, "the body is not a valid VoteRequest"),
        (codes.VOTE, vote_request(1 << 62), ResponseCode.SYSTEM_ERROR, "which no member of a group writes"),
        (codes.PUSH, push(entry(pos=-1)), ResponseCode.SYSTEM_ERROR, "pos is -1"),
        (codes.PUSH, push(entry(index=1 << 62)), ResponseCode.SYSTEM_ERROR, "index is"),
        (codes.PUSH, push(entry(channel=1 << 40)), ResponseCode.SYSTEM_ERROR, "channel is"),
        (codes.PULL, b"{}", ResponseCode.SYSTEM_ERROR, "PULL is not served"),
        (51_099, b"{}", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, " request type 51099 not supported"),
    ],
)
def test_what_makes_no_sense_is_answered_and_costs_nobody_else_anything(
    tmp_path: Path, code: int, body: bytes, answer: int, said: str
) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        leader = await lab.start()
        term = leader.member.term
        found = await ask(client, lab.addresses["n0"], code, body)
        assert found.code == answer
        assert found.remark is not None
        assert said in found.remark
        await group_client(lab, client).append(b"one")
        assert (leader.member.term, reports_of(leader).errors) == (term, [])

    run_lab(tmp_path, scenario)


def test_requests_of_strangers_change_nothing(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        leader = await lab.start()
        term = leader.member.term
        for changes in ({"group": "other"}, {"remote_id": "n7"}):
            for node in lab.running():
                values = {**OVER_WIRE, "remote_id": node.name, **changes}
                request = HeartBeatRequest(**values, term=900)
                await ask(client, lab.addresses[node.name], codes.HEART_BEAT, request.encode())
        assert {node.member.term for node in lab.running()} == {term}

    run_lab(tmp_path, scenario)


@pytest.mark.parametrize("is_back_at_once", [False, True])
def test_a_leader_whose_process_ended_is_replaced_within_two_seconds(tmp_path: Path, is_back_at_once: bool) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        await trio.sleep(5)
        began = trio.current_time()
        await first.kill()
        if is_back_at_once:
            await first.start()
        await lab.leader()
        assert trio.current_time() - began < 2
        await group_client(lab, client).append(b"one")

    run_lab(tmp_path, scenario)


def test_a_leader_whose_connections_broke_is_not_replaced(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        term = first.member.term
        for node in lab.nodes.values():
            if node is not first:
                lab.network.reset(first.host, node.host)
        await trio.sleep(10)
        assert await lab.leader() is first
        assert first.member.term == term

    run_lab(tmp_path, scenario)


def test_a_leader_whose_disk_is_full_leaves_the_leadership_to_another(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        group = group_client(lab, client)
        await group.append(b"one")
        await lab.agree()
        first.disk.is_full = True
        with pytest.raises(GroupFailed) as refused:
            await group.append(b"two")
        assert refused.value.code == codes.DISK_FULL
        second = await lab.leader()
        assert second is not first
        await group.append(b"three")
        first.disk.is_full = False
        await lab.agree(60)
        assert first.ledger.entry(first.ledger.end_index).body == b"three"
        assert reports_of(first).errors == []

    run_lab(tmp_path, scenario)


def test_a_member_whose_disk_fails_ends_and_says_nothing_more(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        first.disk.is_failing = True
        with suppress(GroupFailed):  # the other two are a quorum, if they are in time
            await group_client(lab, client).append(b"one")
        await trio.sleep(1)
        assert [type(error) for error in reports_of(first).errors] == [OSError]
        body = MetadataRequest(group=GROUP, remote_id=first.name).encode()
        answer = await ask(client, lab.addresses[first.name], codes.METADATA, body)
        assert answer.code == ResponseCode.SYSTEM_BUSY
        assert answer.remark is not None
        assert "restart it" in answer.remark
        assert first.member.append_refusal() == codes.NOT_LEADER
        assert (await lab.leader(without=first)) is not first

    run_lab(tmp_path, scenario, is_sync_flush=True)


def test_an_orderly_stop_hands_the_leadership_over_without_a_gap(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        await group_client(lab, client).append(b"one")
        began = trio.current_time()
        assert await first.member.hand_over()
        assert trio.current_time() - began < 1
        assert (await lab.leader()) is not first
        assert await first.member.hand_over(), "it has nothing to hand over"

    run_lab(tmp_path, scenario)


def test_a_leader_without_followers_does_not_wait_for_one_to_hand_over_to(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        for node in lab.running():
            if node is not first:
                await node.kill()
        await trio.sleep(3)
        began = trio.current_time()
        assert not await first.member.hand_over()
        assert trio.current_time() - began < 0.1

    run_lab(tmp_path, scenario)


@pytest.mark.parametrize(
    ("serves_clients", "body", "code"),
    [
        (False, b"one", codes.UNSUPPORTED),
        (True, b"", codes.REQUEST_WITH_EMPTY_BODYS),
        (True, bytes(64 * 1024), codes.UNEXPECTED_ARGUMENT),
    ],
)
def test_an_append_that_cannot_be_is_refused_and_the_leader_stays(
    tmp_path: Path, serves_clients: bool, body: bytes, code: int
) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        request = AppendRequest(body=body, group=GROUP, remote_id=first.name)
        answer = await ask(client, lab.addresses[first.name], codes.APPEND, request.encode())
        assert AppendRequest.decode(answer.body).code == code
        assert first.member.role is Role.LEADER
        assert first.ledger.end_index == -1

    run_lab(tmp_path, scenario, serves_clients=serves_clients)


def test_entries_of_one_proposal_are_settled_together(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        assert first.member.append_refusal() is None
        assert first.member.propose("both", lambda term: first.ledger.append(term, [b"one", b"two"])) == codes.SUCCESS
        assert await lab.agree() == 1
        assert reports_of(first).told == [("both", codes.SUCCESS, 1)]
        other = next(node for node in lab.running() if node is not first)
        assert other.member.propose("late", lambda term: None) == codes.NOT_LEADER

    run_lab(tmp_path, scenario)


def test_a_checkpoint_is_noted_every_three_seconds_and_at_the_end(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        first = await lab.start()
        group = group_client(lab, client)
        notes = TermFiles(Files(), first.directory)
        await group.append(b"one")
        await trio.sleep(5)
        assert notes.load_checkpoint() == (0, 0)
        await group.append(b"two")
        await lab.agree()
        await first.stop()
        assert notes.load_checkpoint() == (1, 1)

    run_lab(tmp_path, scenario)


def test_nothing_that_was_acknowledged_is_lost_when_power_fails_everywhere(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        await lab.start()
        acknowledged: dict[int, bytes] = {}
        for at in range(20):
            acknowledged[await append_in_the_end(lab, client, b"%d" % at)] = b"%d" % at
            for node in lab.running() if at % 5 == 4 else lab.choose.sample(lab.running(), 1):
                await node.lose_power()
            for node in lab.nodes.values():
                await node.start()
        await lab.leader()
        await lab.agree()
        for node in lab.running():
            assert {index: node.ledger.entry(index).body for index in acknowledged} == acknowledged

    run_lab(tmp_path, scenario, is_sync_flush=True)


async def append_in_the_end(lab: MemberLab, client: RemotingClient, body: bytes) -> int:
    group = group_client(lab, client)
    with trio.fail_after(60):
        while True:
            with suppress(GroupFailed):
                return await group.append(body)
            await trio.sleep(0.1)


# Calls.


def test_calls_arrive_in_their_order_and_an_answer_that_comes_late_is_none(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        arrived: list[str | None] = []
        kept: list[tuple[Connection, RemotingCommand]] = []

        def answer(connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
            sender = MetadataRequest.decode(request.body).local_id
            arrived.append(sender)
            if sender == "late":
                kept.append((connection, request))
                return None
            return new_response(request, codes.SUCCESS, body=MetadataResponse(leader_id=sender).encode())

        table = ProcessorTable()
        table.register(codes.METADATA, answer)
        server = RemotingServer(ServerSettings(), Turn())
        with lab.nodes["n1"].host.entered():
            server.bind(PORT, table)
            await lab.nursery.start(server.serve)
        answers: list[tuple[int, Response | None]] = []
        setup = Setup(GROUP, "n0", lab.addresses)
        calls = Calls(client, setup, lambda call, found: answers.append((call, found)), lambda: 1000)
        names = ["first", "late", *(str(at) for at in range(20))]
        async with trio.open_nursery() as nursery:
            for at, name in enumerate(names):
                calls.send(Send(at, "n1", MetadataRequest(local_id=name)), nursery)
            await trio.sleep(2)
            for at, name in enumerate(names):
                calls.send(Send(100 + at, "n1", MetadataRequest(local_id=f"again {name}")), nursery)
        assert arrived[len(names) :] == [f"again {name}" for name in names]
        assert sorted(call for call, _ in answers) == [*range(22), *range(100, 122)]
        assert [call for call, found in answers if found is None] == [1]
        connection, request = kept[0]
        connection.answer(request, new_response(request, codes.SUCCESS, body=MetadataResponse().encode()))
        await trio.sleep(1)
        assert len(answers) == 44
        lab.nursery.cancel_scope.cancel()

    run_lab(tmp_path, scenario)


# dLegerPeers.


def test_peers_are_ids_and_addresses() -> None:
    text = "n0-10.0.0.1:40911; n1-my-host:40911;n2-[::1]:040911;"
    assert parse_peers(text, "n1") == {"n0": "10.0.0.1:40911", "n1": "my-host:40911", "n2": "[::1]:40911"}
    assert list(parse_peers("n0-a:1", None)) == ["n0"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty: write n0-host:port"),
        ("n0", "write id-host:port"),
        ("zero-a:1", "with a letter and a number as the id"),
        ("n0-a", "write a host and a port"),
        ("n0-:1", "write a host and a port"),
        ("n0-a:0", "from 1 to 65535"),
        ("n0-a:65536", "from 1 to 65535"),
        ("n0-a:1;n0-b:1", "names n0 twice"),
        ("n0-a:1;n1-a:1", "has a:1 for n0 and for n1"),
        ("n1-a:1", "dLegerSelfId is 'n0', but dLegerPeers has only n1"),
    ],
)
def test_peers_that_name_no_group_are_refused_with_what_to_do(text: str, said: str) -> None:
    with pytest.raises(PeersRefused) as refused:
        parse_peers(text, "n0")
    assert said in str(refused.value)
