"""The output of a cluster where a broker refuses a question or does not respond: the others are in it, and the exit
code says so."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from fake_cluster import fake_cluster
from test_admin_two_brokers import readers
from verb_calls import items

from triomq.admin.__main__ import main


@pytest.mark.parametrize("more", [[], ["-m"]])
def test_a_list_of_a_cluster_with_a_broker_that_refuses_is_whole_and_fails(
    more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_cluster() as cluster:
        words = ["clusterList", "-n", cluster.address, *more]
        assert main(words) == 0
        whole = capsys.readouterr()
        cluster.refusals[28] = (1, "the broker is ill")
        assert main(words) == 6
        partial = capsys.readouterr()
    assert (whole.err, "the broker is ill" in partial.err) == ("", True)
    assert len(partial.out.splitlines()) == len(whole.out.splitlines())


@pytest.fixture
def hung() -> Iterator[str]:
    """Yield the address of a peer that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("group", [[], ["G"]])
def test_the_lag_at_the_brokers_that_respond_is_shown_and_the_other_broker_is_named(
    group: list[str], hung: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with readers(monkeypatch, online=True) as (first, _):
        first.addresses["d"] = hung
        words = ["lag", *group, "--timeout", "0.2"]
        assert sum(item["backlog"] for item in items(words, capsys, status=6)) == 6
        assert main(words) == 6
        assert f"broker 'd': {hung} did not respond within 0.2 s" in capsys.readouterr().err
        first.addresses.clear()
        first.addresses["d"] = hung
        assert main(words) == 4


@pytest.mark.parametrize("code", [201, 203, 208])
def test_a_broker_that_hangs_after_its_first_response_is_named_and_the_others_are_shown(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with readers(monkeypatch, online=True) as (_, second):
        second.silent.add(code)
        words = ["lag", "--timeout", "0.2"]
        [lag] = items(words, capsys, status=6)
        assert lag["backlog"] == (6 if code == 203 else 2)
        assert main(words) == 6
        assert f"broker 'c': {second.address} did not respond within" in capsys.readouterr().err
