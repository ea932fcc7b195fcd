"""A store plug-in: it refuses messages whose body contains a forbidden word, so they never reach the disk.

python examples/extending/message_store.py
"""

from typing import Any

import trio

from triomq import BrokerRefused, Message, Producer
from triomq.broker.configuration import Configuration
from triomq.broker.embedded import LocalCluster
from triomq.broker.extensions import Extensions, StorePlugin
from triomq.store.results import MessageToStore, PutResult, PutStatus


class WordFilter(StorePlugin):
    """Entry point: [project.entry-points."triomq.message_stores"] word-filter = "my_package:WordFilter"
    and in the broker's configuration messageStorePlugIn=word-filter"""

    def __init__(self, next_store: Any, configuration: Configuration) -> None:
        super().__init__(next_store)

    def append(self, message: MessageToStore) -> PutResult:
        if b"password" in message.body:
            return PutResult(PutStatus.MESSAGE_ILLEGAL, reason="a password in a message")
        result: PutResult = self.next.append(message)
        return result


async def main() -> None:
    async with (
        LocalCluster(extensions=Extensions(message_stores=[WordFilter])) as cluster,
        Producer("p", name_server=cluster.name_server) as producer,
    ):
        result = await producer.send(Message("Notes", b"harmless"))
        print(f"stored at {result.queue_offset}")
        try:
            await producer.send(Message("Notes", b"my password is secret"))
        except BrokerRefused:
            print("refused")


if __name__ == "__main__":
    trio.run(main)
