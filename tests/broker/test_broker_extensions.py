"""Third-party code in the broker: found as entry points, called at the right points, never chosen over the network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from broker_whole import WholeBroker, whole_broker

import triomq.broker.controller
from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.extensions import Extensions, StorePlugin
from triomq.broker.hooks import ConsumeContext, SendContext
from triomq.daemon.errors import StartError
from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused
from triomq.protocol.settings import declarations
from triomq.store.results import MessageToStore, PutResult

PROJECT = Path(__file__).resolve().parents[2]
EXAMPLES = PROJECT / "examples" / "extending"
EXPECTED = {
    "request_hook.py": ["3 sends were answered with SUCCESS"],
    "send_hook.py": [
        "messages of Orders need a key",
        "stored: order-17 in queue",
        "handed out: order-17 to billing",
        "consumed: order-17",
    ],
    "message_store.py": ["stored at 0", "refused"],
    "transactions.py": ["committed: 1, looked at: order-2"],
    "access_validator.py": ["Public: SEND_OK", "Team_Plans is not for 127.0.0.1"],
}

MODULE = """
calls = []
class Hook:
    def __init__(self, configuration):
        self.name = configuration.broker.broker_name
    def before_request(self, remote, request):
        calls.append(request.code)
    def after_response(self, remote, request, response):
        print("answered", self.name, request.code, response.code, flush=True)
def broken(configuration):
    raise ValueError("no such table\\nand more")
class Store:
    def __init__(self, next_store, configuration):
        self.next = next_store
        print("store made", flush=True)
    def __getattr__(self, name):
        return getattr(self.next, name)
"""
ENTRY_POINTS = """[triomq.request_hooks]
counting = trioext_for_tests:Hook
broken = trioext_for_tests:broken
absent = trioext_for_tests:Nothing
missing = no_such_module_anywhere:Hook

[triomq.transaction_stores]
one = trioext_for_tests:Store
two = trioext_for_tests:Store

[triomq.message_stores]
inner = trioext_for_tests:Store
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a distribution with entry points on the path, as pip would."""
    site = tmp_path / "site"
    info = site / "trioext_for_tests-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "trioext_for_tests.py").write_text(MODULE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: trioext-for-tests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(site))
    return site


def settings(**values: str) -> Configuration:
    return Configuration.from_values(values)


def test_every_example_is_checked() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)
    text = (PROJECT / "docs" / "extending.md").read_text()
    for name in EXPECTED:
        assert f"examples/extending/{name}" in text


@pytest.mark.parametrize("name", list(EXPECTED))
def test_an_example(name: str) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=PROJECT,
        env=dict(os.environ, PYTHONPATH=str(PROJECT / "src")),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    for line in EXPECTED[name]:
        assert line in done.stdout


def test_nothing_is_loaded_that_is_not_named(installed: Path) -> None:
    assert Extensions.load(settings()) == Extensions()
    assert "trioext_for_tests" not in sys.modules


def test_what_is_named_is_made_with_the_configuration(installed: Path) -> None:
    loaded = Extensions.load(settings(extensions="counting, one", messageStorePlugIn="inner", brokerName="b-7"))
    [hook] = loaded.request_hooks
    assert hook.name == "b-7"  # type: ignore[attr-defined]
    assert loaded.transaction_store is not None
    assert len(loaded.message_stores) == 1


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"extensions": "nobody"}, r"extensions: 'nobody' is not installed; .*counting"),
        ({"extensions": "broken"}, r"'broken' .* cannot be created: ValueError: no such table$"),
        ({"extensions": "absent"}, r"'absent' .* cannot be loaded: AttributeError"),
        ({"extensions": "missing"}, r"'missing' .* cannot be loaded: ModuleNotFoundError"),
        ({"extensions": "one,two"}, r"more than one triomq.transaction_stores is wanted"),
        ({"messageStorePlugIn": "org.example.Store"}, r"'org.example.Store' is not installed .*inner.*Java classes"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(installed: Path, keys: dict[str, str], reason: str) -> None:
    with pytest.raises(StartError, match=reason) as caught:
        Extensions.load(settings(**keys))
    assert "\n" not in str(caught.value)


def test_keys_that_name_code_cannot_be_changed_at_run_time() -> None:
    changeable = {declared.key for declared in declarations(BrokerSettings) if declared.changeable}
    assert changeable.isdisjoint({"extensions", "messageStorePlugIn"})


def run_broker(folder: Path, site: Path, **keys: str) -> subprocess.CompletedProcess[str]:
    """Run a real mqbroker until it reports that it runs, or until it ends."""
    values = {"listenPort": "0", "brokerIP1": "127.0.0.1", "namesrvAddr": "", "mappedFileSizeCommitLog": "1048576"}
    values |= {"storePathRootDir": str(folder / "store"), **keys}
    (folder / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    program = (
        "import os, signal, sys, threading\n"
        "from triomq.broker import __main__ as program\n"
        "real = program.BrokerController.boot_line\n"
        "def boot_line(self):\n"
        "    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "    return real(self)\n"
        "program.BrokerController.boot_line = boot_line\n"
        "sys.exit(program.main(sys.argv[1:]))\n"
    )
    environment = dict(os.environ, PYTHONPATH=f"{PROJECT}{os.pathsep}{site}", HOME=str(folder), TRIOMQ_LOG_DIR="-")
    return subprocess.run(
        [sys.executable, "-c", program, "-c", str(folder / "broker.conf")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_mqbroker_loads_them(tmp_path: Path, installed: Path) -> None:
    done = run_broker(tmp_path, installed, messageStorePlugIn="inner", extensions="counting")
    assert done.returncode == 0, done.stderr
    assert "store made" in done.stdout
    assert "boot success" in done.stdout


def test_mqbroker_says_in_one_line_what_it_cannot_load(tmp_path: Path, installed: Path) -> None:
    done = run_broker(tmp_path, installed, extensions="broken")
    assert done.returncode == 253
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "broken" in line]
    assert any("cannot be created: ValueError: no such table" in line for line in lines)
    assert "Traceback" not in done.stdout + done.stderr


# -- calls -------------------------------------------------------------------------------------------------------------


class Recorder:
    """All kinds of hooks in one; `refuse` is a topic whose sends it refuses, `fail` one whose hooks fail."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def before_request(self, remote: HostPort, request: RemotingCommand) -> None:
        self.seen.append(("request", request.code))

    def after_response(self, remote: HostPort, request: RemotingCommand, response: RemotingCommand) -> None:
        self.seen.append(("response", request.code, response.code))

    def before_send(self, context: SendContext) -> None:
        context.notes["mine"] = len(self.seen)
        if context.topic == "Refused":
            raise RequestRefused(16, "not here")
        if context.topic == "Failing":
            raise KeyError("a bug")

    def after_send(self, context: SendContext) -> None:
        self.seen.append(("sent", context.topic, context.code, context.queue_offset, "mine" in context.notes))

    def before_consume(self, context: ConsumeContext) -> None:
        self.seen.append(("got", context.consumer_group, [message.body for message in context.messages()]))

    def after_consume(self, context: ConsumeContext) -> None:
        self.seen.append(("back", context.consumer_group, context.topic, context.message_id))


