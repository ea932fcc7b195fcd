"""Cures: every command that `mqadmin doctor` names works as it is printed, and mends what it is named for."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from test_admin_doctor import FAULTS, Patient
from test_admin_doctor import patient as patient
from verb_calls import SETTINGS, check, set_offset

from triomq.admin.__main__ import main
from triomq.blocking import PushConsumer
from triomq.protocol import findings, runtime_findings
from triomq.protocol.findings import Finding
from triomq.testing import LocalCluster

Capture = pytest.CaptureFixture[str]
PROJECT: Final = Path(__file__).resolve().parents[2]
SOURCES: Final = [PROJECT / "protocol", PROJECT / "admin"]
IN_BACKTICKS: Final = re.compile(r"`([^`]*)`")
OF_THE_SYSTEM: Final = {"iostat", "timedatectl", "top"}
"""Programs that change or watch the machine."""
MORE: Final = {
    ("offsets", "reset"): ["--yes"],  # they ask at a terminal whether they may
    ("dlq", "resend"): ["--yes"],
    ("selftest", "DIR"): ["--seconds", "1", "--mib", "64"],
}
"""What is added to commands."""
REPORTING: Final = ["dledger", "members"]
"""Its status says how the group is."""
BY_OTHER_TESTS: Final = {"secrets-readable"}
SILENT: Final = {"dledger-peers", "dledger-tables", "not-registered", "absent-table"}
"""What no command mends: files of other machines."""


def not_ready(name: str) -> list[Finding]:
    table = {f"{runtime_findings.NOT_READY}{name}": "reason"}
    return list(runtime_findings.findings_of("b", "ADDRESS", table, 0))


def others() -> dict[str, list[Finding]]:
    """Return, by code, findings that FAULTS has not, for the broker ADDRESS; the tests put a real address there."""
    cures = runtime_findings._CURES
    made: list[Finding] = [
        *[found for name in cures for found in not_ready(name)],
        findings.hung("broker b", "b", "127.0.0.1:1"),
        findings.name_server_down("127.0.0.1:1"),
        findings.slave_behind("b", 1, 2.0**30, "ADDRESS", "ADDRESS"),
        *findings.versions_differ({"V4_9_7": ["ADDRESS"], "V5_0_0": ["ADDRESS"]}),
        *findings.builds_differ({"A 1": ["ADDRESS"], "A 2": ["ADDRESS"]}),
        *runtime_findings.findings_of("b", "ADDRESS", {"pullThreadPoolQueueHeadWaitTimeMills": "900"}, 0),
    ]
    by_code: dict[str, list[Finding]] = {}
    for found in made:
        by_code.setdefault(found.code, []).append(found)
    return by_code


def codes_of_the_product() -> set[str]:
    """Return the code of each finding that the sources make; one that is put together counts by its known part."""
    found = set()
    for path in [path for source in SOURCES for path in source.rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                code = node.args[1]
                if isinstance(code, ast.Constant):
                    found.add(str(code.value))
                elif isinstance(code, ast.JoinedStr):
                    found.add("".join(str(part.value) for part in code.values if isinstance(part, ast.Constant)))
    return found


def test_every_finding_is_here_or_has_no_command() -> None:
    tried = {fault[1] for fault in FAULTS} | set(others()) | SILENT | BY_OTHER_TESTS
    missing = {code for code in codes_of_the_product() if not any(one.endswith(code) for one in tried)}
    assert missing <= {"-unknown"}, "add a finding to this file, so that its commands are tried"


def tried(command: str, home: Path) -> None:
    """Run one command as it is printed, with something real for the names in capitals."""
    program, *words = shlex.split(command)
    key = (*words, "", "")[:2]
    if program in OF_THE_SYSTEM:
        return
    (home / "scratch").mkdir(exist_ok=True)
    (home / "namesrv.conf").write_text("listenPort=9876\n")
    (home / "broker.conf").write_text(f"storePathRootDir={home}/store\nlistenPort=0\n")
    file = home / ("namesrv.conf" if program == "mqnamesrv" else "broker.conf")
    for name, value in {"FILE": str(file), "PID": str(os.getpid()), "DIR": str(home / "scratch")}.items():
        command = re.sub(rf"\b{name}\b", value, command)
        words = [value if word == name else word for word in words]
    if program == "mqadmin":
        status = main([*words, *MORE.get(key, ())])
        assert status == 0 or (status == 2 and words[:2] == REPORTING), command
    elif program in ("mqbroker", "mqnamesrv"):  # started only as far as its configuration
        words += [] if "--check" in words or program == "mqnamesrv" else ["--check"]
        words += ["-p"] if program == "mqnamesrv" else []
        module = "triomq.broker" if program == "mqbroker" else "triomq.namesrv"
        environment = {**os.environ, "ROCKETMQ_HOME": str(home)}
        subprocess.run([sys.executable, "-m", module, *words], env=environment, check=True, timeout=60)
    else:
        subprocess.run(["/bin/sh", "-c", command], check=True, stdout=subprocess.DEVNULL, timeout=60)


def commands_of(mend: str) -> list[str]:
    """Return the commands of a cure. Nobody could say where one outside of backticks ends."""
    outside = IN_BACKTICKS.sub("", mend)
    assert not re.search(r"\bmq(admin|broker|namesrv) ", outside), mend
    return IN_BACKTICKS.findall(mend)


@pytest.fixture(scope="module")
def real() -> Iterator[LocalCluster]:
    """A cluster with the names of `Patient`: the cluster C and the broker b."""
    settings = {**SETTINGS, "brokerName": "b", "brokerClusterName": "C"}
    with LocalCluster(cluster_name="C", settings=settings) as cluster:
        yield cluster


def address_in(cluster: LocalCluster) -> str:
    [address] = cluster.brokers.values()
    return address


@pytest.fixture
def at_real(
    real: LocalCluster, monkeypatch: pytest.MonkeyPatch, capsys: Capture, tmp_path: Path
) -> Iterator[LocalCluster]:
    """The topic T, the group G with a member and a dead letter are there; some commands take them away."""
    monkeypatch.setenv("NAMESRV_ADDR", real.name_server)
    monkeypatch.chdir(tmp_path)  # consumerStatus writes files
    for words in (
        *(["updateTopic", "-c", "C", "-t", topic, "-r", "2", "-w", "2"] for topic in ("T", "%DLQ%G", "%RETRY%G")),
        ["updateSubGroup", "-c", "C", "-g", "G"],
        ["send", "%DLQ%G", "letter"],
        ["send", "T", "hello"],
    ):
        assert main(words) == 0
    with PushConsumer("G", name_server=real.name_server) as consumer:
        consumer.subscribe("T")
        deadline = time.monotonic() + 30
        while main(["consumerConnection", "-g", "G"]) != 0 and time.monotonic() < deadline:
            pass
        capsys.readouterr()
        yield real


@pytest.mark.parametrize(("make", "code"), [fault[:2] for fault in FAULTS], ids=[fault[0].__name__ for fault in FAULTS])
def test_each_command_of_a_cure_works_as_printed(
    make: Callable[[Patient], None],
    code: str,
    patient: Patient,
    at_real: LocalCluster,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make(patient)
    main(["doctor", "-n", patient.address, "--output", "json"])
    _, begin, text = capsys.readouterr().out.rpartition("\n[")
    found = next(item for item in check("doctor", f"{begin}{text}".strip() or text) if item["code"] == code)
    is_of_a_group = code.startswith("dledger")
    if is_of_a_group:
        monkeypatch.setenv("NAMESRV_ADDR", patient.address)
    for command in commands_of(found["mend"]):
        tried(command if is_of_a_group else command.replace(patient.address, address_in(at_real)), tmp_path)


@pytest.mark.parametrize("code", others())
def test_each_command_of_other_cures_works_as_printed(code: str, at_real: LocalCluster, tmp_path: Path) -> None:
    for found in others()[code]:
        for command in commands_of(found.mend):
            tried(command.replace("ADDRESS", address_in(at_real)), tmp_path)


def reset_beyond(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    main(["updateSubGroup", "-c", "C", "-g", "Left"])
    set_offset("Left", "T", 5000, monkeypatch, capsys)


def leave_a_backlog(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    main(["updateSubGroup", "-c", "C", "-g", "Left"])
    set_offset("Left", "T", 0, monkeypatch, capsys)


def command(*words: str) -> Callable[[pytest.MonkeyPatch, Capture], None]:
    def run(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
        assert main(list(words)) == 0

    return run


REAL_FAULTS: Final = {
    "offset-beyond-end": reset_beyond,
    "nobody-reads": leave_a_backlog,
    "dead-letters": command("send", "%DLQ%G", "another"),
    "unread-queues": command("updateTopic", "-c", "C", "-t", "T", "-r", "2", "-w", "4"),
    "wiped": command("wipeWritePerm", "-b", "b"),
    "permission": command("updateTopicPerm", "-c", "C", "-t", "T", "-p", "4"),
}


@pytest.mark.parametrize("code", REAL_FAULTS)
def test_the_commands_of_a_cure_mend_the_fault(
    code: str, at_real: LocalCluster, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> list[dict[str, Any]]:
        capsys.readouterr()
        main(["doctor", "--output", "json"])
        text = re.sub(r"(?m)^\d{4}-.*\n", "", capsys.readouterr().out)  # the cluster's log
        return [item for item in check("doctor", text) if item["code"] == code]

    REAL_FAULTS[code](monkeypatch, capsys)
    items = found()
    assert items
    for item in items:
        for text in commands_of(item["mend"]):
            tried(text, tmp_path)
    assert found() == []
