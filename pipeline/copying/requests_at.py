"""Many requests to many brokers at a time, of which each may fail by itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

from triomq.client.core.errors import BrokerRefused
from triomq.protocol.command import RemotingCommand
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import CONNECTION_ERRORS, Cluster
from triomq.spark.errors import BrokerError, Unreachable

K = TypeVar("K", bound=Hashable)


def ask_all(
    cluster: Cluster, asked: Mapping[K, tuple[MessageQueue, Callable[[], RemotingCommand]]]
) -> dict[K, RemotingCommand | BrokerError]:
    """Return the response to each request, or why there is none. The requests to one broker leave in one write, in the
    order of `asked`, and are at most MAX_IN_FLIGHT of a connection."""
    by_address: dict[str, list[K]] = {}
    results: dict[K, RemotingCommand | BrokerError] = {}
    silent: BrokerError | None = None
    for key, (queue, _) in asked.items():
        if silent is not None:  # the name servers were asked with patience once
            results[key] = silent
            continue
        try:
            by_address.setdefault(cluster.address(queue.topic, queue.broker_name), []).append(key)
        except Unreachable as error:
            results[key] = error
        except BrokerError as error:
            results[key] = silent = error
    sent: list[tuple[str, list[tuple[K, int]]]] = []
    for address, keys in by_address.items():
        try:
            numbers = cluster.connection(address).send(*[asked[key][1]() for key in keys])
            sent.append((address, list(zip(keys, numbers, strict=True))))
        except CONNECTION_ERRORS as error:
            cluster.drop(address)
            results |= dict.fromkeys(keys, _unanswered(address, error))
    for address, waiting in sent:
        for place, (key, number) in enumerate(waiting):
            try:
                results[key] = cluster.connection(address).receive(number)
            except CONNECTION_ERRORS as error:
                cluster.drop(address)
                results |= {other: _unanswered(address, error) for other, _ in waiting[place:]}
                break
    return results


def refusal(response: RemotingCommand, action: str) -> BrokerError:
    """Return the error for a response code that is no result."""
    return BrokerError(str(BrokerRefused(response.code, response.remark, address="", action=action)), response.code)


def _unanswered(address: str, error: Exception) -> Unreachable:
    return Unreachable(f"{address} does not respond: {type(error).__name__}: {error}")
