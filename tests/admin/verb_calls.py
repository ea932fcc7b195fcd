"""Calls of mqadmin in this process: their output, checked against the schema files."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from triomq.admin.__main__ import main
from triomq.admin.verb_table import VERBS

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "reference" / "mqadmin-schemas"
SETTINGS = {"autoCreateTopicEnable": "false", "configUpdateWithoutAcl": "true", "traceTopicEnable": "true"}
Capture = pytest.CaptureFixture[str]
LOG_LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[")


def check(name: str, text: str) -> list[dict[str, Any]]:
    """Fail unless the output fits the schema file of a command. Return its items."""
    schema = json.loads((SCHEMAS / f"{name.replace(' ', '-')}.json").read_text())
    items: list[dict[str, Any]] = json.loads(text)
    jsonschema.Draft202012Validator(schema).validate(items)
    return items


def items(words: list[str], capsys: Capture, *, status: int = 0) -> list[dict[str, Any]]:
    """Run a verb. Return its items, which fit its schema."""
    capsys.readouterr()
    assert main([*words, "--output", "json"]) == status
    name = next(row[0] for row in VERBS if row[0].split() in (words[:1], words[:2]))
    # The cluster is in this process; its log may stand before the array and behind it.
    _, begin, rest = ("\n" + capsys.readouterr().out).partition("\n[")
    while begin and not rest.startswith(("\n", "]")):
        _, begin, rest = rest.partition("\n[")
    text = f"[{rest}"
    _, end = json.JSONDecoder().raw_decode(text)
    assert all(LOG_LINE.match(line) for line in text[end:].splitlines() if line), text
    return check(name, text[:end])


def lines(words: list[str], capsys: Capture, *, status: int = 0) -> list[str]:
    capsys.readouterr()
    assert main(words) == status
    return capsys.readouterr().out.splitlines()


def typed(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def set_offset(group: str, topic: str, offset: int, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    """Store an offset for queue 0 of a topic, as a consumer does."""
    [broker] = {item["brokerName"] for item in items(["config", "get", "brokerName"], capsys)}
    line = {"group": group, "topic": topic, "brokerName": broker, "queueId": 0, "offset": offset}
    typed(json.dumps(line).encode(), monkeypatch)
    assert main(["offsets", "import", "-", "--yes"]) == 0
    capsys.readouterr()
