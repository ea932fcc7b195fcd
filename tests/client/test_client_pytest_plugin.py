"""The pytest plugin in a separate pytest, as in a user's project."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest
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


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--rocketmq-settings", "noEqualsSign"), "--rocketmq-settings takes KEY=VALUE, not 'noEqualsSign'"),
        (("--rocketmq-port", "70000"), "--rocketmq-port 70000: there is no port 70000"),
        (("--rocketmq-port", "-1"), "--rocketmq-port -1: there is no port -1"),
    ],
)
def test_a_bad_option_is_named_before_the_first_test(tmp_path: Path, words: tuple[str, str], says: str) -> None:
    (tmp_path / "test_theirs.py").write_text("def test_it():\n    pass\n")
    result = run_pytest(tmp_path, *words)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"ERROR: {says}" in result.stderr
    assert "passed" not in result.stdout


WORKERS = """
import os
import time

import pytest
from triomq import blocking


@pytest.mark.parametrize("number", range(2))
def test_worker(rocketmq, rocketmq_name, tmp_path_factory, number):
    with blocking.Producer("p", name_server=rocketmq.name_server) as producer:
        topic = rocketmq_name("topic")
        producer.send(blocking.Message(topic, b"m"))
    shared = tmp_path_factory.getbasetemp().parent
    (shared / os.environ["PYTEST_XDIST_WORKER"]).write_text(rocketmq.name_server)
    while len(list(shared.glob("gw?"))) < 2:  # the other worker's cluster runs beside this one
        time.sleep(0.02)
"""


def test_each_worker_of_xdist_has_a_cluster_at_a_port_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    (tmp_path / "test_theirs.py").write_text(WORKERS)
    first = two_free_ports()
    base = ("--basetemp", str(tmp_path / "base"))
    result = run_pytest(tmp_path, "-p", "xdist", "-n", "2", "--dist", "each", "--rocketmq-port", str(first), *base)
    assert result.returncode == 0, result.stdout + result.stderr
    addresses = {path.name: path.read_text() for path in (tmp_path / "base").glob("gw?")}
    assert addresses == {"gw0": f"127.0.0.1:{first}", "gw1": f"127.0.0.1:{first + 1}"}


def two_free_ports() -> int:
    """Return the first of two free ports that follow each other."""
    for _ in range(100):
        first = free_port()
        with socket.socket() as other, suppress(OSError, OverflowError):
            other.bind(("127.0.0.1", first + 1))
            return first
    raise AssertionError("no two free ports follow each other")


def test_the_plugin_can_be_left_out(tmp_path: Path) -> None:
    """pytest finds it by the entry point `triomq`; `-p no:NAME` leaves a plugin out, xdist for one."""
    (tmp_path / "test_theirs.py").write_text("def test_it(rocketmq_name):\n    assert rocketmq_name('x') != 'x'\n")
    entry_points = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"]
    installed = tmp_path / "packages" / "found-1.0.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: found\nVersion: 1.0\n")
    lines = [f"{name} = {module}" for name, module in entry_points.items()]
    (installed / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))
    path = os.pathsep.join([str(installed.parent), str(PROJECT / "src")])
    environment = {name: text for name, text in os.environ.items() if not name.startswith("PYTEST_")}

    def output(*words: str) -> str:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env={**environment, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )
        return done.stdout + done.stderr

    assert "1 passed" in output("--rocketmq-port", "9876")
    assert "fixture 'rocketmq_name' not found" in output("-p", "no:triomq")
    assert "unrecognized arguments: --rocketmq-port" in output("-p", "no:triomq", "--rocketmq-port", "9876")
