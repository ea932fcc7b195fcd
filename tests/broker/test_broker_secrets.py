"""No log holds a secret. A broker with access control, TLS and a third-party hook meets every failure of these; the
test searches its output. Every secret here contains the word "hush".
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from free_ports import free_port

from triomq.protocol import signature
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.frame import encode_frame
from triomq.remoting.client import open_client

pytestmark = pytest.mark.slow

PROJECT = Path(__file__).resolve().parents[2]
WORD = "hush"
ADMIN = ("administrator", "hushAdministrator")
ACCOUNTS = f"""accounts:
- accessKey: {ADMIN[0]}
  secretKey: {ADMIN[1]}
  admin: true
"""
HOOK = """
class Hook:
    def __init__(self, configuration):
        pass
    def before_request(self, remote, request):
        pass
    def after_response(self, remote, request, response):
        raise RuntimeError("this hook always fails")
"""


def make_pair(key: Path, certificate: Path, password: str) -> None:
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", "/CN=x"]
    words += ["-passout", f"pass:{password}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True, timeout=30)


def write_secret(path: Path, secret: str) -> str:
    path.touch(mode=0o600)
    path.write_text(f"{secret}\n")
    return str(path)


class GuardedBroker:
    """A broker process at the most verbose log level. Its secrets are in its configuration, or, with `from_files`, in
    files and variables of their own."""

    def __init__(self, home: Path, from_files: bool) -> None:
        self.home = home
        self.accounts = ACCOUNTS
        self.port = free_port()
        self.acl_file = home / "conf" / "plain_acl.yml"
        self.acl_file.parent.mkdir(parents=True)
        passwords = "tls.server.keyPassword=hushServerKey\ntls.client.keyPassword=hushClientKey\n"
        variables = {}
        if from_files:
            write_secret(home / "conf" / "admin.secret", ADMIN[1])
            self.accounts = ACCOUNTS.replace(f"secretKey: {ADMIN[1]}", "secretKeyFile: admin.secret")
            passwords = f"tls.server.keyPasswordFile={write_secret(home / 'server.password', 'hushServerKey')}\n"
            variables["TRIOMQ_TLS_CLIENT_KEYPASSWORD"] = "hushClientKey"
        self.acl_file.write_text(self.accounts)
        self.key, self.certificate = home / "server.key", home / "server.pem"
        make_pair(self.key, self.certificate, "hushServerKey")
        self.conf = home / "broker.conf"
        self.conf.write_text(
            f"listenPort={self.port}\nbrokerIP1=127.0.0.1\nbrokerName=broker-a\nrocketmqHome={home}\naclEnable=true\n"
            f"storePathRootDir={home}/store\nmappedFileSizeCommitLog=1048576\nextensions=failing\n"
            f"tls.test.mode.enable=false\n{passwords}"
            f"tls.server.keyPath={self.key}\ntls.server.certPath={self.certificate}\n"
        )
        information = home / "site" / "hooks_for_tests-1.0.dist-info"
        information.mkdir(parents=True)
        (home / "site" / "hooks_for_tests.py").write_text(HOOK)
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: hooks-for-tests\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text("[triomq.request_hooks]\nfailing = hooks_for_tests:Hook\n")
        self.environment = dict(
            os.environ,
            **variables,
            PYTHONPATH=os.pathsep.join([str(PROJECT), str(home / "site")]),
            HOME=str(home),
            TRIOMQ_LOG_LEVEL="debug",
            TRIOMQ_LOG_DIR=str(home / "logs"),
        )

    def words(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "triomq.broker", "-c", str(self.conf), *options]

    def logged(self) -> str:
        """Return everything that it has written for people."""
        return "".join(path.read_text() for path in [*self.home.glob("logs/**/*.log"), self.home / "output"])

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + 30
        while text not in self.logged():
            assert time.monotonic() < deadline, f"not logged: {text}\n{self.logged()[-3000:]}"
            threading.Event().wait(0.05)


@pytest.fixture(params=[False, True], ids=["in the configuration", "in files"])
def broker(tmp_path: Path, request: pytest.FixtureRequest) -> GuardedBroker:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    return GuardedBroker(tmp_path, request.param)


@pytest.fixture
def guarded(broker: GuardedBroker, tmp_path: Path) -> Iterator[GuardedBroker]:
    with (tmp_path / "output").open("wb") as output:
        process = subprocess.Popen(broker.words(), env=broker.environment, stdout=output, stderr=output)
    try:
        broker.wait_for("boot success")
        yield broker
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def signed(
    code: int, fields: dict[str, str] | None = None, body: bytes = b"", token: str | None = None
) -> RemotingCommand:
    return new_request(code, ext_fields=signature.sign_fields(fields or {}, body, *ADMIN, token), body=body)


def ask(broker: GuardedBroker, *requests: RemotingCommand) -> list[RemotingCommand]:
    async def main() -> list[RemotingCommand]:
        async with open_client() as client:
            return [await client.invoke(f"127.0.0.1:{broker.port}", request, 30) for request in requests]

    return trio.run(main)


def test_no_secret_is_logged_or_listed(guarded: GuardedBroker) -> None:
    code = RequestCode.GET_BROKER_RUNTIME_INFO
    bad_signature = {signature.ACCESS_KEY: ADMIN[0], signature.SIGNATURE: "hushSignature"}
    nobody = {signature.ACCESS_KEY: "nobodyAtAll", "SecretKey": "hushNobody", signature.SIGNATURE: "hush"}
    account = {"accessKey": "newAccount", "topicPerms": "T=PUB"}
    good = signed(code, token="hushToken")
    answers = ask(
        guarded,
        good,
        new_request(code, ext_fields=bad_signature),
        new_request(code, ext_fields=nobody),
        signed(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {**account, "secretKey": "hush"}),
        signed(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, {**account, "secretKey": "hushNewAccount"}),
        signed(RequestCode.UPDATE_BROKER_CONFIG, body=b"tls.server.keyPassword=hush\nmySecret=hush\ntraceOn=false"),
        signed(RequestCode.GET_BROKER_CONFIG),
    )
    assert [answer.code for answer in answers] == [0, 1, 1, 209, 0, 0, 0]
    assert b"traceOn=false" in answers[-1].body
    assert WORD.encode() not in answers[-1].body
    for text in (
        "access refused",
        "account not written",
        "ACL entry written",
        "hook always fails",
        "configuration changed",
    ):
        guarded.wait_for(text)
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=30) as peer:
        frame = encode_frame(new_request(code, ext_fields=bad_signature))
        peer.sendall(frame.replace(b'"hushSignature"', b'"hushSignature '))
        assert peer.recv(100) == b""
    guarded.wait_for("connection closed for a malformed frame")
    guarded.acl_file.write_text(f'{guarded.accounts}- accessKey: another\n  secretKey: "hushAnother\n')
    guarded.wait_for("ACL file rejected")
    # a handshake creates the context; new files make it create another
    with socket.create_connection(("127.0.0.1", guarded.port), timeout=30) as peer:
        peer.sendall(b"\x16\x03\x01 hush, this is no handshake")
        guarded.wait_for("TLS handshake failed")
    make_pair(guarded.key, guarded.certificate, "hushUnknown")
    guarded.wait_for("TLS context not made")
    told = guarded.logged()
    assert WORD not in told, told[told.index(WORD) - 300 :][:400]
    assert (good.ext_fields or {})[signature.SIGNATURE] not in told


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("-p", "brokerName=broker-a"),
        ("-m", "brokerName=broker-a"),
        ("--explain", "brokerName=broker-a"),
        ("--check", "the configuration is valid"),
    ],
)
def test_no_secret_is_printed(broker: GuardedBroker, option: str, text: str) -> None:
    done = subprocess.run(broker.words(option), env=broker.environment, capture_output=True, text=True, timeout=60)
    assert text in done.stdout + done.stderr
    assert WORD not in done.stdout + done.stderr
