from __future__ import annotations

from pathlib import Path

import pytest
import trio

from triomq.daemon.errors import StartError
from triomq.namesrv.kv_config import KvConfig
from triomq.protocol.errors import RequestRefused


async def test_entries_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "kvConfig.json"
    config = KvConfig(path)
    config.load()
    assert config.items() == []
    await config.put("N", "k", "vä\n")
    await config.put("N", "l", "2")
    await config.delete("N", "k")
    again = KvConfig(path)
    again.load()
    assert again.items() == [("N", "l", "2")]
    assert sorted(file.name for file in path.parent.iterdir()) == ["kvConfig.json", "kvConfig.json.bak"]


async def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    config = KvConfig(tmp_path / "kvConfig.json")
    async with trio.open_nursery() as nursery:
        for number in range(10):
            nursery.start_soon(config.put, "N", f"k{number}", str(number))
    again = KvConfig(tmp_path / "kvConfig.json")
    again.load()
    assert sorted(again.items()) == sorted(config.items())
    assert again.entry_count() == 10


def test_what_rocketmq_wrote_is_read(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text('{\n\t"configTable":{"ORDER_TOPIC_CONFIG":{\n\t\t\t"T":"b-a:4"\n\t\t}\n\t}\n}')
    config = KvConfig(path)
    config.load()
    assert config.get("ORDER_TOPIC_CONFIG", "T") == "b-a:4"


@pytest.mark.parametrize("torn", ["", '{\n\t"configTable":{\n\t\t"N', "[1]"])
async def test_a_torn_file_is_replaced_by_its_backup(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "kvConfig.json"
    config = KvConfig(path)
    await config.put("N", "a", "1")
    await config.put("N", "b", "2")
    path.write_text(torn)
    again = KvConfig(path)
    again.load()
    assert again.items() == [("N", "a", "1")]


def test_a_torn_file_without_a_sound_backup_refuses_the_start(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    path.write_text("{torn")
    path.with_name("kvConfig.json.bak").write_text("{torn too")
    with pytest.raises(StartError, match=r"kvConfig.json cannot be read: .*repair it or move it away"):
        KvConfig(path).load()
    (tmp_path / "directory").mkdir()
    with pytest.raises(StartError, match="Is a directory"):
        KvConfig(tmp_path / "directory").load()


async def test_a_change_that_cannot_be_written_did_not_happen(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    config = KvConfig(tmp_path / "file" / "kvConfig.json")
    with pytest.raises(RequestRefused, match="nothing was changed"):
        await config.put("N", "a", "1")
    assert config.get("N", "a") is None


async def test_the_table_is_bounded() -> None:
    config = KvConfig(None, max_entries=2)
    await config.put("N", "a", "1")
    await config.put("M", "a", "1")
    with pytest.raises(RequestRefused, match="limit"):
        await config.put("M", "b", "1")
    await config.put("M", "a", "2")
    assert config.items() == [("N", "a", "1"), ("M", "a", "2")]


@pytest.mark.parametrize(
    ("namespace", "key", "value", "what"),
    [("n" * 1025, "k", "v", "namespace"), ("N", "k" * 1025, "v", "key"), ("N", "k", "v" * 65_537, "value")],
)
async def test_a_text_that_is_too_long_is_refused(namespace: str, key: str, value: str, what: str) -> None:
    config = KvConfig(None)
    with pytest.raises(RequestRefused, match=f"the {what} .* characters, the longest is"):
        await config.put(namespace, key, value)
    assert config.items() == []


async def test_the_entries_have_a_size_in_all() -> None:
    config = KvConfig(None, max_table_bytes=10)
    await config.put("N", "k", "12345678")
    with pytest.raises(RequestRefused, match="maxKvBytes"):
        await config.put("N", "l", "")
    config.max_table_bytes = 5
    await config.put("N", "k", "123456")
    with pytest.raises(RequestRefused, match="maxKvBytes"):
        await config.put("N", "k", "1234567")
    assert config.items() == [("N", "k", "123456")]
