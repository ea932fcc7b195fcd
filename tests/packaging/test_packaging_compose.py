"""docker-compose.yml in use without Docker: its commands run in namespaces, with the ports that they publish."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_network import ComposeNetwork, why_not

ROOT = Path(__file__).resolve().parents[2]
CLIENT = """
import time

from triomq import Message
from triomq.blocking import Producer, PullConsumer

with Producer("compose", name_server="127.0.0.1:9876") as producer:
    alone, end = {"broker-a", "broker-b"}, time.monotonic() + 30
    while alone and time.monotonic() < end:  # a slave counts a moment after it connected
        result = producer.send(Message("First", b"x"))
        if result.status.name == "SEND_OK":
            alone.discard(result.queue.broker_name)
        time.sleep(0.05)
    results = [producer.send(Message("Compose", b"%d" % number)) for number in range(16)]
print(sorted({result.queue.broker_name for result in results}), {result.status.name for result in results})
with PullConsumer("compose", name_server="127.0.0.1:9876") as consumer:
    bodies = []
    for queue in consumer.queues("Compose"):
        bodies += [int(message.body) for message in consumer.pull(queue, "*", 0).messages]
print(sorted(bodies) == list(range(16)))
"""


GROUP_CLIENT = """
import sys

from triomq import Message
from triomq.blocking import Producer, PullConsumer

act, name = sys.argv[1:]
if act == "send":
    with Producer("compose", name_server="127.0.0.1:9876") as producer:
        result = producer.send(Message("Compose", b"x"), timeout_seconds=30)
    with PullConsumer("compose", name_server="127.0.0.1:9876") as consumer:
        consumer.commit(result.queue, 1)
    print(result.queue.queue_id)
else:
    with PullConsumer("compose", name_server="127.0.0.1:9876") as consumer:
        queue = next(queue for queue in consumer.queues("Compose") if queue.queue_id == int(name))
        bodies = [message.body for message in consumer.pull(queue, "*", 0).messages]
        print(consumer.committed_offset(queue, from_store=True), bodies)
"""


ALARMS = """
import json
import sys
import time
from urllib.request import urlopen

expected, *ports = map(int, sys.argv[1:])
end = time.monotonic() + 30
for port in ports:
    while True:
        with urlopen(f"http://127.0.0.1:{port}/api/cluster", timeout=20) as response:
            seen = json.load(response)
        if len(seen["brokers"]) == expected or time.monotonic() > end:
            break
        time.sleep(0.2)
    print(port, len(seen["brokers"]), [alarm["what"] for alarm in seen["alarms"]])
"""


Document = dict[str, dict[str, dict[str, Any]]]


def compose_file(**variables: str) -> Document:
    """Return the parsed file with ${NAME:-default} replaced, as Compose does."""
    text = (ROOT / "docker-compose.yml").read_text()
    replaced = re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: variables.get(match[1], match[2]), text)
    document: Document = yaml.safe_load(replaced)
    return document


@pytest.mark.slow
def test_no_alarm_is_raised_and_messages_go_through_masters_slaves_and_a_group(tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(tmp_path),
    }
    with ComposeNetwork(compose_file(BROKER_ROLE="SYNC_MASTER"), tmp_path / "compose", variables) as network:
        network.start("namesrv")
        network.wait_until_healthy("namesrv")
        brokers = ("broker-a", "broker-b", "broker-a-s", "broker-b-s", "dledger-n0", "dledger-n1", "dledger-n2")
        for name in brokers:
            network.start(name)
        for name in brokers:  # a synchronous master is healthy when it has its slave
            network.wait_until_healthy(name)
        dashboards = ("8556", "8557", "8560", "8562")  # of the NameServer, a master, a slave, a member of the group
        done = network.run("host", [sys.executable, "-c", ALARMS, "7", *dashboards])
        assert (done.returncode, done.stdout.splitlines()) == (0, [f"{port} 7 []" for port in dashboards])
        done = network.run("broker-a", [sys.executable, "-m", "triomq.admin", "doctor", "-n", "127.0.0.1:9876"])
        assert "CRITICAL" not in done.stdout, "the advertised addresses lead to the brokers inside of a container, too"
        done = network.run("host", [sys.executable, "-c", CLIENT])
        assert (done.returncode, done.stderr) == (0, "")
        # SEND_OK from a SYNC_MASTER: the slave has the message, too.
        assert done.stdout == "['RaftNode00', 'broker-a', 'broker-b'] {'SEND_OK'}\nTrue\n"
    for name in ("broker-a", "broker-b"):
        assert (tmp_path / "compose" / name / "store" / "commitlog").is_dir()
        assert not (tmp_path / "compose" / name / "store" / "abort").exists(), "stopped cleanly, in its volume"


def with_members_apart(document: Document) -> Document:
    """Give each member of the group a network of its own, as on three machines behind NAT."""
    shared: list[str] = document["services"]["network"]["ports"]
    for number in range(3):
        name = f"dledger-n{number}"
        service, configuration = document["services"][name], document["configs"][name]
        del service["network_mode"]
        service["ports"] = own = [f"{port}:{port}" for port in (30911 + 10 * number, 30909 + 10 * number)]
        document["services"]["network"]["ports"] = shared = [port for port in shared if port not in own]
        service["environment"] = {"NAMESRV_ADDR": "network:9876"}
        peers = "dLegerPeers=" + ";".join(f"n{peer}-dledger-n{peer}:40911" for peer in range(3))
        configuration["content"] = re.sub("dLegerPeers=.*", peers, configuration["content"])
    return document


@pytest.mark.slow
def test_a_group_of_containers_keeps_topics_and_offsets_when_its_master_is_killed(tmp_path: Path) -> None:
    """Clients reach the members at 127.0.0.1; from another container that address leads nowhere."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(tmp_path),
    }
    members = ("dledger-n0", "dledger-n1", "dledger-n2")
    with ComposeNetwork(with_members_apart(compose_file()), tmp_path / "compose", variables) as network:
        network.start("namesrv")
        network.wait_until_healthy("namesrv")
        processes = {name: network.start(name) for name in members}
        for name in members:
            network.wait_until_healthy(name)

        def client(act: str, queue: str) -> str:
            done = network.run("host", [sys.executable, "-c", GROUP_CLIENT, act, queue])
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        queue = client("send", "-")
        leader = next(name for name in members if "role of the master taken" in network.log(name))
        processes[leader].kill()
        assert client("send", "-") != ""
        assert client("look", queue).startswith("1 [b'x'")
        for name in members:
            assert "tables not copied" not in network.log(name), "only the log brings them"
