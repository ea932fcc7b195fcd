"""What SIGHUP applies from the configuration file, and what waits for the next start."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from structlog.testing import capture_logs

from triomq.daemon.configuration import load_configuration
from triomq.daemon.environment import read_environment
from triomq.daemon.settings_file import SettingsFile
from triomq.protocol.settings import SettingsRecord, changed, retired_setting, setting, to_text


class Example(SettingsRecord, frozen=True, kw_only=True):
    name: str = setting("name", "a", meaning="name")
    limit: int = setting("limit", 10, meaning="limit", minimum=1, changeable=True)
    address: str = setting("address", "", meaning="address", changeable=True)
    ceiling: str = retired_setting("ceiling", instead="the limit bounds it")


class Daemon:
    """A running daemon that was started with a file and the option address=x:1."""

    def __init__(self, directory: Path, text: str) -> None:
        self.path = directory / "a.conf"
        self.path.write_text(text)
        layers = load_configuration(read_environment({}), file=self.path, overrides={"address": "x:1"})
        self.record = layers.bind(Example)
        self.file = SettingsFile(layers, [Example])

    def take(self, values: Mapping[str, str]) -> frozenset[str]:
        before, self.record = self.record, changed(self.record, values)
        return frozenset(["limit"] if before != self.record else [])

    async def reload(self, text: str) -> list[Any]:
        self.path.write_text(text)
        with capture_logs() as logs:
            await self.file.reload(self.take, lambda: to_text(self.record))
        return logs


async def test_an_edited_setting_changes(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "limit=5\n")
    (line,) = await daemon.reload("limit=6\n")
    assert daemon.record.limit == 6
    assert (line["event"], line["changed"]) == ("configuration reloaded", "limit")


async def test_the_file_wins_over_an_update_that_was_made_since(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "limit=5\n")
    daemon.record = Example(limit=7, address="x:1")
    await daemon.reload("limit=5\n")
    assert daemon.record.limit == 5


async def test_what_the_command_line_set_stays(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "limit=5\naddress=y:1\n")
    await daemon.reload("limit=5\naddress=z:1\n")
    assert daemon.record.address == "x:1"


async def test_what_needs_a_restart_is_reported_once(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "name=b\nlimit=5\n")
    logs = await daemon.reload("name=c\n")
    assert daemon.record == Example(name="b", limit=5, address="x:1")
    assert (logs[0]["log_level"], logs[0]["keys"]) == ("warning", "limit,name")
    assert [line["log_level"] for line in await daemon.reload("name=c\n")] == ["info"]


async def test_what_is_in_force_already_is_no_edit(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "limit=5\n")
    assert [line["log_level"] for line in await daemon.reload("name=a\nlimit=5\n")] == ["info"]


async def test_a_file_with_a_bad_value_changes_nothing_and_can_be_mended(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "limit=5\n")
    for text, reason in (("limit=0\n", "less than the minimum"), ("name=\\u1\n", "a.conf: line 1")):
        (line,) = await daemon.reload(text)
        assert (line["log_level"], daemon.record.limit) == ("error", 5)
        assert reason in line["reason"]
    await daemon.reload("limit=8\n")
    assert daemon.record.limit == 8


async def test_without_a_file_there_is_nothing_to_reload() -> None:
    layers = load_configuration(read_environment({}))
    with capture_logs() as logs:
        await SettingsFile(layers, [Example]).reload(lambda _: frozenset("x"), dict)
    assert [line["event"] for line in logs] == ["configuration not reloaded; there is no file"]


async def test_a_retired_setting_does_not_wait_for_the_next_start(tmp_path: Path) -> None:
    daemon = Daemon(tmp_path, "limit=5\nceiling=1\n")
    assert [line["log_level"] for line in await daemon.reload("limit=5\nceiling=2\n")] == ["info"]
    assert [line["log_level"] for line in await daemon.reload("limit=5\n")] == ["info"]
