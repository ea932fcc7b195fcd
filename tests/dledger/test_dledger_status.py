"""What operators see of a group, and the two requests that hand a leadership over."""

from __future__ import annotations

from typing import Any, cast

import pytest

from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.dledger.status import Status, groups_of, peers_of, statuses
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import REQUESTS, MetadataRequest, MetadataResponse, TransferRequest, TransferResponse
from triomq.protocol.command import RemotingCommand, new_response

MEMBERS = {"n0": "h0:1", "n1": "h1:1", "n2": "h2:1"}


def info(member: str, role: str, end: str = "9", leader: str = "n0") -> dict[str, str]:
    return {
        "dledgerGroup": "G",
        "dledgerSelfId": member,
        "dledgerRole": role,
        "dledgerLeader": leader,
        "dledgerTerm": "3",
        "dledgerBeginIndex": "0",
        "dledgerEndIndex": end,
        "dledgerCommittedIndex": "7",
    }


def test_members_without_a_broker_have_the_role_that_follows_from_the_leader_they_name() -> None:
    assert statuses(MEMBERS, {}, {"n0": "n0", "n1": "n0"}) == [
        Status("n0", "h0:1", reachable=True, role="leader", leader="n0"),
        Status("n1", "h1:1", reachable=True, role="follower", leader="n0"),
        Status("n2", "h2:1"),
    ]
    assert statuses({"n0": "h0:1"}, {}, {"n0": None}) == [Status("n0", "h0:1", reachable=True)]


def test_members_with_a_broker_have_what_the_broker_says_and_the_entries_they_lack() -> None:
    infos = {"b0:2": info("n0", "leader", "9"), "b1:2": info("n1", "follower", "5"), "b2:2": info("n2", "follower")}
    infos["b2:2"]["dledgerEndIndex"] = "11"  # it has grown since the leader was asked
    ours = {"reachable": True, "leader": "n0", "term": 3, "first": 0, "committed": 7}
    assert statuses(MEMBERS, infos, {"n0": "n0", "n1": "n0", "n2": "n0"}) == [
        Status("n0", "h0:1", "b0:2", role="leader", last=9, lag=0, **cast(Any, ours)),
        Status("n1", "h1:1", "b1:2", role="follower", last=5, lag=4, **cast(Any, ours)),
        Status("n2", "h2:1", "b2:2", role="follower", last=11, lag=0, **cast(Any, ours)),
    ]


@pytest.mark.parametrize(
    ("infos", "lags"),
    [
        ({"b1:2": info("n1", "follower", "5")}, [None, None, None]),
        ({"b0:2": info("n0", "leader", ""), "b1:2": info("n1", "follower", "5")}, [None, None, None]),
        ({"b0:2": info("n0", "leader", "9"), "b1:2": info("n1", "follower", "")}, [0, None, None]),
    ],
)
def test_without_the_end_of_the_leader_or_its_own_a_member_has_no_lag(
    infos: dict[str, dict[str, str]], lags: list[int | None]
) -> None:
    assert [status.lag for status in statuses(MEMBERS, infos, {})] == lags


def test_a_broker_that_knows_no_leader_names_none() -> None:
    (status,) = statuses({"n1": "h1:1"}, {"b1:2": info("n1", "candidate", leader="")}, {})
    assert (status.role, status.leader) == ("candidate", None)


def test_brokers_are_put_together_by_group_and_name_its_members() -> None:
    infos = {"b0:2": info("n0", "leader"), "b1:2": info("n1", "follower"), "plain:2": {"brokerVersion": "397"}}
    assert groups_of(infos) == {"G": {"b0:2": infos["b0:2"], "b1:2": infos["b1:2"]}}
    assert peers_of([{"dledgerPeers": "n1-h1:1;n0-h0:1;"}, {"dledgerPeers": "n0-other:1"}, {}]) == {
        "n0": "h0:1",
        "n1": "h1:1",
    }


class Leader:
    """A client at whose other end n0 leads. It answers transfers by a script of codes and terms, and notes the terms
    that they carry."""

    def __init__(self, *script: tuple[int, int]) -> None:
        self.script = list(script)
        self.terms: list[int] = []

    async def invoke(self, address: str, command: RemotingCommand, seconds: float) -> RemotingCommand:
        assert address == MEMBERS["n0"]
        request = REQUESTS[command.code].decode(command.body)
        if isinstance(request, MetadataRequest):
            return new_response(command, codes.SUCCESS, body=MetadataResponse(leader_id="n0").encode())
        assert isinstance(request, TransferRequest)
        self.terms.append(request.term)
        code, term = self.script.pop(0)
        return new_response(command, codes.SUCCESS, body=TransferResponse(code=code, term=term).encode())


@pytest.mark.parametrize(
    ("script", "terms"),
    [
        ([(codes.SUCCESS, 7)], [-1]),
        ([(codes.INCONSISTENT_TERM, 7), (codes.SUCCESS, 7)], [-1, 7]),
    ],
)
async def test_a_transfer_is_asked_for_again_with_the_term_that_the_leader_says(
    script: list[tuple[int, int]], terms: list[int]
) -> None:
    leader = Leader(*script)
    await GroupClient(cast(Any, leader), "G", MEMBERS).transfer("n1")
    assert leader.terms == terms


@pytest.mark.parametrize(
    ("script", "terms", "said"),
    [
        ([(codes.INCONSISTENT_TERM, -1)], [-1], "the leader has changed meanwhile"),
        ([(codes.TAKE_LEADERSHIP_FAILED, 7)], [-1], "it could not take over in time"),
        ([(codes.INCONSISTENT_TERM, 7), (codes.INCONSISTENT_TERM, 8)], [-1, 7], "the leader has changed meanwhile"),
    ],
)
async def test_a_transfer_that_is_refused_for_another_reason_is_not_asked_for_again(
    script: list[tuple[int, int]], terms: list[int], said: str
) -> None:
    leader = Leader(*script)
    with pytest.raises(GroupFailed, match=f"n1 does not lead: {said}") as failed:
        await GroupClient(cast(Any, leader), "G", MEMBERS).transfer("n1")
    assert leader.terms == terms
    assert failed.value.code == script[-1][0]
