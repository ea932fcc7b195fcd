"""A member of a DLedger group, as operators see it: runtime information, readiness, metrics."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
from broker_scrape import WatchedBroker, watched
from broker_whole import ANSWER_SECONDS
from free_ports import free_port
from structlog.testing import capture_logs

from triomq.broker.group.table_log import TableLog
from triomq.dledger import status
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.codes import RequestCode, ResponseCode


def member_of(peers: str) -> dict[str, str]:
    return {"enableDLegerCommitLog": "true", "dLegerGroup": "G", "dLegerSelfId": "n0", "dLegerPeers": peers}


async def until_ready(it: WatchedBroker) -> dict[str, tuple[bool, str]]:
    with trio.fail_after(ANSWER_SECONDS):
        while (found := await it.ready())[0] != 200:  # noqa: ASYNC110 (over HTTP)
            await trio.sleep(0.02)
    return found[1]


async def info_of(it: WatchedBroker) -> dict[str, str]:
    return dict(KVTable.decode((await it.broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body).table)


async def test_a_member_that_leads_says_so_everywhere(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    async with watched(tmp_path, **member_of(f"n0-{address}")) as it:
        assert (await until_ready(it))["replication"] == (True, "leads the group")
        await it.broker.create_topic("T", 1)
        for _ in range(3):
            assert (await it.broker.send("T")).code == ResponseCode.SUCCESS
        infos = {"b": await info_of(it)}
        assert list(status.groups_of(infos)) == ["G"]
        members = status.peers_of(infos.values())
        assert members == {"n0": address}
        [found] = status.statuses(members, infos, {})
        assert (found.member, found.broker, found.role, found.leader, found.lag) == ("n0", "b", "leader", "n0", 0)
        assert found.last is not None and found.last >= 2 and found.committed == found.last and found.first == 0
        scrape = await it.scrape()
        assert scrape.value("triomq_dledger_role", role="leader") == 1
        assert scrape.value("triomq_dledger_role", role="follower") == 0
        assert scrape.value("triomq_dledger_leader_known") == 1
        assert scrape.value("triomq_dledger_term") == found.term
        assert scrape.value("triomq_dledger_end_index") == found.last
        assert scrape.value("triomq_dledger_committed_index") == found.last
        assert scrape.value("triomq_dledger_begin_index") == 0
        assert scrape.value("triomq_dledger_tables_current") == 1


async def test_a_leader_is_ready_only_once_it_takes_sends_and_changes_of_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, may_go_on, lead = trio.Event(), trio.Event(), TableLog.lead

    async def held(table_log: TableLog, term: int) -> None:
        reached.set()
        await may_go_on.wait()
        await lead(table_log, term)

    monkeypatch.setattr(TableLog, "lead", held)
    async with watched(tmp_path, **member_of(f"n0-127.0.0.1:{free_port()}")) as it:
        with trio.fail_after(ANSWER_SECONDS):
            await reached.wait()
        code, checks = await it.ready()
        assert (code, checks["replication"]) == (503, (False, "is about to lead the group"))
        may_go_on.set()
        await until_ready(it)
        await it.broker.create_topic("T", 1)
        assert (await it.broker.send("T")).code == ResponseCode.SUCCESS


async def test_a_group_of_one_stops_without_a_warning(tmp_path: Path) -> None:
    with capture_logs() as lines:
        async with watched(tmp_path, **member_of(f"n0-127.0.0.1:{free_port()}")) as it:
            await until_ready(it)
    assert [line["event"] for line in lines if line["log_level"] in ("warning", "error")] == []


async def test_a_follower_without_tables_is_not_ready(tmp_path: Path) -> None:
    async with watched(tmp_path, **member_of(f"n0-127.0.0.1:{free_port()}")) as it:
        await until_ready(it)
        assert it.broker.controller.serving is not None and it.broker.controller.serving.group is not None
        group = it.broker.controller.serving.group
        group.lacks_tables = lambda: "the tables of the group have not arrived whole yet"  # type: ignore[method-assign]
        code, checks = await it.ready()
        assert code == 503 and "have not arrived whole" in checks["replication"][1]
        assert (await it.scrape()).value("triomq_dledger_tables_current") == 0
        assert (await info_of(it))["dledgerLacks"].startswith("the tables of the group")


async def test_a_member_without_a_quorum_is_not_ready(tmp_path: Path) -> None:
    peers = ";".join(f"n{number}-127.0.0.1:{free_port()}" for number in range(3))
    async with watched(tmp_path, **member_of(peers)) as it:
        code, checks = await it.ready()
        assert (code, checks["replication"][0]) == (503, False)
        assert "no member of the group leads" in checks["replication"][1]
        scrape = await it.scrape()
        assert scrape.value("triomq_dledger_leader_known") == 0
        assert scrape.value("triomq_dledger_role", role="leader") == 0
        assert "triomq_replication_follows" not in scrape.types, "it follows by the ledger"


async def test_a_broker_without_a_group_says_nothing_about_one(tmp_path: Path) -> None:
    async with watched(tmp_path) as it:
        assert status.groups_of({"b": await info_of(it)}) == {}
        assert not [name for name in (await it.scrape()).types if "dledger" in name]


def test_what_is_not_known_of_a_member_is_shown_as_such() -> None:
    leads = {
        "dledgerGroup": "G",
        "dledgerSelfId": "n0",
        "dledgerRole": "leader",
        "dledgerLeader": "n0",
        "dledgerTerm": "3",
        "dledgerBeginIndex": "0",
        "dledgerEndIndex": "90",
        "dledgerCommittedIndex": "88",
    }
    follows = {**leads, "dledgerSelfId": "n1", "dledgerRole": "follower", "dledgerEndIndex": "80"}
    new = {**follows, "dledgerSelfId": "n2", "dledgerEndIndex": "-1", "dledgerLeader": ""}
    members = {name: f"host:{number}" for number, name in enumerate(("n0", "n1", "n2", "n3", "n4"))}
    infos = {"a": leads, "b": follows, "c": new}
    found = status.statuses(members, infos, {"n0": "n0", "n3": "n0"})
    assert [one.lag for one in found] == [0, 10, 91, None, None]
    assert [one.reachable for one in found] == [True, True, True, True, False]
    assert [one.role for one in found] == ["leader", "follower", "follower", "follower", None]
    assert [one.leader for one in found] == ["n0", "n0", None, "n0", None]
