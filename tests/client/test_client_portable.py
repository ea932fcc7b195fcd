"""The client without epoll and other modules of Unix (Windows), or without epoll alone (macOS)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from client_cluster import Cluster, fresh

from triomq.client.facades import blocking

PROJECT = Path(__file__).resolve().parents[2]

PROGRAM = """
import importlib, pkgutil, select, sys, types

import trio  # which has its own way on every system

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
sys.modules["select"] = types.ModuleType("select")
for name in dir(select):
    if not name.lower().startswith("epoll"):
        setattr(sys.modules["select"], name, getattr(select, name))

import triomq.client

for module in pkgutil.iter_modules(triomq.client.__path__):
    importlib.import_module(f"triomq.client.{module.name}")

from triomq.client.api import Message, Producer, PushConsumer
from triomq.remoting import poller

assert not poller.HAS_EPOLL
assert "broker" not in sys.modules and "store" not in sys.modules


async def main(name_server, topic, group):
    async with (
        Producer("p", name_server=name_server) as producer,
        PushConsumer(group, name_server=name_server) as consumer,
    ):
        consumer.subscribe(topic)
        await producer.send(Message(topic, b"x" * 100_000))
        async for message in consumer:
            print(len(message.body))
            break


trio.run(main, *sys.argv[1:])
"""


def test_sending_and_consuming_without_modules_of_unix(triomq: Cluster, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    topic = fresh()
    with blocking.Admin(name_server=triomq.name_server) as admin:
        admin.create_topic(topic)
    result = subprocess.run(
        [sys.executable, str(program), triomq.name_server, topic, fresh("G")],
        env={**os.environ, "PYTHONPATH": str(PROJECT / "src")},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert (result.stdout, result.stderr, result.returncode) == ("100000\n", "", 0)
