from __future__ import annotations

import gc
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from triomq.daemon.errors import StartError
from triomq.namesrv import kv_config
from triomq.namesrv.kv_config import KvConfig
from triomq.protocol.bodies.kv_table import KVConfigSerializeWrapper, KVTable
from triomq.protocol.errors import RequestRefused
from triomq.remoting.table_memory import TableMemory

Write = Callable[[Path, "bytes | Iterable[bytes]"], None]


class Writes:
    """Stands for the worker thread: each write waits until `go` is set, and is kept in `files`. The numbers in
    `failing` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: list[bytes] = []
        self.failing: set[int] = set()
        self.go = trio.Event()
        monkeypatch.setattr(kv_config.trio.to_thread, "run_sync", self._run)

    async def _run(self, write: Write, path: Path, pieces: Iterable[bytes]) -> None:
        self.files.append(b"".join(pieces))
        number = len(self.files) - 1
        await self.go.wait()
        if number in self.failing:
            raise OSError(28, "No space left on device")


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
    assert len(again.items()) == 10


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
    config = KvConfig(None, max_table_bytes=len('"N""k":"12345678"'))
    await config.put("N", "k", "12345678")
    with pytest.raises(RequestRefused, match="maxKvBytes"):
        await config.put("N", "l", "")
    with pytest.raises(RequestRefused, match="maxKvBytes"):
        await config.put("M", "", "")
    config.max_table_bytes = 5
    await config.put("N", "k", "123456")
    with pytest.raises(RequestRefused, match="maxKvBytes"):
        await config.put("N", "k", "1234567")
    assert config.items() == [("N", "k", "123456")]


@pytest.mark.parametrize("text", ["\x01", '"', "ä", "\N{GRINNING FACE}", ""])
async def test_the_size_is_that_of_the_response_however_many_entries_and_escapes_it_has(text: str) -> None:
    limit = 20_000
    config = KvConfig(None, max_table_bytes=limit)
    with pytest.raises(RequestRefused, match="maxKvBytes"):
        for number in range(limit):
            await config.put("N", str(number), text * 100)
    body = config.encoded("N")
    assert body is not None
    commas = len(config.items()) + len(b'{"table":{}}')
    assert limit * 0.9 < len(body) < limit + commas


async def test_namespaces_that_lost_their_entries_count_because_the_file_has_them() -> None:
    config = KvConfig(None, max_table_bytes=2000)
    with pytest.raises(RequestRefused, match="maxKvBytes"):
        for number in range(2000):
            await config.put(f"namespace-{number}", "k", "")
            await config.delete(f"namespace-{number}", "k")
    assert config.items() == []


async def test_changes_that_arrive_during_a_write_share_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    config = KvConfig(tmp_path / "kvConfig.json")
    writes = Writes(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(config.put, "N", "k0", "0")
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 10):
            nursery.start_soon(config.put, "N", f"k{number}", str(number))
        await trio.testing.wait_all_tasks_blocked()
        assert (len(writes.files), config.items()) == (1, [])  # not visible before it is durable
        writes.go.set()
    assert len(writes.files) == 2
    assert len(config.items()) == 10
    assert KVConfigSerializeWrapper.decode(writes.files[1]).config_table == {"N": {f"k{n}": str(n) for n in range(10)}}


async def test_changes_of_one_write_follow_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    config = KvConfig(tmp_path / "kvConfig.json", max_table_bytes=len('"N""first":"0""a":"2"'))
    writes = Writes(monkeypatch)
    before: dict[str, str | None] = {}

    async def put(key: str, value: str) -> None:
        try:
            before[key + value] = await config.put("N", key, value)
        except RequestRefused:
            before[key + value] = "refused"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(put, "first", "0")
        await trio.testing.wait_all_tasks_blocked()
        for key, value in (("a", "1"), ("a", "2"), ("b", "1")):
            nursery.start_soon(put, key, value)
            await trio.testing.wait_all_tasks_blocked()
        writes.go.set()
    assert before == {"first0": None, "a1": None, "a2": "1", "b1": "refused"}
    assert config.items() == [("N", "first", "0"), ("N", "a", "2")]


async def test_a_write_that_fails_changes_nothing_and_those_behind_it_are_tried_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    config = KvConfig(tmp_path / "kvConfig.json")
    writes = Writes(monkeypatch)
    writes.go.set()
    await config.put("N", "kept", "1")
    await config.put("N", "gone", "1")
    writes.go = trio.Event()
    writes.failing = {2, 3}
    refused: list[str] = []

    async def change(kind: str, namespace: str, key: str) -> None:
        try:
            await (config.delete(namespace, key) if kind == "delete" else config.put(namespace, key, "2"))
        except RequestRefused:
            refused.append(f"{kind} {namespace} {key}")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change, "put", "M", "a")
        await trio.testing.wait_all_tasks_blocked()
        for each in (("put", "N", "kept"), ("delete", "N", "gone"), ("delete", "N", "gone")):
            nursery.start_soon(change, *each)
            await trio.testing.wait_all_tasks_blocked()
        writes.go.set()
    assert sorted(refused) == ["delete N gone", "delete N gone", "put M a", "put N kept"]
    assert sorted(config.items()) == [("N", "gone", "1"), ("N", "kept", "1")]
    assert config.namespace("M") is None
    await config.put("N", "b", "3")
    table = KVConfigSerializeWrapper.decode(writes.files[-1]).config_table
    assert table == {"N": {"gone": "1", "kept": "1", "b": "3"}}


async def test_two_changes_of_one_key_in_a_write_that_fails_leave_what_was_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    memory = TableMemory()
    config = KvConfig(tmp_path / "kvConfig.json", account=memory.account("key-value entries"))
    writes = Writes(monkeypatch)
    writes.go.set()
    await config.put("N", "a", "1")
    held_bytes = memory.held_bytes
    writes.go = trio.Event()
    writes.failing = {1, 2}

    async def change(kind: str, namespace: str, key: str, value: str) -> None:
        with pytest.raises(RequestRefused, match="cannot be written"):
            await (config.delete(namespace, key) if kind == "delete" else config.put(namespace, key, value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change, "put", "N", "b", "first, alone")
        await trio.testing.wait_all_tasks_blocked()
        for each in (
            ("put", "N", "a", "2"),
            ("put", "N", "a", "a longer one"),
            ("delete", "N", "a", ""),
            ("put", "M", "new", "1"),
            ("put", "M", "new", "2"),
            ("put", "M", "newer", "3"),
        ):
            nursery.start_soon(change, *each)
            await trio.testing.wait_all_tasks_blocked()
        writes.go.set()
    assert config.items() == [("N", "a", "1")]
    assert memory.held_bytes == held_bytes
    await config.put("N", "c", "3")
    table = KVConfigSerializeWrapper.decode(writes.files[-1]).config_table
    assert table == {"N": {"a": "1", "c": "3"}}, "the next file has nothing of them"
    await config.delete("N", "c")
    assert memory.held_bytes == held_bytes, "what is deleted takes no memory"


async def test_a_refused_change_is_freed_without_a_garbage_collection(tmp_path: Path) -> None:
    """Collections are rare in a daemon; a flood of refused changes of 60 KB would fill its memory."""
    (tmp_path / "file").write_text("")
    gc.collect()
    gc.disable()
    try:
        for config in (KvConfig(None, max_table_bytes=0), KvConfig(tmp_path / "file" / "kvConfig.json")):
            with suppress(RequestRefused):
                await config.put("N", "k", "v")
        left = sum(type(each) is kv_config._Change for each in gc.get_objects())
    finally:
        gc.enable()
    assert left == 0


async def test_a_caller_that_leaves_before_the_write_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    config = KvConfig(tmp_path / "kvConfig.json")
    writes = Writes(monkeypatch)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(config.put, "N", "a", "1")
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as leaving:
            leaving.start_soon(config.put, "N", "b", "1")
            await trio.testing.wait_all_tasks_blocked()
            leaving.cancel_scope.cancel()
        nursery.start_soon(config.put, "N", "c", "1")
        await trio.testing.wait_all_tasks_blocked()
        writes.go.set()
    assert [key for _, key, _ in config.items()] == ["a", "c"]


async def test_a_caller_that_leaves_during_the_write_costs_the_others_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: trio.abc.Clock
) -> None:
    config = KvConfig(tmp_path / "kvConfig.json")
    writes = Writes(monkeypatch)
    async with trio.open_nursery() as nursery, trio.open_nursery() as leaving:
        leaving.start_soon(config.put, "N", "a", "1")
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(config.put, "N", "b", "1")
        await trio.testing.wait_all_tasks_blocked()
        leaving.cancel_scope.cancel()
        writes.go.set()
    assert [key for _, key, _ in config.items()] == ["a", "b"]


_STEPS = st.tuples(st.sampled_from("NM"), st.sampled_from(["k", 'q"', "ä\n"]), st.none() | st.text())


@given(st.lists(_STEPS, max_size=9))
def test_the_file_is_what_rocketmq_writes(steps: list[tuple[str, str, str | None]]) -> None:
    async def run() -> None:
        config = KvConfig(None)
        table: dict[str, dict[str, str]] = {}
        for namespace, key, value in steps:
            if value is None:
                await config.delete(namespace, key)
                table.get(namespace, {}).pop(key, None)
            else:
                await config.put(namespace, key, value)
                table.setdefault(namespace, {})[key] = value
            written = b"".join(config._file())
            assert written == KVConfigSerializeWrapper(config_table=table).encode_pretty()

    trio.run(run)


async def test_the_changes_of_one_write_enter_the_table_in_steps(tmp_path: Path) -> None:
    """A hundred values of 60 KB would otherwise hold all other clients up together."""
    config = KvConfig(tmp_path / "kvConfig.json")
    passes = 0
    async with trio.open_nursery() as nursery:
        for number in range(100):
            nursery.start_soon(config.put, "N", f"k{number}", "v")
        while len(config.items()) < 100:
            await trio.lowlevel.checkpoint()
            passes += 1
    assert passes > 100


async def test_a_large_file_is_written_in_few_blocks_that_are_made_in_steps() -> None:
    config = KvConfig(None)
    for number in range(3000):
        await config.put("N" if number % 2 else "M", f"k{number}", "v" * 300)
    blocks = list(config._file())
    assert 3000 * 600 // kv_config.BLOCK_BYTES <= len(blocks) <= 10
    assert max(map(len, blocks)) <= kv_config.BLOCK_BYTES + 1000
    table: dict[str, dict[str, str]] = {"M": {}, "N": {}}
    for namespace, key, value in config.items():
        table[namespace][key] = value
    assert b"".join(blocks) == KVConfigSerializeWrapper(config_table=table).encode_pretty()


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=5), st.booleans())
def test_a_namespace_is_encoded_as_its_table(table: dict[str, str], is_loaded: bool) -> None:
    async def run() -> bytes | None:
        config = KvConfig(None)
        if is_loaded:
            config._load_table({"N": table})
        for key, value in table.items():
            await config.put("N", key, value)
        assert config.encoded("M") is None
        return config.encoded("N")

    assert trio.run(run) == (KVTable(table=table).encode() if table or is_loaded else None)
