"""Each side against recordings of the other: the recorded reports of a real slave make this master send the recorded
bytes, and the recorded bytes of a real master make this slave report the recorded offsets.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from golden_data import golden_lines
from replication_fakes import configuration, log_bytes, open_slave
from trio.testing import MockClock

from triomq.broker.replication.log_follower import Following
from triomq.broker.replication.log_server import LogServer
from triomq.store.message_store import DefaultMessageStore

FILE_BYTES = 65536


@pytest.fixture
def unit_groups() -> dict[int, list[dict[str, Any]]]:
    """Return connection number -> its units."""
    groups: dict[int, list[dict[str, Any]]] = {}
    for unit in golden_lines("ha", "units"):
        groups.setdefault(unit["conn"], []).append(unit)
    return groups


async def store_with(directory: Path, *units: dict[str, Any]) -> DefaultMessageStore:
    """Create a store whose log holds the bytes of these transfers."""
    store = await open_slave(directory, mapped_file_size_commit_log_bytes=FILE_BYTES)
    for unit in units:
        if unit["unit"] == "transfer":
            assert store.replica.append(unit["fields"]["phys_offset"], bytes.fromhex(unit["hex"])[12:])
            store.replica.dispatch()
    return store


async def receive(stream: trio.testing.MemoryReceiveStream, size: int) -> bytes:
    data = b""
    with trio.fail_after(60):
        while len(data) < size:
            data += await stream.receive_some(size - len(data))
    return data


@pytest.mark.parametrize("number", [9, 25])
async def test_the_master_sends_what_the_real_one_sent(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    unit_groups: dict[int, list[dict[str, Any]]],
    number: int,
) -> None:
    units = [unit for unit in unit_groups[number] if "hex" in unit]
    store = await store_with(tmp_path / "master")
    if number == 25:  # the whole log was there before the slave connected
        store = await store_with(tmp_path / "master25", *units)
    server = LogServer(configuration(store), store)
    slave, end = trio.testing.memory_stream_pair()
    nursery.start_soon(server.serve, end, "slave")
    for unit in units:
        data = bytes.fromhex(unit["hex"])
        if unit["from"] == "slave":
            # A real slave also reports the start of a file that it has just created, before its first bytes.
            if unit["fields"]["slave_offset"] <= store.reading.max_physical_offset:
                await slave.send_all(data)
            continue
        if unit["unit"] == "transfer" and number != 25:
            await trio.testing.wait_all_tasks_blocked()
            assert store.replica.append(unit["fields"]["phys_offset"], data[12:])
            store.replica.dispatch()
        assert await receive(slave.receive_stream, len(data)) == data, unit["seq"]
    await trio.testing.wait_all_tasks_blocked()
    assert server.replicated.value == store.reading.max_physical_offset


@pytest.mark.parametrize("number", [9, 25])
async def test_the_slave_takes_what_the_real_master_sent(
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    tmp_path: Path,
    unit_groups: dict[int, list[dict[str, Any]]],
    number: int,
) -> None:
    units = [unit for unit in unit_groups[number] if "hex" in unit]
    store = await open_slave(tmp_path, mapped_file_size_commit_log_bytes=FILE_BYTES)
    stream, master = trio.testing.memory_stream_pair()
    following = Following(configuration(store), store, stream, 0)
    nursery.start_soon(following.run)
    assert await receive(master.receive_stream, 8) == bytes(8)
    whole = b""
    for unit in units:
        if unit["from"] == "slave":
            continue
        data = bytes.fromhex(unit["hex"])
        await master.send_all(data)
        if unit["unit"] == "transfer":
            whole += data[12:]
            offset = unit["fields"]["phys_offset"] + unit["fields"]["body_size"]
            while int.from_bytes(await receive(master.receive_stream, 8), "big") != offset:
                pass
    assert log_bytes(store) == whole
    records = sum(
        record["kind"] == "message"
        for unit in units
        for record in unit.get("body_records", ())
        if unit["from"] == "master"
    )
    assert (
        sum(
            store.reading.max_offset(t, q) - store.reading.min_offset(t, q)
            for t, ids in store.reading.queues().items()
            for q in ids
        )
        == records
    )
