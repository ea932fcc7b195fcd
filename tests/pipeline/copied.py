"""What tests of copies look at: jobs in this process or another, and the messages of a topic."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from triomq.blocking import Admin, Message, MessageExt, MessageQueue, Producer, PullConsumer
from triomq.spark.jobs import main as jobs
from triomq.testing import LocalCluster


def arguments(east: LocalCluster, west: LocalCluster, state: Path, *more: str) -> list[str]:
    sides = ["--from", east.name_server, "--to", west.name_server]
    return ["copy", *sides, "--state", str(state), "--settle-seconds", "0.2", "--quiet", *more]


def copy(east: LocalCluster, west: LocalCluster, state: Path, *more: str) -> int:
    """Run `mqpipeline copy --once` and return its exit code."""
    return jobs.main(arguments(east, west, state, "--once", *more))


def started(words: list[str]) -> subprocess.Popen[str]:
    """Start `mqpipeline` as a process."""
    command = [sys.executable, "-m", "triomq.spark.jobs.main", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def messages(cluster: LocalCluster, topic: str) -> dict[int, list[MessageExt]]:
    """Return queue id -> the messages of a topic at the only broker, in order."""
    found: dict[int, list[MessageExt]] = {}
    with PullConsumer("reader", name_server=cluster.name_server) as consumer:
        for queue in consumer.queues(topic):
            begin, end = consumer.min_offset(queue), consumer.max_offset(queue)
            found[queue.queue_id] = []
            while begin < end:
                result = consumer.pull(queue, "*", begin)
                found[queue.queue_id] += result.messages
                begin = result.next_begin_offset
    return found


def bodies(cluster: LocalCluster, topic: str) -> dict[int, list[bytes]]:
    return {number: [message.body for message in found] for number, found in messages(cluster, topic).items()}


def send(cluster: LocalCluster, topic: str, texts: list[str], queues: int = 4) -> None:
    """Send each text to the queue with its place modulo `queues`."""
    broker = next(iter(cluster.brokers))
    with Producer("writers", name_server=cluster.name_server) as producer:
        for place, text in enumerate(texts):
            message = Message(topic, text.encode(), tags="t", keys=f"k{place}", properties={"number": str(place)})
            producer.send(message, queue=MessageQueue(topic, broker, place % queues))


def create(cluster: LocalCluster, topic: str, queues: int = 4) -> None:
    with Admin(name_server=cluster.name_server) as admin:
        admin.create_topic(topic, read_queues=queues, write_queues=queues)


__all__ = ["Admin", "Message", "MessageQueue", "arguments", "bodies", "copy", "create", "messages", "send", "started"]
