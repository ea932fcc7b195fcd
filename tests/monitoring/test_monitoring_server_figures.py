"""The figures that both daemons have: connections by port, memory, turns, and how long requests took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import inf
from typing import Any

from triomq.monitoring.answers import OTHER, Answers
from triomq.monitoring.exposition import Family
from triomq.monitoring.histogram import Histogram
from triomq.monitoring.server_figures import TurnFigures, memory_families, server_families
from triomq.protocol.address import HostPort
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.remoting.memory import MemoryBudget
from triomq.remoting.turn import Turn


@dataclass
class Peer:
    """A connection to one of the server's ports."""

    port: int

    @property
    def local(self) -> HostPort:
        return HostPort("127.0.0.1", self.port)


@dataclass
class Server:
    """The part of a RemotingServer that its figures are of."""

    opened: Counter[int] = field(default_factory=Counter)
    refused_connections: Counter[str] = field(default_factory=Counter)
    connections: list[Peer] = field(default_factory=list)


def samples(families: Iterable[Family]) -> dict[str, dict[str, Any]]:
    """Return name of a family -> labels -> value."""
    return {family.name: dict(pair for pair in family.samples if isinstance(pair, tuple)) for family in families}


def buckets(found: Histogram) -> dict[float, int]:
    """Return upper edge -> values in that bucket, without those that have none."""

    def own() -> Iterator[tuple[float, int]]:
        before = 0
        for edge, count in found.cumulative():
            yield edge, count - before
            before = count

    return {edge: count for edge, count in own() if count}


def test_connections_are_counted_by_the_name_of_their_port() -> None:
    """Ports without a name count together: two of them here."""
    server = Server(Counter({1: 3, 2: 4, 8: 5, 9: 6}), Counter(address=2), [Peer(1), Peer(1), Peer(8), Peer(9)])
    found = samples(server_families(server, {1: "main", 2: "fast", 3: "tls"}))
    assert found["triomq_connections"] == {
        'port="fast"': 0,
        'port="main"': 2,
        'port="other"': 2,
        'port="tls"': 0,
    }
    assert found["triomq_connections_opened_total"] == {
        'port="fast"': 4,
        'port="main"': 3,
        'port="other"': 11,
        'port="tls"': 0,
    }
    assert found["triomq_connections_refused_total"] == {
        'limit="address"': 2,
        'limit="all"': 0,
        'limit="descriptors"': 0,
    }


def test_memory_is_shown_by_what_takes_it() -> None:
    memory = MemoryBudget(1000)
    memory.tables.account("routes").set(70)
    found = samples(memory_families(memory))
    assert found["triomq_memory_budget_bytes"] == {"": 1000}
    assert found["triomq_memory_held_bytes"] == {'part="long_frames"': 0, 'part="rest"': 0, 'part="tables"': 70}
    assert found["triomq_memory_tight"] == {"": 0}


def test_requests_of_before_the_figures_and_turns_without_any_are_in_no_turn() -> None:
    turn = Turn(lambda: 0.0)
    turn.received(5, 100)
    figures = TurnFigures(turn)
    for requests in (2, 0, 3):
        turn.received(requests, 10)
        figures._ended(0.2)
    found = samples(figures.families())
    assert buckets(found["triomq_turn_requests"][""]) == {2.0: 1, 4.0: 1}
    assert found["triomq_turn_requests"][""].total == 5
    assert buckets(found["triomq_turn_duration_seconds"][""]) == {0.25: 3}
    assert found["triomq_requests_total"] == {"": 10}
    assert found["triomq_network_bytes_total"]['direction="in"'] == 130


def test_what_a_turn_answers_at_once_took_as_long_as_the_turn() -> None:
    answers = Answers()
    send, success = int(RequestCode.SEND_MESSAGE_V2), int(ResponseCode.SUCCESS)
    for count in (1, 3):
        for _ in range(count):
            answers.at_once(send, success)
        answers.turn_ended(0.004)
    answers.turn_ended(2.0)
    assert set(answers.times) == {(send, success, False)}
    found = answers.times[send, success, False]
    assert (found.count, found.total, buckets(found)) == (4, 16.0, {5.0: 4})


def test_a_pull_that_was_held_and_codes_that_rocketmq_does_not_have_count_for_themselves() -> None:
    answers = Answers()
    pull, send = int(RequestCode.PULL_MESSAGE), int(RequestCode.SEND_MESSAGE_V2)
    answers.late(pull, 0, 20.0)
    answers.late(send, 0, 0.002)
    for code in (77_777, 88_888, 77_777):
        answers.late(code, 3, 0.002)
    assert {kind: found.count for kind, found in answers.times.items()} == {
        (pull, 0, True): 1,
        (send, 0, False): 1,
        (OTHER, 3, False): 3,
    }
    assert buckets(answers.times[pull, 0, True]) == {inf: 1}


def test_a_value_at_an_edge_belongs_to_the_bucket_below_it_however_often_it_is_observed() -> None:
    found = Histogram((1.0, 2.0))
    found.observe(1.0)
    found.observe_many(2.0, 3)
    found.observe_many(2.5, 2)
    assert (buckets(found), found.count, found.total) == ({1.0: 1, 2.0: 3, inf: 2}, 6, 12.0)
