"""A broker whose commit fails unexpectedly ends with the reason, and every acknowledged message survives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from broker_whole import SETTINGS, now_ms, send_fields, whole_broker
from file_faults import FaultyFiles
from free_ports import free_port

from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.daemon.errors import ExitCode
from triomq.protocol.command import new_request
from triomq.protocol.record import iterate_records
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.errors import ConnectionClosed, RemotingError
from triomq.store.errors import StoreFailed

RAISING_BROKER = """
import os, sys
import triomq.broker.controller as controller
from triomq.broker.__main__ import main
from triomq.store.disk.files import Files

class RaisingFiles(Files):
    def pwrite(self, fd, data, at):
        if os.path.exists(sys.argv[1]) and "consumequeue" in os.readlink(f"/proc/self/fd/{fd}"):
            raise RuntimeError("boom in a commit")
        super().pwrite(fd, data, at)

controller.Files = RaisingFiles
sys.exit(main(sys.argv[2:]))
"""


async def send(client: RemotingClient, address: str, body: bytes) -> int:
    fields = {name: str(value) for name, value in send_fields("T").items()}
    return (await client.invoke(address, new_request(10, ext_fields=fields, body=body), 10)).code


async def bodies_of(folder: Path) -> list[bytes]:
    """Return the messages that a restarted broker delivers."""
    async with whole_broker(folder) as broker:
        assert broker.controller.serving is not None
        report = broker.controller.serving.store.recovery_report
        assert report is not None and not report.was_clean
        answer = await broker.pull("T")
        return [found.body for found in iterate_records(answer.body)]


@pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), SystemExit(0)], ids=repr)
async def test_a_commit_that_raises_ends_the_broker_and_loses_nothing(tmp_path: Path, error: BaseException) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
    values = {**SETTINGS, "storePathRootDir": str(tmp_path / "store")}
    files = FaultyFiles()
    controller = BrokerController(Configuration.from_values(values), now_ms=now_ms, files=files)
    async with open_client() as client:
        with pytest.raises(BaseExceptionGroup) as caught:
            async with trio.open_nursery() as nursery:
                address: str = await nursery.start(controller.serve)
                for number in range(5):
                    assert await send(client, address, b"kept %d" % number) == 0
                files.fail(error, "pwrite", where="consumequeue")
                with trio.CancelScope(shield=True), pytest.raises(ConnectionClosed):
                    await send(client, address, b"doubtful")
                files.mend()
                with trio.fail_after(10):
                    await trio.sleep_forever()
    expected = StoreFailed if isinstance(error, Exception) else type(error)
    assert caught.value.subgroup(expected) is not None
    assert (tmp_path / "store" / "abort").exists()
    assert (await bodies_of(tmp_path))[:5] == [b"kept %d" % number for number in range(5)]


async def test_a_hook_that_raises_leaves_no_clean_store(tmp_path: Path) -> None:
    """The same holds when the commit itself succeeded: other work for its messages is unfinished."""
    values = {**SETTINGS, "storePathRootDir": str(tmp_path / "store")}
    controller = BrokerController(Configuration.from_values(values), now_ms=now_ms)
    with pytest.raises(BaseExceptionGroup):
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.serve)
            assert controller.serving is not None

            def hook() -> None:
                raise RuntimeError("boom")

            controller.serving.tables.surroundings.turn.before_flush(hook)
            controller.serving.tables.surroundings.turn.wake()
            with trio.fail_after(10):
                await trio.sleep_forever()
    assert (tmp_path / "store" / "abort").exists()


async def test_a_process_whose_commit_raises_ends_with_one_line_that_says_why(tmp_path: Path) -> None:
    port = free_port()
    trigger = tmp_path / "raise"
    settings = {**SETTINGS, "storePathRootDir": str(tmp_path / "store"), "listenPort": str(port)}
    settings["namesrvAddr"] = "127.0.0.1:9"
    (tmp_path / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    environment = {**os.environ, "HOME": str(tmp_path), "ROCKETMQ_HOME": str(tmp_path)}
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", RAISING_BROKER, str(trigger), "-c", str(tmp_path / "broker.conf")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "boot success" in process.stdout.readline()
        address = f"127.0.0.1:{port}"
        async with open_client() as client:
            for number in range(5):
                assert await send(client, address, b"kept %d" % number) == 0
            trigger.touch()
            with pytest.raises(RemotingError):
                await send(client, address, b"doubtful")
        _, errors = await trio.to_thread.run_sync(process.communicate, None, 20)
    finally:
        process.kill()
        process.wait()
    lines = [line for line in errors.splitlines() if " WARN " not in line]  # the warning says that it has no NameServer
    assert process.returncode == ExitCode.FAILED & 0xFF
    assert len(lines) == 1, errors
    assert lines[0].startswith("mqbroker: ") and "a commit failed" in lines[0]
    assert "RuntimeError: boom in a commit" in lines[0]
    assert (await bodies_of(tmp_path))[:5] == [b"kept %d" % number for number in range(5)]
