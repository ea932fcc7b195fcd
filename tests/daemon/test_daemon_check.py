"""`--check` finds what would prevent a daemon from starting, without starting it or writing anything."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from free_ports import free_port

from triomq.daemon.directory_check import directory_problem
from triomq.store.config import StoreSettings
from triomq.store.disk.directory_lock import DirectoryLock
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout

SOURCE = Path(__file__).resolve().parents[2] / "src"
GROUP = "enableDLegerCommitLog=true\ndLegerGroup=G\ndLegerSelfId=n0\ndLegerPeers=n0-127.0.0.1:40911\n"


def check(home: Path, program: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    path = home / "a.conf"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, "-m", f"triomq.{program}", "-c", str(path), "--check", *options],
        env={"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("program", ["broker", "namesrv"])
def test_a_valid_configuration(tmp_path: Path, program: str) -> None:
    done = check(tmp_path, program, f"namesrvAddr=127.0.0.1:9876\nlistenPort={free_port()}\n")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mq{program}: the configuration is valid\n", "")
    assert [path.name for path in tmp_path.iterdir()] == ["a.conf"], "no store, log or pid file"


def test_warnings_are_shown_and_do_not_fail(tmp_path: Path) -> None:
    done = check(tmp_path, "broker", f"deleteWhen=25\nbrokerNam=x\nlistenPort={free_port()}\n", "stray")
    assert done.returncode == 0
    for text in ("there is no hour 25", "did_you_mean=brokerName", "no NameServer is configured", "words=stray"):
        assert text in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.conf"]


@pytest.mark.parametrize(
    ("program", "text", "reason"),
    [
        ("broker", "listenPort=x\n", "listenPort: 'x' is not a whole number"),
        ("broker", "namesrvAddr=a:1,b:1\n", "separated by ';'"),
        ("broker", "storePathRootDir={home}/a.conf/store\n", "storePathRootDir: {home}/a.conf is not a directory"),
        ("broker", "storePathCommitLog={home}/log,{home}/a.conf\n", "storePathCommitLog: {home}/a.conf is not a d"),
        ("broker", "tls.test.mode.enable=false\n", "tls.server.certPath"),
        ("broker", f"{GROUP}listenPort=40911\n", "dLegerPeers: n0 has port 40911, which is listenPort"),
        ("broker", f"{GROUP}listenPort=40913\n", "dLegerPeers: n0 has port 40911, which is the fast port"),
        ("namesrv", "kvConfigPath={home}/a.conf/kv.json\n", "kvConfigPath: {home}/a.conf is not a directory"),
        ("namesrv", "tls.test.mode.enable=false\n", "tls.server.certPath"),
        ("namesrv", "namesrvAddr=a:1,b:1\n", "separated by ';'"),
        ("broker", "dashboardPort=1\ndashboardAddress=\n", "dashboardAddress=(all) is open to other machines"),
        ("namesrv", "dashboardPort=1\ndashboardAddress=\n", "dashboardAddress=(all) is open to other machines"),
        (
            "broker",
            "listenPort=15911\nmetricsPort=15909\n",
            "metricsPort: port 15909 is that of listenPort=15911 (its f",
        ),
        ("namesrv", "dashboardPort=9876\n", "dashboardPort: port 9876 is that of listenPort: choose another"),
        ("broker", "brokerIP1=no.such.host.invalid\n", "brokerIP1=no.such.host.invalid is not an address"),
        ("broker", "extensions=nosuch\n", "extensions: 'nosuch' is not installed"),
        ("namesrv", "kvConfigPath={home}/a.conf\n", "a.conf cannot be read"),
    ],
)
def test_what_would_keep_it_from_serving(tmp_path: Path, program: str, text: str, reason: str) -> None:
    done = check(tmp_path, program, text.format(home=tmp_path))
    assert (done.returncode, done.stdout) == (253, "")
    assert reason.format(home=tmp_path) in done.stderr


def test_access_control_files_are_read_and_not_created(tmp_path: Path) -> None:
    text = f"namesrvAddr=a:1\naclEnable=true\nrocketmqHome={tmp_path}\nlistenPort={free_port()}\n"
    done = check(tmp_path, "broker", text)
    assert (done.returncode, [path.name for path in tmp_path.iterdir()]) == (0, ["a.conf"])
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/plain_acl.yml").write_text("accounts:\n- accessKey: short\n  secretKey: 12345678\n")
    done = check(tmp_path, "broker", text)
    assert (done.returncode, done.stdout) == (253, "")
    assert "longer than 6 characters" in done.stderr
    assert "12345678" not in done.stderr


def test_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert directory_problem(tmp_path / "not" / "there" / "yet") is None
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert directory_problem(tmp_path / "dangling" / "store") == f"{tmp_path}/dangling is not a directory"
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root ignores permissions
    assert directory_problem(tmp_path / "x") == f"{tmp_path} cannot be written by this account"


@pytest.mark.parametrize("program", ["broker", "namesrv"])
@pytest.mark.parametrize("key", ["listenPort", "metricsPort", "dashboardPort"])
def test_a_port_in_use(tmp_path: Path, program: str, key: str) -> None:
    port = free_port()
    settings = {"listenPort": free_port(), key: port}
    text = "".join(f"{name}={value}\n" for name, value in settings.items())
    assert check(tmp_path, program, text).returncode == 0
    with socket.create_server(("127.0.0.1", port)):
        done = check(tmp_path, program, text)
    assert (done.returncode, done.stdout) == (253, "")
    assert f"mq{program}: {key}: cannot listen on " in done.stderr
    assert f":{port}: Address already in use; stop what uses it, or change the setting\n" in done.stderr


def test_a_grpc_port_in_use_is_told_if_the_configuration_says_it(tmp_path: Path) -> None:
    text = f"listenPort={free_port()}\n"
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        done = check(tmp_path, "broker", f"{text}grpcServerPort={port}\n")
    assert done.returncode == 253
    assert f"grpcServerPort: cannot listen on *:{port}: Address already in use" in done.stderr


@pytest.mark.parametrize("offset", [-2, 1])
def test_a_port_in_use_beside_that_of_the_broker(tmp_path: Path, offset: int) -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", port + offset)):
        done = check(tmp_path, "broker", f"listenPort={port}\n")
    assert done.returncode == 253
    assert f"listenPort={port} (its {'HA' if offset == 1 else 'fast'} port): cannot listen on *:{port + offset}" in (
        done.stderr
    )


@pytest.mark.parametrize("program", ["broker", "namesrv"])
@pytest.mark.parametrize("kind", ["metrics", "dashboard"])
def test_an_address_that_this_machine_does_not_have(tmp_path: Path, program: str, kind: str) -> None:
    text = f"listenPort={free_port()}\n{kind}Port={free_port()}\n{kind}Address=no.such.host.invalid\n"
    done = check(tmp_path, program, f"{text}dashboardInsecure=true\n")
    assert done.returncode == 253
    assert f"{kind}Port: cannot listen on no.such.host.invalid:" in done.stderr


def test_a_store_in_use(tmp_path: Path) -> None:
    root = tmp_path / "store"
    text = f"listenPort={free_port()}\nstorePathRootDir={root}\n"
    lock = DirectoryLock(Files(), Layout(StoreSettings(store_path_root_dir=str(root))))
    lock.take()
    done = check(tmp_path, "broker", text)
    assert done.returncode == 253
    assert f"storePathRootDir: {root} is in use by another process" in done.stderr
    lock.release()
    assert check(tmp_path, "broker", text).returncode == 0
