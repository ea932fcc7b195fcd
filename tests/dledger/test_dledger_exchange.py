"""What comes next while members of a group are exchanged."""

from __future__ import annotations

import pytest

from triomq.dledger import status
from triomq.dledger.exchange import Step, new_peers, next_step, peers_text

OLD = {"n0": "h0:1", "n1": "h1:1", "n2": "h2:1"}
NEW = {"n0": "h0:1", "n2": "h2:1", "n3": "h3:1"}


def info(peers: dict[str, str], role: str = "follower", end: int = 9000) -> dict[str, str]:
    return {status.PEERS: peers_text(peers), status.ROLE: role, status.END: str(end)}


def test_a_member_is_replaced_without_a_moment_in_which_a_majority_is_missing() -> None:
    """n1 leaves, n3 comes, and n2 leads: no member of the old list leads once the first has the new one."""
    infos = {"n0": info(OLD), "n1": info(OLD), "n2": info(OLD, "leader")}

    def step() -> Step:
        return next_step(infos, NEW, "n1", "n3")

    assert step() == Step("restart", "n0", "with the new list")
    del infos["n0"]
    assert step() == Step("wait", "n0", "until it is there")
    infos["n0"] = info(NEW, end=8000)
    assert step() == Step("wait", "n0", "until it has nearly everything")
    infos["n0"] = info(NEW)
    assert step() == Step("transfer", "n0"), "not to n1, which n0 does not know"
    infos |= {"n0": info(NEW, "leader"), "n2": info(OLD)}
    assert step() == Step("start", "n3", "with the new list and an empty store")
    infos["n3"] = info(NEW, end=2000)
    assert step() == Step("wait", "n3", "until it has nearly everything"), "n2 must not be away before"
    infos["n3"] = info(NEW)
    assert step() == Step("restart", "n2", "with the new list")
    infos["n2"] = info(NEW)
    assert step() == Step("stop", "n1", "it is no member any more")
    del infos["n1"]
    assert step() == Step("done")


def test_while_nobody_leads_nothing_is_done() -> None:
    assert next_step({"n0": info(OLD), "n2": info(OLD)}, NEW, "n1", "n3").act == "wait"


def test_a_member_is_added_to_a_group_of_one_whose_leader_restarts() -> None:
    infos = {"n0": info({"n0": "h0:1"}, "leader")}
    wanted = new_peers({"n0": "h0:1"}, None, ("n1", "h1:1"))
    assert next_step(infos, wanted, None, "n1") == Step("restart", "n0", "with the new list")


def test_a_member_is_removed() -> None:
    wanted = new_peers(OLD, "n2", None)
    infos = {"n0": info(wanted), "n1": info(OLD), "n2": info(OLD, "leader")}
    assert next_step(infos, wanted, "n2", None) == Step("transfer", "n0")
    infos |= {"n0": info(wanted, "leader"), "n2": info(OLD)}
    assert next_step(infos, wanted, "n2", None) == Step("restart", "n1", "with the new list")
    infos["n1"] = info(wanted)
    assert next_step(infos, wanted, "n2", None).act == "stop"


@pytest.mark.parametrize(
    ("leaving", "coming", "reason"),
    [
        ("n9", None, "n9 is no member"),
        ("n1", ("n2", "h:1"), "n2 is a member already"),
        (None, None, "nobody comes and nobody leaves"),
    ],
)
def test_an_exchange_that_is_none_is_refused(leaving: str | None, coming: tuple[str, str] | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        new_peers(OLD, leaving, coming)
