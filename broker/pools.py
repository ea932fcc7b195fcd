"""The pools of the broker: bounds on unfinished requests, by kind (RocketMQ: the executors of BrokerController).

Most requests are handled inline and never wait. What waits counts here: held pulls, sends until they are flushed, calls
to clients. A request beyond the bound gets SYSTEM_BUSY.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from triomq.broker.config import BrokerSettings
from triomq.remoting.processor_table import Pool

ADMIN_CAPACITY = 100_000
"""RocketMQ's admin executor has no bound."""


class Pools:
    """One pool for each of RocketMQ's executors, with the capacity of its queue. `clock` as in Pool."""

    def __init__(self, settings: BrokerSettings, clock: Callable[[], float] = trio.current_time) -> None:
        self.send = Pool("send", settings.send_thread_pool_queue_capacity, clock)
        self.put = Pool("put", settings.put_thread_pool_queue_capacity, clock)
        self.pull = Pool("pull", settings.pull_thread_pool_queue_capacity, clock)
        self.reply = Pool("reply", settings.reply_thread_pool_queue_capacity, clock)
        self.query = Pool("query", settings.query_thread_pool_queue_capacity, clock)
        self.heartbeat = Pool("heartbeat", settings.heartbeat_thread_pool_queue_capacity, clock)
        self.client = Pool("client", settings.client_manager_thread_pool_queue_capacity, clock)
        self.consumer = Pool("consumer", settings.consumer_manager_thread_pool_queue_capacity, clock)
        self.transaction = Pool("transaction", settings.end_transaction_pool_queue_capacity, clock)
        self.admin = Pool("admin", ADMIN_CAPACITY, clock)

    def all(self) -> list[Pool]:
        return [pool for pool in vars(self).values() if isinstance(pool, Pool)]
