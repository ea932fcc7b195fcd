"""A producer, a push consumer and a simple consumer of `rocketmq-python-client`. For each line of standard input, a
prefix, one message of each kind is sent."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)


def tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Checker(TransactionChecker):  # type: ignore[misc]
    def check(self, message: Any) -> Any:
        tell(f"asked {message.body.decode()}")
        return TransactionResolution.COMMIT


class Listener(MessageListener):  # type: ignore[misc]
    def consume(self, message: Any) -> Any:
        body = message.body.decode().strip()
        tell(f"push {body} {message.delivery_attempt}")
        fails = body.endswith("keyed") and message.delivery_attempt == 1
        return ConsumeResult.FAILURE if fails else ConsumeResult.SUCCESS


def receive(consumer: Any) -> None:
    while True:
        try:
            for message in consumer.receive(16, 15) or []:
                consumer.ack(message)
                tell(f"simple {message.body.decode().strip()} {message.delivery_attempt}")
        except Exception as error:
            tell(f"again {type(error).__name__}")
            time.sleep(0.2)


def main() -> None:
    endpoint, topic, group = sys.argv[1:]
    configuration = ClientConfiguration(endpoint, Credentials())
    producer = Producer(configuration, (topic,), checker=Checker())
    producer.startup()
    push = PushConsumer(configuration, f"{group}_push", Listener(), {topic: FilterExpression("*")})
    push.startup()
    simple = SimpleConsumer(configuration, f"{group}_simple")
    simple.startup()
    simple.subscribe(topic, FilterExpression("*"))
    threading.Thread(target=receive, args=(simple,), daemon=True).start()
    tell("started")
    for line in sys.stdin:
        send_all(producer, topic, line.strip())
        tell(f"sent {line.strip()}")


def send_all(producer: Any, topic: str, prefix: str) -> None:
    def message(kind: str) -> Any:
        one = Message()
        one.topic, one.body = topic, f"{prefix}-{kind}".encode()
        return one

    for left in reversed(range(100)):
        try:  # the client waits for no connection, so what it sends right after a start of the broker fails
            producer.send(message("normal"))
            break
        except Exception:
            if not left:
                raise
            time.sleep(0.2)
    keyed = message("keyed")
    keyed.tag, keyed.keys = "blue", "k1"
    keyed.add_property("color", "red")
    producer.send(keyed)
    in_order = message("fifo")
    in_order.message_group = "g"
    producer.send(in_order)
    delayed = message("delayed")
    delayed.delivery_timestamp = int(time.time()) + 1
    producer.send(delayed)
    for end in ("commit", "rollback", "orphan"):
        transaction = producer.begin_transaction()
        producer.send(message(end), transaction)
        if end == "commit":
            transaction.commit()
        elif end == "rollback":
            transaction.rollback()


if __name__ == "__main__":
    main()
