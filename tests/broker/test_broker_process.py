"""mqbroker as a process: its signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from daemon_logs import wait_for_log
from free_ports import free_port

SOURCE = Path(__file__).resolve().parents[2] / "src"


def start(home: Path, text: str) -> subprocess.Popen[str]:
    (home / "broker.conf").write_text(text)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        [sys.executable, "-m", "triomq.broker", "-c", "broker.conf"],
        env=environment,
        cwd=home,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert "boot success" in process.stdout.readline()
    wait_for_log(home / "logs" / "rocketmqlogs" / "broker.log")
    return process


def test_a_hangup_reopens_the_logs_and_takes_the_edited_file(tmp_path: Path) -> None:
    head = f"brokerIP1=127.0.0.1\nlistenPort={free_port()}\nnamesrvAddr=127.0.0.1:1\n"
    process = start(tmp_path, f"{head}longPollingEnable=true\nbrokerName=a\n")
    log = tmp_path / "logs" / "rocketmqlogs" / "broker.log"
    log.rename(log.with_suffix(".1"))
    (tmp_path / "broker.conf").write_text(f"{head}longPollingEnable=false\nbrokerName=b\n")
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    for line in process.stderr:
        if "keys not applied; they change at the next start only" in line:
            break
    assert line.endswith("keys=brokerName\n")
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert "configuration reloaded" in log.read_text()
    assert "changed=longPollingEnable" in log.read_text()
    assert not (tmp_path / "store" / "abort").exists(), "the second SIGTERM did not interrupt the stop"