@pytest.fixture
def with_extensions(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start every broker of the test with these extensions."""

    def use(extensions: Extensions) -> None:
        monkeypatch.setattr(triomq.broker.controller.Extensions, "load", lambda configuration: extensions)

    return use


async def send(running: WholeBroker, topic: str, body: bytes = b"x") -> RemotingCommand:
    return await running.send(topic, body)


async def test_hooks_see_requests_sends_and_messages(tmp_path: Path, with_extensions: Any) -> None:
    recorder = Recorder()
    hooks: Any = {"request_hooks": [recorder], "send_hooks": [recorder], "consume_hooks": [recorder]}
    with_extensions(Extensions(**hooks))
    async with whole_broker(tmp_path) as running:
        for topic in ("T", "Refused", "Failing"):
            await running.create_topic(topic)
        recorder.seen.clear()
        assert (await send(running, "T", b"one")).code == 0
        assert recorder.seen == [("request", 10), ("sent", "T", 0, 0, True), ("response", 10, 0)]
        recorder.seen.clear()
        refused = await send(running, "Refused")
        assert (refused.code, refused.remark) == (16, "not here")
        assert recorder.seen == [("request", 10), ("response", 10, 16)], "before_send said no: there is no after"
        assert (await send(running, "Failing")).code == 0
        recorder.seen.clear()
        assert (await running.pull("T")).code == 0
        back = {"offset": 0, "group": "G", "delayLevel": 3, "originMsgId": "ID", "originTopic": "T"}
        assert (await running.ask(36, back)).code == 0
    assert recorder.seen == [
        ("request", 11),
        ("got", "G", [b"one"]),
        ("response", 11, 0),
        ("request", 36),
        ("back", "G", "T", "ID"),
        ("response", 36, 0),
    ]


async def test_stores_stand_in_front_of_each_other(tmp_path: Path, with_extensions: Any) -> None:
    order: list[str] = []

    class Named(StorePlugin):
        def __init__(self, next_store: Any, name: str) -> None:
            super().__init__(next_store)
            self.name = name

        def append(self, message: MessageToStore) -> PutResult:
            order.append(self.name)
            result: PutResult = self.next.append(message)
            return result

    stores = [lambda store, _: Named(store, "outer"), lambda store, _: Named(store, "inner")]
    with_extensions(Extensions(message_stores=stores))
    async with whole_broker(tmp_path) as running:
        await running.create_topic("T")
        assert (await send(running, "T")).code == 0
    assert order == ["outer", "inner"]
