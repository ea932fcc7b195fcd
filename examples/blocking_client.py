"""The same client in a plain program, and what administrators see.

python examples/blocking_client.py [NAME_SERVER]
"""

import sys

from triomq.blocking import Admin, Message, Producer, PushConsumer


def main(name_server: str) -> None:
    with Admin(name_server=name_server) as admin:
        admin.create_topic("BlockingExample", read_queues=2, write_queues=2)
        print(f"topic with {len(admin.topic_stats('BlockingExample').offset_table)} queues")
    with Producer("example-producers", name_server=name_server) as producer:
        for number in range(10):
            producer.send(Message("BlockingExample", b"%d" % number))
    with PushConsumer("example-blocking", name_server=name_server) as consumer:
        consumer.subscribe("BlockingExample")
        total = 0
        for count, message in enumerate(consumer, start=1):
            total += int(message.body)
            if count == 10:
                consumer.ack()
                break
    print(f"the sum is {total}")
    with Admin(name_server=name_server) as admin:
        print(f"left to consume: {admin.consume_stats('example-blocking', 'BlockingExample').total_diff()}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876")
