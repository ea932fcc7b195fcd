"""A broker process whose disk does not respond any more when it is to stop."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import trio
from broker_whole import SETTINGS, send_fields, whole_broker
from free_ports import free_port

from triomq.daemon.errors import ExitCode
from triomq.protocol.command import new_request
from triomq.remoting.client import open_client

SILENT_BROKER = """
import os, sys, threading
import triomq.broker.__main__ as broker
import triomq.broker.controller as controller
from triomq.store.disk.files import Files

class SilentFiles(Files):
    def kernel_sync(self):
        return None

    def datasync(self, fd):
        if os.path.exists(sys.argv[1]):
            threading.Event().wait()
        super().datasync(fd)

controller.Files = SilentFiles
broker.DISK_DEADLINE_SECONDS = 0.5
sys.exit(broker.main(sys.argv[2:]))
"""


async def test_a_broker_whose_disk_is_silent_ends_as_after_a_crash_and_says_so(tmp_path: Path) -> None:
    port, trigger = free_port(), tmp_path / "silent"
    settings = {**SETTINGS, "storePathRootDir": str(tmp_path / "store"), "listenPort": str(port)}
    settings["namesrvAddr"] = "127.0.0.1:9"
    (tmp_path / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", SILENT_BROKER, str(trigger), "-c", str(tmp_path / "broker.conf")],
        env={**os.environ, "HOME": str(tmp_path), "ROCKETMQ_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "boot success" in process.stdout.readline()
        trigger.touch()
        fields = {name: str(value) for name, value in send_fields("TBW102").items()}
        async with open_client() as client:
            answer = await client.invoke(f"127.0.0.1:{port}", new_request(10, ext_fields=fields, body=b"kept"), 10)
        assert answer.code == 0
        process.terminate()
        _, errors = await trio.to_thread.run_sync(process.communicate, None, 25)
    finally:
        process.kill()
        process.wait()
    lines = [line for line in errors.splitlines() if " WARN " not in line]
    assert process.returncode == ExitCode.DISK_SILENT
    assert len(lines) == 1 and lines[0].startswith("mqbroker: the disk did not respond within 0.5 s"), errors
    logs = "".join(path.read_text() for path in (tmp_path / "logs").rglob("*.log"))
    assert logs.count("the disk did not respond within 0.5 s") == 1
    assert (tmp_path / "store" / "abort").exists()
    async with whole_broker(tmp_path) as broker:
        assert broker.controller.serving is not None
        report = broker.controller.serving.store.recovery_report
        assert report is not None and not report.was_clean
        assert b"kept" in (await broker.pull("TBW102")).body
