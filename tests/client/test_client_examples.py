"""Every example runs unchanged against an embedded cluster and prints what it should."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from client_cluster import Cluster

from triomq.broker.embedded import LocalCluster

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXPECTED = {
    "producer.py": ["100 messages in 1 request(s)", "and one for later"],
    "consumer.py": ["'order 1'", "'order 1: paid'"],
    "listener.py": ["try 2", "104:"],
    "transaction.py": ["order-2: ROLLBACK_MESSAGE", "to be shipped: order-1", "to be shipped: order-3"],
    "request_reply.py": ["12 squared is 144"],
    "simple_consumer.py": ["short work, attempt 1", "long work, attempt 1", "work that fails, attempt 2"],
    "lite_pull.py": ["messages in 4 queues"],
    "asyncio_client.py": ["the sum is 45"],
    "blocking_client.py": ["topic with 2 queues", "the sum is 45", "left to consume: 0"],
    "embedded_cluster.py": ["Hello world"],
    "typed_messages.py": ["order 17 of Zoe costs 42", "seventeen", "Json: Expected `int`, got `str`"],
    "application.py": ["example-shop books 4", "example-shop books 9", "example-shop books 16", "closed"],
    "virtual_time.py": ["tried 17 times", "a minute before two hours: []", "after two hours: ['order 2']"],
}


def run(name: str, *arguments: str) -> str:
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=EXAMPLES.parent,
        env={**os.environ, "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_example_is_listed() -> None:
    mine = {path.name for path in EXAMPLES.glob("*.py") if "from triomq" in path.read_text()}
    assert mine == set(EXPECTED)


@pytest.mark.parametrize(
    "name", [name for name in EXPECTED if name not in ("consumer.py", "listener.py", "lite_pull.py")]
)
def test_an_example(name: str, triomq: Cluster) -> None:
    output = run(name, *([] if name in ("embedded_cluster.py", "virtual_time.py") else [triomq.name_server]))
    for text in EXPECTED[name]:
        assert text in output


def test_those_that_read_what_the_producer_sent() -> None:
    with LocalCluster() as cluster:
        run("producer.py", cluster.name_server)
        for name in ("consumer.py", "listener.py", "lite_pull.py"):
            output = run(name, cluster.name_server)
            for text in EXPECTED[name]:
                assert text in output
