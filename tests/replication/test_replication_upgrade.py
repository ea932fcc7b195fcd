"""A pair and a group go to another build in the order of docs/how-to/upgrade.md while a producer sends. The other build
is this code with another version.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from interop_cluster import PROJECT
from interop_group import GROUP, Load, check_equal, check_promises, observing, running_group
from interop_processes import wait_until
from replication_processes import Cluster, Traffic, create_topic

import triomq

pytestmark = pytest.mark.slow
OLD, NEW = triomq.__version__, "99.0.dev7+gabcdef12"
SECONDS = 60


@pytest.fixture(scope="module")
def new_build(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The beginning of a command that runs in the other build; a program of triomq comes next."""
    source = tmp_path_factory.mktemp("new")
    package = source / "triomq"
    package.mkdir()
    for part in (PROJECT / "src" / "triomq").iterdir():
        if part.name not in ("_version.py", "__init__.py", "__pycache__"):
            (package / part.name).symlink_to(part.resolve())
    for part in (PROJECT / "src").glob("*mypyc*.so"):
        (source / part.name).symlink_to(part)
    (package / "__init__.py").write_text((PROJECT / "src/triomq/__init__.py").read_text())
    text = (PROJECT / "src/triomq/_version.py").read_text()
    (package / "_version.py").write_text(text.replace('BUILT = ""', f'BUILT = "{NEW}"'))
    return ["env", f"PYTHONPATH={source}", sys.executable, "-P", "-m"]


def admin(name_server: str, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Run mqadmin. Return its exit status and what it shows."""
    command = [sys.executable, "-m", "triomq.admin", *words, "-n", name_server, "--output", "json"]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT / "src")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=environment, check=False)
    return done.returncode, json.loads(done.stdout or "[]")


def versions(name_server: str) -> list[str]:
    """Return the versions of the daemons, NameServers first."""
    status, items = admin(name_server, "version")
    assert status == 0, items
    return [item["version"] for item in items if item["kind"] != "tool"]


def finds_builds(name_server: str) -> bool:
    return "builds-differ" in {item["code"] for item in admin(name_server, "doctor")[1]}


def test_a_pair_is_upgraded_the_slave_first_and_keeps_what_was_acknowledged(
    tmp_path: Path, new_build: list[str]
) -> None:
    cluster = Cluster(tmp_path, haSendHeartbeatInterval="500")
    servers = cluster.namesrv.address
    try:
        cluster.start()
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        assert versions(servers) == [OLD, OLD, OLD]
        traffic = Traffic(cluster.master, "T")
        try:
            for broker in (cluster.slave, cluster.master):
                broker.stop()
                broker.program = [*new_build, "triomq.broker"]
                broker.start()
                before = len(traffic.acknowledged)
                wait_until(
                    lambda before=before: len(traffic.acknowledged) > before + 20,
                    SECONDS,
                    "the slave acknowledges sends again",
                )
                wait_until(lambda: len(cluster.namesrv.brokers()) == 2, SECONDS, "both brokers are registered")
                assert finds_builds(servers) == (broker is cluster.slave)
            assert versions(servers) == [OLD, NEW, NEW]
        finally:
            traffic.stop()
        cluster.wait_equal()
        kept = set(re.findall(rb"traffic-[0-9]{8}-z{300}", cluster.slave.log()))
        assert len(traffic.acknowledged) > 40
        assert traffic.acknowledged - kept == set()
    finally:
        cluster.end()


async def test_a_group_is_upgraded_one_by_one_the_leader_last_and_no_send_fails(
    tmp_path: Path, new_build: list[str]
) -> None:
    with running_group(tmp_path, dict.fromkeys(("n0", "n1", "n2"), "triomq"), configUpdateWithoutAcl="true") as group:

        async def ask(*words: str) -> tuple[int, list[dict[str, Any]]]:
            return await trio.to_thread.run_sync(admin, group.name_server, *words)

        async def upgrade(member: str) -> None:
            assert await trio.to_thread.run_sync(group.stop, member) == 0
            group.programs[member] = [*new_build, "triomq.broker"]
            await group.start_soon(member)
            while not is_in_step(await ask("dledger", "members", GROUP), member):  # noqa: ASYNC110, others write
                await trio.sleep(0.1)

        load = Load(group)
        async with observing(group) as observer, load.running():
            await load.more(20)
            failed = load.failed  # before a master was registered
            with trio.fail_after(SECONDS):
                leader = await observer.leader()
                first, second = group.kinds.keys() - {leader}
                await upgrade(first)
                await upgrade(second)
                while (await ask("dledger", "transfer", GROUP, first))[0]:  # noqa: ASYNC110, it may be a moment behind
                    await trio.sleep(0.1)
                assert await observer.leader() == first
                await load.more(20)
                await upgrade(leader)
            await load.more(20)
            assert load.failed == failed, "the clients try again, and have a master in time"
        assert versions(group.name_server) == [OLD, NEW, NEW, NEW]
        await check_promises(group, load)
        await check_equal(group)


def is_in_step(shown: tuple[int, list[dict[str, Any]]], member: str) -> bool:
    status, items = shown
    return status == 0 and [item["lag"] for item in items if item["member"] == member] == [0]
