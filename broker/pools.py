"""The pools of the broker: bounds on unfinished requests, by kind (RocketMQ: the executors of BrokerController).

Most requests are handled inline and never wait. What waits counts here: held pulls, sends until they are flushed, calls
to clients. A request beyond the bound gets SYSTEM_BUSY.
"""

from __future__ import annotations

from triomq.broker.config import BrokerSettings
from triomq.remoting.processor_table import Pool

ADMIN_CAPACITY = 100_000
"""RocketMQ's admin executor has no bound."""


class Pools:
    """One pool for each of RocketMQ's executors, with the capacity of its queue."""

    def __init__(self, settings: BrokerSettings) -> None:
        self.send = Pool("send", settings.send_thread_pool_queue_capacity)
        self.put = Pool("put", settings.put_thread_pool_queue_capacity)
        self.pull = Pool("pull", settings.pull_thread_pool_queue_capacity)
        self.reply = Pool("reply", settings.reply_thread_pool_queue_capacity)
        self.query = Pool("query", settings.query_thread_pool_queue_capacity)
        self.heartbeat = Pool("heartbeat", settings.heartbeat_thread_pool_queue_capacity)
        self.client = Pool("client", settings.client_manager_thread_pool_queue_capacity)
        self.consumer = Pool("consumer", settings.consumer_manager_thread_pool_queue_capacity)
        self.transaction = Pool("transaction", settings.end_transaction_pool_queue_capacity)
        self.admin = Pool("admin", ADMIN_CAPACITY)

    def all(self) -> list[Pool]:
        return [pool for pool in vars(self).values() if isinstance(pool, Pool)]
