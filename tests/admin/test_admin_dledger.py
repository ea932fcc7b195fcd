"""mqadmin dledger members, against a group of one member and against brokers without a group."""

from __future__ import annotations

import time
from typing import Any

import pytest
from free_ports import free_port
from verb_calls import SETTINGS, items, lines

from triomq.admin.__main__ import main
from triomq.admin.diagnosis import CRITICAL, WARNING
from triomq.admin.diagnosis.dledger import examine_members
from triomq.dledger import status
from triomq.testing import LocalCluster

Capture = pytest.CaptureFixture[str]
SECONDS = 30.0


def _registered(capsys: Capture) -> dict[str, Any]:
    """Return the member once its broker is registered, which it is when it has its role."""
    deadline = time.monotonic() + SECONDS
    while not (found := items(["dledger", "members"], capsys)):
        assert time.monotonic() < deadline, f"not registered within {SECONDS:g} s"
    [member] = found
    return dict(member)


def test_the_members_of_a_group_are_shown_also_those_that_are_away(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    group = {"enableDLegerCommitLog": "true", "dLegerGroup": "G", "dLegerSelfId": "n0", "dLegerPeers": f"n0-{address}"}
    with LocalCluster(settings={**SETTINGS, **group}) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        found = _registered(capsys)
        assert (found["group"], found["member"], found["address"]) == ("G", "n0", address)
        assert (found["reachable"], found["role"], found["leader"], found["lag"]) == (True, "leader", "n0", 0)
        titles = lines(["dledger", "members", "G"], capsys)[0].split()
        assert titles[:5] == ["GROUP", "MEMBER", "ADDRESS", "BROKER", "REACHABLE"]
        assert main(["dledger", "members", "nosuch"]) == 3


@pytest.mark.usefixtures("at_cluster")
def test_without_groups_nothing_is_shown(capsys: Capture) -> None:
    assert items(["dledger", "members"], capsys) == []


def test_who_leads_a_group_of_one_keeps_the_leadership(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    group = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "G",
        "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{free_port()}",
        "configUpdateWithoutAcl": "true",
    }
    with LocalCluster(settings={**SETTINGS, **group}) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        _registered(capsys)
        assert lines(["dledger", "transfer", "G", "n0"], capsys) == ["transfer n0 leads G now"]
        assert main(["dledger", "transfer", "G", "n7"]) == 3
        assert "'n7' is no member: there are n0" in capsys.readouterr().err
        assert lines(["config", "get", "dLegerLeader"], capsys)[1].split()[1:] == ["0", "dLegerLeader", "n0"]
        assert main(["dledger", "replace", "G", "n0", "-127.0.0.1:1"]) == 2
        assert "'-127.0.0.1:1' is no member: give ID-HOST:PORT" in capsys.readouterr().err
        assert main(["dledger", "replace", "G", "n9", "-"]) == 2
        assert "n9 is no member" in capsys.readouterr().err


@pytest.mark.parametrize(("there", "severity"), [(3, WARNING), (2, CRITICAL), (1, CRITICAL)])
def test_half_of_the_members_of_a_group_are_no_majority(there: int, severity: str) -> None:
    peers = ";".join(f"n{number}-10.0.0.{number}:1" for number in range(4))
    tables = {
        number: {status.GROUP: "G", status.SELF: f"n{number}", status.PEERS: peers, status.ROLE: "follower"}
        for number in range(there)
    }
    addresses = {number: f"10.0.0.{number}:10911" for number in range(there)}
    found = {each.code: each.severity for each in examine_members("b", addresses, tables)}
    assert found["dledger-member-away"] == severity
