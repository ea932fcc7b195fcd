"""The daemons work under the system call filter of their units: none of the calls that they make is refused."""

from __future__ import annotations

import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from free_ports import free_port
from test_packaging_systemd import ROOT, UNITS, service

from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.remoting.client import open_client
from triomq.remoting.tls import TlsSettings, client_context

CONFINED = Path(__file__).with_name("confined.py")
NUMBERS = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None or not NUMBERS.exists() or platform.machine() != "x86_64",
    reason="needs systemd-analyze and the numbers of the system calls (linux-libc-dev) on x86-64",
)


def members(name: str) -> set[str]:
    """Return the system calls of a group of systemd, such as @aio."""
    if not name.startswith("@"):
        return {name}
    done = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    found: set[str] = set()
    for line in done.stdout.splitlines()[1:]:
        word = line.strip()
        if word and not word.startswith("#"):
            found |= members(word)
    return found


def allowed(unit: str) -> set[str]:
    """Return what the unit's SystemCallFilter lines allow, read as systemd reads them."""
    text = (ROOT / "packaging/systemd" / unit).read_text()
    found: set[str] = set()
    for value in re.findall(r"(?m)^SystemCallFilter=(.*)$", text):
        names = set().union(*(members(name) for name in value.removeprefix("~").split()))
        found = found - names if value.startswith("~") else found | names
    # systemd itself adds those that starting a process takes.
    return found | members("@default") | {"execve", "exit", "exit_group", "rt_sigreturn", "brk"}


@pytest.fixture(scope="module", params=UNITS)
def filter_file(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", NUMBERS.read_text()))
    path = tmp_path_factory.mktemp("filter") / "allowed"
    path.write_text(" ".join(sorted(numbers[name] for name in allowed(request.param) if name in numbers)))
    return request.param, path


@contextmanager
def confined(filter_path: Path, home: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, "HOME": str(home), "PYTHONPATH": str(ROOT / "src"), "TRIOMQ_LOG_DIR": "-"}
    notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notified.bind(str(home / "notify"))
    environment["NOTIFY_SOCKET"] = str(home / "notify")
    with (home / "output").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(CONFINED), str(filter_path), sys.executable, "-m", *words],
            env=environment,
            cwd=home,
            stdout=output,
            stderr=output,
        )
    try:
        notified.settimeout(60)
        assert b"READY=1" in notified.recv(4096)
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(60)
        notified.close()


def test_the_filter_bites(filter_file: tuple[str, Path], tmp_path: Path) -> None:
    """Without this the others could pass because nothing is filtered."""
    _, path = filter_file
    words = [sys.executable, str(CONFINED), str(path), sys.executable, "-c"]
    assert subprocess.run([*words, "print(1)"], check=False).returncode == 0
    refused = subprocess.run([*words, "import os; os.sched_setaffinity(0, {0})"], check=False)
    assert refused.returncode == -signal.SIGSYS
    if tuple(map(int, platform.release().split(".")[:2])) >= (6, 3):
        executable = "import mmap; mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)"
        done = subprocess.run([*words, executable], capture_output=True, text=True, check=False)
        assert "PermissionError" in done.stderr


@pytest.mark.slow
def test_a_daemon_does_its_work_confined(filter_file: tuple[str, Path], tmp_path: Path) -> None:
    """Start, sync by the kernel, serve plain and TLS connections with a certificate that openssl makes, and stop."""
    unit, path = filter_file
    port = free_port()
    module = "triomq.broker" if unit == "mqbroker.service" else "triomq.namesrv"
    text = f"listenPort={port}\n"
    if module == "triomq.broker":
        text += (
            "brokerIP1=127.0.0.1\nnamesrvAddr=127.0.0.1:1\nbrokerName=a\nflushDiskType=SYNC_FLUSH\n"
            f"mappedFileSizeCommitLog=1048576\nstorePathRootDir={tmp_path}/store\nwarmMapedFileEnable=true\n"
        )
    (tmp_path / "x.conf").write_text(text)
    fields = {
        "producerGroup": "P",
        "topic": "T",
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": "0",
        "sysFlag": "0",
        "bornTimestamp": "1",
        "flag": "0",
    }

    async def use() -> None:
        for context in (None, client_context(TlsSettings())):
            async with open_client(tls_context=context) as client:
                if module == "triomq.broker":
                    request = new_request(RequestCode.SEND_MESSAGE, ext_fields=dict(fields), body=b"hello")
                else:
                    request = new_request(RequestCode.GET_BROKER_CLUSTER_INFO)
                answer = await client.invoke(f"127.0.0.1:{port}", request, 30)
                assert answer.code == ResponseCode.SUCCESS, answer.remark

    with confined(path, tmp_path, module, "-c", "x.conf") as process:
        trio.run(use)
        process.send_signal(signal.SIGHUP)
    assert process.returncode == 0
    output = (tmp_path / "output").read_text()
    assert "ERROR" not in output
    assert "WARN" not in re.sub(r".*(NameServer not reached|open files).*", "", output), output


@pytest.mark.parametrize("unit", UNITS)
def test_directives_that_no_score_counts_are_there(unit: str) -> None:
    directives = service(unit)
    assert directives["ProtectSystem"] == "strict"
    assert directives["ReadWritePaths"] == "/etc/triomq"
    assert directives["SystemCallErrorNumber"] == "EPERM"
    for name in ("NoNewPrivileges", "PrivateMounts", "PrivateTmp", "MemoryDenyWriteExecute", "LockPersonality"):
        assert directives[name] == "yes", name
