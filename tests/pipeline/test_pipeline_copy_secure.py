"""A copy between clusters that check every account, of which the target requires TLS."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "interop"))

from interop_cluster import Cluster
from interop_guard import certificate, write_accounts
from interop_processes import wait_until

from triomq.blocking import Admin, Credentials, Message, Producer
from triomq.spark.jobs import main as jobs

OWNER = ("copyOwner", "secretOfTheOwner")
LIMITED = ("copyLimited", "secretOfTheLimited")
STRANGER = ("copyStranger", "secretOfAStranger")


@dataclass
class Side:
    """`words`: how the command reaches it, without an account."""

    name_server: str
    words: list[str]


def account(side: str, keys: tuple[str, str]) -> list[str]:
    return [f"--{side}-option", f"accessKey={keys[0]}", f"--{side}-option", f"secretKey={keys[1]}"]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    directory = tmp_path_factory.mktemp("secure")
    key, chain = certificate(directory, "server")
    tls = {
        "tls.test.mode.enable": "false",
        "tls.server.keyPath": str(key),
        "tls.server.certPath": str(chain),
    }
    with ExitStack() as stack:
        found = []
        for name, more in (("source", {}), ("target", {**tls, "tls.server.mode": "enforcing"})):
            home = directory / name
            home.mkdir()
            write_accounts(home, OWNER, LIMITED, {"Guarded": "PUB|SUB"}, {"TOOLS_CONSUMER": "SUB"})
            cluster = Cluster("triomq", home / "cluster", {**more, "aclEnable": "true", "rocketmqHome": str(home)})
            with (home / "cluster" / "namesrv" / "namesrv.conf").open("a") as conf:
                conf.writelines(f"{name}={value}\n" for name, value in tls.items() if more)
            cluster.start()
            stack.callback(cluster.stop)
            wait_until(lambda cluster=cluster: cluster.route("TBW102"), 20, "the broker is registered")
            found.append(cluster.namesrv_address)
        options = ["tls.enable=true", "tls.client.authServer=true", f"tls.client.trustCertPath={chain}"]
        encrypted = [word for option in options for word in ("--to-option", option)]
        credentials = Credentials(*OWNER)
        with Admin(name_server=found[0], credentials=credentials) as admin:
            admin.create_topic("Guarded", read_queues=1, write_queues=1)
            admin.create_group("guards")
        with Producer("p", name_server=found[0], credentials=credentials) as producer:
            for number in range(5):
                producer.send(Message("Guarded", b"%d" % number))
        yield Side(found[0], ["--from", found[0]]), Side(found[1], ["--to", found[1], *encrypted])


def run(sides: tuple[Side, Side], state: Path, *words: str) -> int:
    names = ["--source-name", "one", "--target-name", "two", "--from-option", "retryTimeoutMs=1000"]
    line = ["copy", *sides[0].words, *sides[1].words, *names, "--state", str(state), "--once", "--quiet"]
    return jobs.main([*line, "--settle-seconds", "0", *words])


def test_accounts_and_tls_are_those_of_each_side(
    sides: tuple[Side, Side], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    owner = ["--topics", "Guarded", "--groups", "guards", *account("from", OWNER), *account("to", OWNER)]
    assert run(sides, tmp_path / "owner", *owner) == 0, capsys.readouterr().err
    assert capsys.readouterr().out.startswith("5 messages of 1 topics copied")
    # the topic is there now: an account with the rights of a reader and a writer is enough
    limited = ["--topics", "Guarded", *account("from", LIMITED), *account("to", LIMITED)]
    for more in ([], ["--exactly-once"]):
        assert run(sides, tmp_path / f"limited{len(more)}", *limited, *more) == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([*account("from", STRANGER), *account("to", OWNER)], "--from: .*No acl config for copyStranger"),
        ([*account("from", OWNER), *account("to", STRANGER)], "--to: .*No acl config for copyStranger"),
        (["--groups", "guards", *account("from", LIMITED), *account("to", OWNER)], "--from: .*permission"),
    ],
)
def test_what_is_not_permitted_is_one_line(
    sides: tuple[Side, Side], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], line: str
) -> None:
    assert run(sides, tmp_path, "--topics", "Guarded", *words) == 2
    error = capsys.readouterr().err
    assert re.match(f"mqpipeline copy: {line}", error), error
    assert error.count("\n") == 1
