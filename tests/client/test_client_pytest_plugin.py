"""The pytest plugin in a separate pytest, as in a user's project."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from free_ports import free_port

PROJECT = Path(__file__).resolve().parents[2]

TESTS = """
from triomq.client.facades import blocking
from triomq.protocol.message import Message


def send_and_receive(cluster, name):
    topic = name("topic")
    with blocking.Producer(name("p"), name_server=cluster.name_server) as producer:
        producer.send(Message(topic, b"hello"))
    with blocking.PushConsumer(name("g"), name_server=cluster.name_server) as consumer:
        consumer.subscribe(topic)
        assert next(consumer).body == b"hello"


def test_thread(rocketmq, rocketmq_name, pytestconfig):
    port = pytestconfig.getoption("--rocketmq-port")
    assert rocketmq.name_server == f"127.0.0.1:{port}"
    send_and_receive(rocketmq, rocketmq_name)
    with blocking.Admin(name_server=rocketmq.name_server) as admin:
        assert admin.broker_config(rocketmq.brokers["broker-a"])["brokerRole"] == "SYNC_MASTER"


def test_process(rocketmq_proc, rocketmq, rocketmq_name):
    assert rocketmq_proc.name_server != rocketmq.name_server
    send_and_receive(rocketmq_proc, rocketmq_name)


def test_factories(rocketmq_factory, rocketmq_proc_factory, rocketmq_name, tmp_path):
    two = rocketmq_factory(brokers=2)
    assert sorted(two.brokers) == ["broker-a", "broker-b"]
    send_and_receive(two, rocketmq_name)
    kept = rocketmq_proc_factory(store=tmp_path)
    topic = rocketmq_name("kept")
    with blocking.Producer("p", name_server=kept.name_server) as producer:
        producer.send(Message(topic, b"survives"))
    kept.close()
    again = rocketmq_factory(store=tmp_path)
    with blocking.PushConsumer("g", name_server=again.name_server) as consumer:
        consumer.subscribe(topic)
        assert next(consumer).body == b"survives"
"""


def run_pytest(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run pytest with the plugin by its module, whether or not the project's entry points are installed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "triomq.client.pytest_plugin"]
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        [*command, *arguments], cwd=directory, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


def test_fixtures_and_options(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(TESTS)
    result = run_pytest(tmp_path, "--rocketmq-port", str(free_port()), "--rocketmq-settings", "brokerRole=SYNC_MASTER")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "3 passed" in result.stdout


def test_a_bad_setting_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text("def test_it(rocketmq):\n    pass\n")
    result = run_pytest(tmp_path, "--rocketmq-settings", "noEqualsSign")
    assert result.returncode != 0
    assert "KEY=VALUE" in result.stdout
