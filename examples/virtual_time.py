"""Hours pass in milliseconds: a message fails until it is a dead letter, a delayed one arrives after two hours.

    python examples/virtual_time.py

The clock is the cluster's; the client is any client (here the blocking one), lives in real time and notices nothing.
"""

from triomq import ConsumeStatus, Message, blocking
from triomq.broker.embedded import LocalCluster, VirtualClock


def main() -> None:
    clock = VirtualClock(patience_seconds=10)  # of real time at most, for a client on a slow machine
    tries: list[str] = []
    arrived: list[str] = []

    def refuse(message):  # type: ignore[no-untyped-def]
        tries.append(f"{clock.now:%H:%M:%S}")
        return ConsumeStatus.RECONSUME_LATER

    with (
        LocalCluster(clock=clock) as cluster,
        blocking.Producer("shop", name_server=cluster.name_server) as producer,
        blocking.PushConsumer("refusing", name_server=cluster.name_server) as refusing,
        blocking.PushConsumer("waiting", name_server=cluster.name_server) as waiting,
    ):
        producer.send(Message("Orders", b"order 1"))
        refusing.subscribe("Orders")
        refusing.listen(refuse)
        refusing.wait_assigned("%RETRY%refusing")  # wait until the clients are ready
        clock.advance_until(lambda: len(tries) == 17, at_most_seconds=5 * 3600)
        print("tried", len(tries), "times, the last time at", tries[-1])

        later = Message("Later", b"order 2")
        later.delay_level = 18
        producer.send(later)
        waiting.subscribe("Later")
        waiting.listen(lambda message: arrived.append(message.body.decode()))
        waiting.wait_assigned("Later")
        clock.advance(2 * 3600 - 60)
        print("a minute before two hours:", arrived)
        clock.advance_until(lambda: arrived, at_most_seconds=120)
        print("after two hours:", arrived)


if __name__ == "__main__":
    main()
