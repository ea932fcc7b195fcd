"""`mqadmin mcp` with the client of the package mcp: in memory, and as a process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cluster import FakeCluster, fake_cluster
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from triomq.admin.__main__ import main
from triomq.admin.assistant.calls import Desk
from triomq.admin.assistant.offers import CHANGING, READING
from triomq.admin.assistant.server import server_of
from triomq.admin.session import Session

ROOT = Path(__file__).resolve().parents[2]
Capture = pytest.CaptureFixture[str]


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as found:
        yield found


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_client_sees_tools_with_schemas_and_gets_structured_content(mode: str, cluster: FakeCluster) -> None:
    desk = Desk(Session(cluster.address), allow_changes=True)
    async with Client(server_of(desk), mode=mode) as client:
        assert cluster.address in (client.instructions or "")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {name.replace(" ", "_") for name in READING + CHANGING}
        reset = tools["offsets_reset"].annotations
        assert reset is not None
        assert (reset.read_only_hint, reset.destructive_hint, reset.open_world_hint) == (False, True, False)
        lag = tools["lag"].annotations
        assert lag is not None
        assert lag.read_only_hint is True
        # The client compares what it gets with the output schema.
        result = await client.call_tool("lag", {})
        assert (result.is_error, result.structured_content["items"][0]["group"]) == (False, "G")
        result = await client.call_tool("updateTopic", {"topic": "N", "clusterName": "C"})
        assert result.structured_content["done"] is False
        result = await client.call_tool("topicRoute", {})
        assert result.is_error
        assert "topic is missing" in result.content[0].text


@pytest.mark.parametrize("changes", [False, True])
async def test_the_command_serves_a_client_as_a_process(changes: bool, cluster: FakeCluster) -> None:
    words = ["mcp", "--allow-changes", "-n", cluster.address] if changes else ["-n", cluster.address, "mcp"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MQADMIN_OUTPUT": "json"}
    program = StdioServerParameters(command=sys.executable, args=["-m", "triomq.admin", *words], env=environment)
    async with Client(stdio_client(program)) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert ("updateTopic" in names) == changes
        result = await client.call_tool("topicList", {})
        assert {"topic": "T"} in result.structured_content["items"]
        if changes:
            arguments = {"topic": "N", "clusterName": "C"}
            plan = (await client.call_tool("updateTopic", arguments)).structured_content
            assert 17 not in cluster.codes
            done = await client.call_tool("updateTopic", {**arguments, "token": plan["token"]})
            assert done.structured_content["done"] is True
            assert 17 in cluster.codes


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--seconds", "0"], "--seconds must be between 1 and 600"),
        (["--bytes", "10"], "--bytes must be between 1024 and"),
        (["--watch"], "--watch does not fit it"),
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str], text: str, capsys: Capture) -> None:
    assert main(["mcp", "-n", "127.0.0.1:1", *words]) == 2
    assert text in capsys.readouterr().err


def test_a_dry_run_serves_nobody(capsys: Capture) -> None:
    assert main(["mcp", "-n", "127.0.0.1:1", "--dry-run"]) == 0
    assert "answer an assistant" in capsys.readouterr().out


def test_without_name_servers_it_does_not_start(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    assert main(["mcp"]) == 2
    assert "no NameServer is known" in capsys.readouterr().err


def test_without_the_package_the_command_says_what_to_install(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "triomq.admin.assistant.server")
    assert main(["mcp", "-n", "127.0.0.1:1"]) == 1
    error = capsys.readouterr().err
    assert "mcp needs the package mcp" in error
    assert "clone[mcp]" in error
