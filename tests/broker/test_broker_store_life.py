"""The broker and its store: a stop during recovery, a disk that fills up and empties again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import trio
from broker_whole import SETTINGS, now_ms, pull_fields, send_fields, whole_broker
from file_faults import FaultyFiles

from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.daemon.errors import ExitCode
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import new_request
from triomq.remoting.client import open_client


class StoppedFiles(FaultyFiles):
    """Cancels `scope` at the second read of the log."""

    def __init__(self, scope: trio.CancelScope) -> None:
        super().__init__()
        self._scope = scope

    @property
    def reads(self) -> int:
        return len(self.noted("pread", where="commitlog/"))

    def pread(self, fd: int, size_bytes: int, at: int) -> bytes:
        data = super().pread(fd, size_bytes, at)
        if self.reads == 2:
            self._scope.cancel()
        return data


async def test_a_stop_ends_a_recovery(tmp_path: Path) -> None:
    settings = {**SETTINGS, "storePathRootDir": str(tmp_path / "store")}
    body = bytes(60_000)
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        for _ in range(800):
            assert (await broker.send("T", body)).code == 0
    (tmp_path / "store" / "abort").touch()
    (tmp_path / "store" / "checkpoint").unlink()

    with trio.CancelScope() as scope:
        files = StoppedFiles(scope)
        controller = BrokerController(Configuration.from_values(settings), now_ms=now_ms, files=files)
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.serve)
    assert scope.cancelled_caught
    assert files.reads < 72, "the recovery went on"  # three for each of 47 files; the stop takes some steps of 13
    assert (tmp_path / "store" / "abort").exists()

    async with whole_broker(tmp_path) as broker:  # the lock is free, and all messages are there
        answer = await broker.pull("T", queueOffset=799)
        assert answer.code == ResponseCode.SUCCESS and answer.body.count(body) == 1


@pytest.fixture
def clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.05)


async def test_a_full_disk_refuses_sends_and_serves_reads(tmp_path: Path, clock: trio.testing.MockClock) -> None:
    settings = {**SETTINGS, "storePathRootDir": str(tmp_path / "store")}
    files = FaultyFiles(usage=0.5)
    controller = BrokerController(Configuration.from_values(settings), now_ms=now_ms, files=files)
    async with trio.open_nursery() as nursery, open_client() as client:
        address = await nursery.start(controller.serve)

        async def ask(code: int, fields: dict[str, object], body: bytes = b"") -> tuple[int, str, bytes]:
            texts = {name: str(value) for name, value in fields.items()}
            answer = await client.invoke(address, new_request(code, ext_fields=texts, body=body), 10)
            return answer.code, answer.remark or "", answer.body

        assert (await ask(10, send_fields("TBW102"), b"before"))[0] == ResponseCode.SUCCESS
        files.usage = 0.93
        await trio.sleep(11)
        code, remark, _ = await ask(10, send_fields("TBW102"), b"refused")
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE == 14
        assert "93.0%" in remark and "free space" in remark
        code, _, body = await ask(11, pull_fields("TBW102"))
        assert code == ResponseCode.SUCCESS and b"before" in body
        files.usage = 0.7
        assert (await ask(10, send_fields("TBW102"), b"after"))[0] == ResponseCode.SUCCESS
        code, _, body = await ask(11, pull_fields("TBW102"))
        assert b"before" in body and b"after" in body and b"refused" not in body
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("key", "path"),
    [("storePathRootDir", "file"), ("storePathRootDir", "file/below"), ("storePathCommitLog", "file")],
)
def test_a_store_path_that_is_a_file_is_refused_with_its_own_name(tmp_path: Path, key: str, path: str) -> None:
    (tmp_path / "file").touch()
    values = {**SETTINGS, "namesrvAddr": "127.0.0.1:9", "storePathRootDir": str(tmp_path / "store")}
    values[key] = str(tmp_path / path)
    (tmp_path / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    result = subprocess.run(
        [sys.executable, "-m", "triomq.broker", "-c", str(tmp_path / "broker.conf")],
        env={**os.environ, "HOME": str(tmp_path), "ROCKETMQ_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == ExitCode.REFUSED
    lines = [line for line in result.stderr.splitlines() if "no NameServer is configured" not in line]
    assert len(lines) == 1, result.stderr
    assert f"{tmp_path / path} cannot be a directory" in lines[0] and key in lines[0]
