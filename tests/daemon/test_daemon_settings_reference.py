"""`--explain`: an annotated configuration file made from the declarations."""

from __future__ import annotations

import enum
from pathlib import Path

import pytest

from triomq.broker.configuration import Configuration
from triomq.daemon.configuration import load_configuration
from triomq.daemon.environment import read_environment
from triomq.daemon.settings_reference import explained, facts
from triomq.namesrv.config import NamesrvSettings
from triomq.protocol import java_properties
from triomq.protocol.settings import SettingsRecord, declarations, retired_setting, setting, to_text


class Flush(enum.Enum):
    ASYNC_FLUSH = 0
    SYNC_FLUSH = 1


class Example(SettingsRecord, frozen=True, kw_only=True):
    name: str = setting("brokerName", lambda: "this-host", meaning="name", important=True)
    address: str | None = setting("haMasterAddress", None, meaning="address of the master")
    interval_ms: int = setting("interval", 500, meaning="between flushes", minimum=1, changeable=True)
    level_percent: int = setting("level", 75, meaning="of the disk", minimum=10, maximum=95)
    flush: Flush = setting("flushDiskType", Flush.ASYNC_FLUSH, meaning="when")
    is_warm: bool = setting("warm", False, meaning="touch pages")
    threads: int = setting("threads", 4, meaning="accepted for compatibility", minimum=1, ignored=True)
    quota: str = setting("quota", "", meaning="what one may use", own=True)
    ceiling: str = retired_setting("ceiling", instead="the quota bounds it")


def test_the_facts_of_each_setting() -> None:
    assert {declaration.key: list(facts(declaration)) for declaration in declarations(Example)} == {
        "brokerName": ["default computed at the start", "needs a restart"],
        "haMasterAddress": ["needs a restart"],
        "interval": ["default 500", "ms", "at least 1", "changeable at run time"],
        "level": ["default 75", "%", "from 10 to 95", "needs a restart"],
        "flushDiskType": ["default ASYNC_FLUSH", "ASYNC_FLUSH or SYNC_FLUSH", "needs a restart"],
        "warm": ["default false", "true or false", "needs a restart"],
        "threads": [],
        "quota": ["TrioMQ only", "needs a restart"],
        "ceiling": [],
    }


def test_the_default_of_the_program_wins_and_the_source_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.conf"
    file.write_text("level=80\n")
    layers = load_configuration(read_environment({}), file=file, defaults={"interval": "200"})
    text = explained([layers.bind(Example)], layers)
    assert "# between flushes\n# default 200; ms; at least 1; changeable at run time\ninterval=200\n" in text
    assert f"# of the disk\n# default 75; %; from 10 to 95; needs a restart\n# set by {file}\nlevel=80\n" in text
    important = explained([layers.bind(Example)], layers, important_only=True)
    own = explained([layers.bind(Example)], layers, own_only=True)
    retired = "# no effect any more: the quota bounds it\n# ceiling\n"
    assert own == f"# what one may use\n# TrioMQ only; needs a restart\nquota=\n\n{retired}"
    assert important == "# name\n# default computed at the start; needs a restart\nbrokerName=this-host\n"


def test_the_text_is_a_configuration_file_that_says_the_same() -> None:
    layers = load_configuration(read_environment({}))
    records = Configuration.from_layers(layers).records()
    listed = {key: text for record in records for key, text in to_text(record, null="").items()}
    assert java_properties.parse(explained(records, layers)) == listed


@pytest.mark.parametrize("cls", [*(type(record) for record in Configuration().records()), NamesrvSettings])
def test_every_setting_has_a_meaning(cls: type) -> None:
    assert [one.key for one in declarations(cls) if len(one.meaning) < 4] == []
