"""A member of a group is exchanged for one at another address while a producer sends: no send fails."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from interop_group import GROUP, Group, Load, check_promises, observing

SECONDS = 120
OLD, NEW = ("n0", "n1", "n2"), ("n0", "n2", "n3")


@pytest.mark.slow
async def test_no_send_fails_while_a_member_is_replaced(tmp_path: Path) -> None:
    group = Group(tmp_path, dict.fromkeys(("n0", "n1", "n2", "n3"), "triomq"), configUpdateWithoutAcl="true")
    addresses = dict(group.addresses)
    kinds, group.kinds = dict(group.kinds), dict.fromkeys(OLD, "triomq")
    group.addresses = {member: addresses[member] for member in OLD}
    try:
        group.start_all()
        load = Load(group)
        async with observing(group) as observer, load.running():
            await observer.make_lead("n2")
            await load.more(20)
            failed = load.failed  # before a master is registered
            group.kinds, group.addresses = kinds, {member: addresses[member] for member in NEW}
            with trio.fail_after(SECONDS):
                await _replace(group, f"n3-{addresses['n3']}")
            await load.more(50)
            assert load.failed == failed, "the clients try again, and have a master in time"
        group.kinds = dict.fromkeys(NEW, "triomq")
        await check_promises(group, load)
    finally:
        group.end()


async def _replace(group: Group, coming: str) -> None:
    """Follow `mqadmin dledger replace`, which hands over itself, and do by hand what it says."""
    command = [sys.executable, "-m", "triomq.admin", "dledger", "replace", GROUP, "n1", coming]
    command += ["-n", group.name_server, "--output", "jsonl"]
    process = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    rest = b""
    async for data in process.stdout:
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            step = json.loads(line)
            if step["act"] in ("restart", "stop"):
                assert await trio.to_thread.run_sync(group.stop, step["member"]) == 0
            if step["act"] in ("restart", "start"):
                await group.start_soon(step["member"])
    assert await process.wait() == 0
