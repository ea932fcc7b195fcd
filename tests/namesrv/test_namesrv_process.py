"""mqnamesrv as a process: boot line, signals, exit codes, output."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_logs import wait_for_log

PROJECT = Path(__file__).resolve().parents[2]
BOOT_LINE = "The Name Server boot success. serializeType=JSON\n"


def command(home: Path, *arguments: str, **variables: str) -> tuple[list[str], dict[str, str]]:
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(PROJECT / "src"), **variables}
    return [sys.executable, "-m", "triomq.namesrv", *arguments], environment


def start(home: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    words, environment = command(home, *arguments, **variables)
    return subprocess.Popen(words, env=environment, cwd=home, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    words, environment = command(home, *arguments, **variables)
    return subprocess.run(words, env=environment, cwd=home, capture_output=True, text=True, timeout=60, check=False)


def config(home: Path, text: str) -> str:
    path = home / "namesrv.conf"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_boot_line_and_stop(tmp_path: Path, number: signal.Signals) -> None:
    process = start(tmp_path, "-c", config(tmp_path, "listenPort=0\n"))
    assert process.stdout is not None
    assert process.stdout.readline() == BOOT_LINE
    (pid_file,) = (tmp_path / ".triomq" / "run").iterdir()
    assert pid_file.name == f"mqnamesrv.{process.pid}.pid"
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    assert not pid_file.exists()
    log = (tmp_path / "logs" / "rocketmqlogs" / "namesrv.log").read_text()
    assert "NameServer started" in log
    assert f"stop requested signal={number.name}" in log


def test_a_hangup_reopens_the_log_and_takes_the_edited_file(tmp_path: Path) -> None:
    path = config(tmp_path, "listenPort=0\nmaxTopics=10\n")
    process = start(tmp_path, "-c", path)
    assert process.stdout is not None
    assert process.stdout.readline() == BOOT_LINE
    log = tmp_path / "logs" / "rocketmqlogs" / "namesrv.log"
    wait_for_log(log)
    log.rename(log.with_suffix(".1"))
    config(tmp_path, "listenPort=9\nmaxTopics=11\n")
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    warning = process.stderr.readline()
    assert "keys not applied; they change at the next start only" in warning
    assert warning.endswith("keys=listenPort\n")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    assert "configuration reloaded" in log.read_text()
    assert "changed=maxTopics" in log.read_text()


def test_a_retired_key_is_accepted_with_one_warning_at_the_start(tmp_path: Path) -> None:
    process = start(tmp_path, "-c", config(tmp_path, "listenPort=0\nmaxRoutes=many\n"))
    assert process.stdout is not None
    assert process.stdout.readline() == BOOT_LINE
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    (warning,) = err.splitlines()
    assert "key=maxRoutes" in warning
    assert "bounded by half of maxRequestBytes" in warning


def test_serialize_type_of_the_boot_line(tmp_path: Path) -> None:
    process = start(tmp_path, "-c", config(tmp_path, "listenPort=0\n"), JAVA_OPT="-Drocketmq.serialize.type=ROCKETMQ")
    assert process.stdout is not None
    assert process.stdout.readline() == BOOT_LINE.replace("JSON", "ROCKETMQ")
    process.terminate()
    process.communicate(timeout=60)


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        done = run(tmp_path, "-c", config(tmp_path, f"listenPort={port}\nbindAddress=127.0.0.1\n"))
    assert (done.returncode, done.stdout) == (255, "")
    assert done.stderr == (
        f"mqnamesrv: cannot listen on 127.0.0.1:{port}: Address already in use; "
        "stop the process that uses it, or set listenPort\n"
    )


def test_a_bad_value_names_file_key_and_reason(tmp_path: Path) -> None:
    path = config(tmp_path, "listenPort=many\n")
    done = run(tmp_path, "-c", path)
    assert (done.returncode, done.stdout) == (253, "")
    assert done.stderr == f"mqnamesrv: {path}: listenPort: 'many' is not a whole number\n"


def test_a_missing_file(tmp_path: Path) -> None:
    done = run(tmp_path, "-c", "/nowhere/namesrv.conf")
    assert done.returncode == 253
    assert done.stderr == (
        "mqnamesrv: cannot read the configuration file /nowhere/namesrv.conf: No such file or directory\n"
    )


def test_an_unknown_key_warns(tmp_path: Path) -> None:
    process = start(tmp_path, "-c", config(tmp_path, "listenPort=0\nlistenport=1\n"))
    assert process.stdout is not None
    assert process.stdout.readline() == BOOT_LINE
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert "unknown configuration key ignored" in err
    assert "key=listenport did_you_mean=listenPort" in err


def test_print_all_settings(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "-p",
        "-c",
        config(tmp_path, "listenPort=1234\nclusterTest=true\n"),
        "-n",
        "1.2.3.4:9876",
        ROCKETMQ_HOME="/opt/rmq",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert {
        "listenPort=1234",
        "clusterTest=true",
        "rocketmqHome=/opt/rmq",
        f"kvConfigPath={tmp_path}/namesrv/kvConfig.json",
        f"configStorePath={tmp_path}/namesrv.conf",
        "namesrvAddr=1.2.3.4:9876",
        "serverWorkerThreads=8",
    } <= set(done.stdout.splitlines())


def test_help_and_wrong_options(tmp_path: Path) -> None:
    done = run(tmp_path, "-h")
    assert done.returncode == 0
    assert done.stdout.startswith(
        "usage: mqnamesrv [-c <arg>] [-h] [-n <arg>] [-p] [--explain] [--own] [--check] [--version]"
    )
    assert run(tmp_path, "--nosuch").returncode == 1


def test_a_home_that_cannot_be_written_is_no_reason_not_to_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("not a directory")
    words, environment = command(home, "-c", config(tmp_path, "listenPort=0\n"))
    process = subprocess.Popen(
        words, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == BOOT_LINE
    process.terminate()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "pid file not written" in err
