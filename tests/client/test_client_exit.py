"""The interpreter ends while clients are open: soon, quietly, and what `send` has returned is stored."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from client_cluster import LIMIT_SECONDS, Cluster, fresh

from triomq import ConsumeRules
from triomq.blocking import Admin, Message, MessageQueue, Producer

CLOSE_SECONDS = ConsumeRules().close_seconds

BEGIN = """
import asyncio, atexit, json, sys, threading
from triomq import ConsumeFromWhere, TrioMQ, aio, blocking
from triomq.blocking import Message
SERVER, TOPIC = sys.argv[1:]
OPTIONS = {"name_server": SERVER, "request_timeout_seconds": 60}
GROUP = {"consume_from": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, **OPTIONS}
print_at_once = threading.Lock()
def say(word):
    with print_at_once: print(word, flush=True)
def sent(result): say(json.dumps([result.queue.broker_name, result.queue.queue_id, result.queue_offset]))
def message(): return Message(TOPIC, b"m")
def wait(): threading.Event().wait()
def producer(): return blocking.Producer("exit", send_timeout_seconds=60, **OPTIONS).start()
def aio_producer(): return aio.Producer("exit", send_timeout_seconds=60, **OPTIONS)
def consumer(listener=None):
    one = blocking.PushConsumer(TOPIC + "G", **GROUP)
    one.subscribe(TOPIC)
    if listener: one.listen(listener)
    return one.start()
"""

ENDS = {
    "the end of the program": """
p = producer()
for _ in range(3): sent(p.send(message()))
say("end")
""",
    "sys.exit": """
p = producer()
sent(p.send(message()))
say("end")
sys.exit()
""",
    "a message in hand": """
c = consumer()
c.receive(60).ack()
held = c.receive(60)
say("end")
""",
    "a listener that never returns": """
began = threading.Event()
def listen(_):
    began.set()
    wait()
c = consumer(listen)
began.wait()
say("end")
""",
    "daemon threads that send and receive": """
p, c = producer(), consumer()
several = threading.Semaphore(0)
def send():
    while True:
        sent(p.send(message()))
        several.release()
def receive():
    for _ in c: several.release()
for work in (send, send, receive): threading.Thread(target=work, daemon=True).start()
for _ in range(20): several.acquire()
say("end")
""",
    "an event loop that was abandoned": """
loop = asyncio.new_event_loop()
p, c = aio_producer(), aio.PushConsumer(TOPIC + "G", **GROUP)
began = asyncio.Event()
async def handle(_):
    began.set()
    await asyncio.Event().wait()
async def open_and_send():
    c.subscribe(TOPIC)
    c.listen(handle)
    await p.__aenter__()
    await c.__aenter__()
    sent(await p.send(message()))
    await began.wait()
    return asyncio.ensure_future(p.send_many([message()] * 1000))
left = loop.run_until_complete(open_and_send())
left._log_destroy_pending = False  # of asyncio, about any task
say("end")
""",
    "asyncio.run with sends in flight": """
async def main():
    p = await aio_producer().__aenter__()
    sent(await p.send(message()))
    tasks = [asyncio.create_task(p.send(message())) for _ in range(100)]
    await asyncio.sleep(0)
    say("end")
    sys.exit()
asyncio.run(main())
""",
    "an event loop in a daemon thread": """
several = threading.Semaphore(0)
async def main():
    p = await aio_producer().__aenter__()
    while True:
        sent(await p.send(message()))
        several.release()
threading.Thread(target=lambda: asyncio.run(main()), daemon=True).start()
for _ in range(3): several.acquire()
say("end")
""",
    "an application": """
app = TrioMQ("exit", **OPTIONS)
@app.consumer(TOPIC, group=TOPIC + "G")
async def handle(message): ...
async def main():
    await app.__aenter__()
    sent(await app.producer.send(message()))
    say("end")
asyncio.run(main())
""",
    "a send at exit": """
