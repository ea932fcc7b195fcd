"""Send and consume hooks: one refuses messages without a key, the other records who received which key.

python examples/extending/send_hook.py
"""

import trio

from triomq import BrokerRefused, Message, Producer, PushConsumer
from triomq.broker.configuration import Configuration
from triomq.broker.embedded import LocalCluster
from triomq.broker.extensions import Extensions
from triomq.broker.hooks import ConsumeContext, SendContext
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused


class KeysWanted:
    """Entry point: [project.entry-points."triomq.send_hooks"] keys-wanted = "my_package:KeysWanted" """

    def __init__(self, configuration: Configuration | None = None) -> None:
        pass

    def before_send(self, context: SendContext) -> None:
        if not context.is_batch and "KEYS" not in context.properties:
            raise RequestRefused(ResponseCode.MESSAGE_ILLEGAL, f"messages of {context.topic} need a key")

    def after_send(self, context: SendContext) -> None:
        print(f"stored: {context.properties['KEYS']} in queue {context.queue_id} at {context.queue_offset}")


class Ledger:
    """Entry point: [project.entry-points."triomq.consume_hooks"] ledger = "my_package:Ledger" """

    def __init__(self, configuration: Configuration | None = None) -> None:
        pass

    def before_consume(self, context: ConsumeContext) -> None:
        for message in context.messages():
            print(f"handed out: {message.keys} to {context.consumer_group}")

    def after_consume(self, context: ConsumeContext) -> None:
        print(f"came back: {context.message_id} from {context.consumer_group}")


async def main() -> None:
    extensions = Extensions(send_hooks=[KeysWanted()], consume_hooks=[Ledger()])
    async with LocalCluster(extensions=extensions) as cluster:
        async with Producer("p", name_server=cluster.name_server) as producer:
            try:
                await producer.send(Message("Orders", b"nobody will find this"))
            except BrokerRefused as error:
                print(f"refused: {error}")
            await producer.send(Message("Orders", b"...", keys="order-17"))
        async with PushConsumer("billing", name_server=cluster.name_server) as consumer:
            consumer.subscribe("Orders")
            print(f"consumed: {(await anext(consumer)).keys}")


if __name__ == "__main__":
    trio.run(main)
