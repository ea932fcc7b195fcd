"""The verbs of mqadmin for quotas, against a whole broker: quota set, remove, list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import trio
from broker_whole import WholeBroker, whole_broker

from triomq.admin.__main__ import main

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "mqadmin-schemas"


def check(name: str, text: str) -> list[dict[str, Any]]:
    """Fail unless the output fits the schema file of a verb. Return its items."""
    schema = json.loads((SCHEMAS / f"{name.replace(' ', '-')}.json").read_text())
    items: list[dict[str, Any]] = json.loads(text)
    jsonschema.Draft202012Validator(schema).validate(items)
    return items


def open_broker(folder: Path, **settings: str) -> Any:
    return whole_broker(folder, configUpdateWithoutAcl="true", **settings)


class Commands:
    """Runs commands against a broker."""

    def __init__(self, broker: WholeBroker, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._capsys = capsys

    async def run(self, *words: str) -> tuple[int, str]:
        """Return the exit code, and what the command printed beside the broker's log."""
        self._capsys.readouterr()
        status = await trio.to_thread.run_sync(main, ["quota", *words, "--broker", self._broker.address])
        printed = self._capsys.readouterr()
        lines = [line for line in printed.out.splitlines() if not line[:4].isdigit()]
        return status, "\n".join(lines) + printed.err

    async def listed(self) -> list[tuple[str, str, str]]:
        status, text = await self.run("list", "--output", "json")
        assert status == 0, text
        return [(item["kind"], item["name"], item["quotas"]) for item in check("quota list", text)]


async def test_quotas_are_set_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_broker(tmp_path, quotaPerAccount="bytesIn=9") as broker:
        commands = Commands(broker, capsys)
        status, text = await commands.run("set", "group", "G", "messagesOut=5,bytesIn=1", "--output", "json")
        assert status == 0, text
        assert check("quota set", text)[0]["quotas"] == "messagesOut=5,bytesIn=1"
        assert (await commands.run("set", "address", "10.0.0.0/8", "connections=3"))[0] == 0
        assert await commands.listed() == [
            ("account", "*", "bytesIn=9"),
            ("address", "10.0.0.0/8", "connections=3"),
            ("group", "G", "bytesIn=1,messagesOut=5"),
        ]
        status, text = await commands.run("remove", "group", "G", "--output", "json")
        assert (status, check("quota remove", text)[0]["name"]) == (0, "G")
        assert [row[1] for row in await commands.listed()] == ["*", "10.0.0.0/8"]
        assert broker.controller.serving.quotas.overrides.text() == "address 10.0.0.0/8 connections=3"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["set", "user", "alice", "bytesIn=1"], "KIND is account, address or group, not 'user'"),
        (["set", "account", "alice", "many"], "QUOTAS are like bytesIn="),
        (["set", "account", "alice", "bytes=1"], "'bytes' is not a quota of this kind"),
        (["set", "account", "alice", "bytesIn=1;group G"], "has a blank or a semicolon"),
        (["remove", "account", "al ice"], "has a blank or a semicolon"),
    ],
)
async def test_what_cannot_be_set_is_an_error_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], reason: str
) -> None:
    async with open_broker(tmp_path) as broker:
        status, text = await Commands(broker, capsys).run(*words)
        assert status != 0
        assert reason in text
        assert len(broker.controller.serving.quotas.overrides) == 0


async def test_a_dry_run_sets_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_broker(tmp_path) as broker:
        status, text = await Commands(broker, capsys).run("set", "group", "G", "bytesIn=1", "--dry-run")
        assert status == 0
        assert "quotaOverrides" in text
        assert len(broker.controller.serving.quotas.overrides) == 0


def test_a_broker_or_a_cluster_has_to_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["quota", "list", "-n", "127.0.0.1:1"]) != 0
    assert "give --broker or --cluster" in capsys.readouterr().err