p = producer()
atexit.register(lambda: sent(p.send(message())))
say("end")
""",
}

ENDED_BY_OTHERS = {
    "a producer": "p = producer()\nsay('end')\nwhile True: sent(p.send(message()))",
    "a consumer": "c = consumer()\nsay('end')\nwhile True: c.receive()",
    "asyncio": """
async def main():
    async with aio_producer() as p:
        say("end")
        while True: sent(await p.send(message()))
asyncio.run(main())
""",
}


@pytest.fixture(scope="module")
def topic(triomq: Cluster) -> str:
    """Return a topic with messages."""
    name = fresh()
    with Producer("exit", name_server=triomq.name_server, send_timeout_seconds=LIMIT_SECONDS) as producer:
        for _ in range(4):
            producer.send(Message(name, b"first"))
    return name


def run(script: str, cluster: Cluster, topic: str, sign: signal.Signals | None = None) -> tuple[int, str]:
    """Run a program that says "end" when it ends, or when it is to be sent a signal. Return its exit code and what it
    wrote to stderr, when it has ended in time and all that it reported as sent is stored."""
    command = [sys.executable, "-c", BEGIN + script, cluster.name_server, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        lines = list(_until_end(child.stdout))
        if sign is not None:
            child.send_signal(sign)
        began = time.monotonic()
        out, errors = child.communicate(timeout=LIMIT_SECONDS)
    assert time.monotonic() - began < CLOSE_SECONDS, errors
    with Admin(name_server=cluster.name_server, timeout_seconds=LIMIT_SECONDS) as admin:
        stored = admin.topic_stats(topic).offset_table
    for line in [*lines, *out.splitlines()]:
        if line.startswith("[") and line.endswith("]"):
            broker_name, queue_id, offset = json.loads(line)
            assert stored[MessageQueue(topic, broker_name, queue_id)].max_offset > offset
    return child.returncode, errors


def _until_end(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        if line == "end\n":
            return
        yield line.rstrip()


@pytest.mark.parametrize("script", ENDS.values(), ids=ENDS.keys())
def test_a_program_ends_soon_and_quietly_with_open_clients(script: str, triomq: Cluster, topic: str) -> None:
    assert run(script, triomq, topic) == (0, "")


STUCK_BEHIND_MIDDLEWARE = """
from triomq import ConsumeRules
app = TrioMQ("exit", **OPTIONS)
began = threading.Event()
@app.middleware
async def through(message, call_next):
    return await call_next(message)
@app.consumer(TOPIC, group=TOPIC + "P", rules=ConsumeRules(close_seconds=0.1), consume_from=GROUP["consume_from"])
def handle(message):
    began.set()
    wait()
async def main():
    async with app:
        await asyncio.to_thread(began.wait)
    say("end")
asyncio.run(main())
"""


def test_a_plain_handler_behind_middleware_that_never_returns_is_left_behind(triomq: Cluster, topic: str) -> None:
    code, errors = run(STUCK_BEHIND_MIDDLEWARE, triomq, topic)
    assert (code, "Traceback" in errors) == (0, False), errors


def test_an_error_that_ends_a_program_is_the_only_one_it_shows(triomq: Cluster, topic: str) -> None:
    script = "p = producer()\nsent(p.send(message()))\nsay('end')\nraise ValueError('mine')"
    code, errors = run(script, triomq, topic)
    assert code == 1
    assert errors.startswith("Traceback")
    assert errors.endswith("ValueError: mine\n")
    assert errors.count("Traceback") == 1
    assert "Exception ignored" not in errors


@pytest.mark.parametrize("script", ENDED_BY_OTHERS.values(), ids=ENDED_BY_OTHERS.keys())
def test_an_interrupt_ends_a_program_as_any_other(script: str, triomq: Cluster, topic: str) -> None:
    code, errors = run(script, triomq, topic, signal.SIGINT)
    assert code == -signal.SIGINT
    assert errors.endswith("KeyboardInterrupt\n")
    assert "Exception ignored" not in errors


def test_sigterm_ends_a_program_as_any_other(triomq: Cluster, topic: str) -> None:
    assert run(ENDED_BY_OTHERS["a producer"], triomq, topic, signal.SIGTERM) == (-signal.SIGTERM, "")
