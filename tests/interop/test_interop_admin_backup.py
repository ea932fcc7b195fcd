"""A backup goes from TrioMQ's broker into Apache's, which is empty, and back into an empty one of TrioMQ: each of the
three clusters backs up equal.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from interop_cluster import CLUSTER_NAME, running_cluster
from interop_processes import wait_until

from triomq.admin.__main__ import main
from triomq.testing import LocalCluster

SETTINGS = {"aclEnable": "true", "autoCreateTopicEnable": "false"}
ACCOUNTS = """
globalWhiteRemoteAddresses:
- 127.0.0.1
accounts:
- accessKey: operator
  secretKey: operators-secret
  admin: true
"""
PARTS = ["--messages", "Orders", "--namespace", "own", "--secrets"]


@pytest.fixture
def homes(peer: Path, tmp_path: Path) -> list[Path]:
    """Three homes with the same account; this machine is on the white list."""
    jars = subprocess.run([str(peer), "fetch"], capture_output=True, text=True, check=True).stdout.strip()
    found = []
    for number in range(3):
        home = Path(shutil.copytree(Path(jars).parent / "home", tmp_path / f"home-{number}"))
        (home / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
        (home / "conf" / "plain_acl.yml").chmod(0o600)
        found.append(home)
    return found


def fill() -> None:
    """Make topics, groups, messages, offsets, an account and key-value pairs."""
    for words in (
        ["updateTopic", "-c", CLUSTER_NAME, "-t", "Orders", "-r", "3", "-w", "2", "-p", "6"],
        ["updateTopic", "-c", CLUSTER_NAME, "-t", "Reports", "-r", "1", "-w", "1", "-p", "4"],
        ["updateSubGroup", "-c", CLUSTER_NAME, "-g", "billing", "-r", "3", "-q", "2", "-d", "false"],
        ["updateSubGroup", "-c", CLUSTER_NAME, "-g", "shipping"],
        ["updateKvConfig", "-s", "own", "-k", "colour", "-v", "red;blue"],
        ["updateOrderConf", "-t", "Reports", "-m", "put", "-v", "broker-a:1"],
        [
            "updateAclConfig",
            "-c",
            CLUSTER_NAME,
            "-a",
            "billing-app",
            "-s",
            "billings-secret",
            "-i",
            "DENY",
            "-t",
            "Orders=SUB,Reports=PUB|SUB",
            "-g",
            "billing=SUB",
        ],
        ["send", "Orders", "first", "-b", "broker-a", "-q", "0", "-k", "k1", "--tag", "new", "-p", "a=b", "-c", "5"],
        ["send", "Orders", "second", "-b", "broker-a", "-q", "1", "-c", "2"],
        ["offsets", "reset", "billing", "Orders", "--to", "3", "--yes"],
        ["offsets", "reset", "shipping", "Orders", "--to", "first", "--yes"],
    ):
        assert main(words) == 0, words


def content(directory: Path) -> dict[str, Any]:
    """Return what a backup holds, without its time, its place, and the settings of its brokers."""
    found: dict[str, Any] = json.loads((directory / "backup.json").read_bytes())
    for broker in found["brokers"].values():
        del broker["settings"]
        for topic in broker["topics"].values():
            del topic["order"]  # brokers take it from ORDER_TOPIC_CONFIG at their next registration
    for entry in found["messages"].values():
        entry["lines"] = [json.loads(line) for line in (directory / entry["file"]).read_text().splitlines()]
    return {key: value for key, value in found.items() if key not in ("createdAt", "nameServers")}


def backed_up(directory: Path) -> dict[str, Any]:
    assert main(["backup", str(directory), *PARTS]) == 0
    return content(directory)


def test_a_backup_goes_through_apaches_broker_and_back(
    homes: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MQADMIN_CONTEXT", raising=False)
    monkeypatch.setenv("MQADMIN_TIMEOUT", "60")
    monkeypatch.setenv("PEER_HOME", str(homes[1]))
    names = [tmp_path / name for name in ("of-the-first", "of-apache", "of-the-last")]
    with LocalCluster(settings={**SETTINGS, "rocketmqHome": str(homes[0])}) as first:
        monkeypatch.setenv("NAMESRV_ADDR", first.name_server)
        fill()
        expected = backed_up(names[0])
    [broker] = expected["brokers"].values()
    assert broker["topics"].keys() == {"Orders", "Reports"}
    assert broker["groups"].keys() == broker["offsets"].keys() == {"billing", "shipping"}
    assert [account["accessKey"] for account in broker["acl"]["accounts"]] == ["billing-app", "operator"]
    assert expected["kv"]["own"] == {"colour": "red;blue"}
    assert expected["kv"]["ORDER_TOPIC_CONFIG"] == {"Reports": "broker-a:1"}
    assert len(expected["messages"]["Orders"]["lines"]) == 7
    with running_cluster("apache", tmp_path / "apache", settings=SETTINGS) as apache:
        monkeypatch.setenv("NAMESRV_ADDR", apache.namesrv_address)
        assert main(["restore", str(names[0]), "--yes"]) == 0
        tries = count()

        def is_dispatched() -> bool:
            """Apache's broker answers a send before its queues have the message."""
            return len(backed_up(tmp_path / f"try-{next(tries)}")["messages"]["Orders"]["lines"]) == 7

        wait_until(is_dispatched, 60, "all messages in the queues of Apache's broker")
        assert backed_up(names[1]) == expected
    with LocalCluster(settings={**SETTINGS, "rocketmqHome": str(homes[2])}) as last:
        monkeypatch.setenv("NAMESRV_ADDR", last.name_server)
        assert main(["restore", str(names[1]), "--yes"]) == 0
        assert backed_up(names[2]) == expected
