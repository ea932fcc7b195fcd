"""The scan of the log: what counts as torn, what damage costs, and what the quick path reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from file_faults import FaultyFiles
from store_support import abandon, message, open_store, sync_log

from triomq.protocol import record
from triomq.store.log.log_scan import LogScan
from triomq.store.message_store import DefaultMessageStore


def scan_of(store: DefaultMessageStore, start: int = 0, *, check_crc: bool = True) -> LogScan:
    return LogScan(store.contents.log, start, check_crc=check_crc)


@pytest.mark.parametrize("check_crc", [True, False])
async def test_sound_records_are_scanned_without_a_mapping(tmp_path: Path, check_crc: bool) -> None:
    """A scan reads gigabytes once; their pages must not stay in the memory of the process."""
    files = FaultyFiles()
    store = await open_store(tmp_path, files=files, mapped_file_size_commit_log_bytes=1 << 20)
    for number in range(30):
        assert store.append(message(body=b"%d" % number * (50 * number), uniq_key=f"u{number}")).is_ok
        assert store.append(message(body=b"")).is_ok
    store.commit()
    end = store.reading.max_physical_offset
    scan = LogScan(store.contents.log, 0, check_crc=check_crc, stop=end)
    assert len(list(scan.records())) == 60
    assert (scan.end, scan.damages, files.noted("map_read")) == (end, [], [])
    abandon(store)


async def test_a_scan_reads_up_to_its_stop_and_no_further(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    places = [store.append(message(body=b"%d" % number * 300)).physical_offset for number in range(20)]
    store.commit()
    for stop in (0, 1, places[3], places[3] + 1, places[15], store.reading.max_physical_offset):
        scan = LogScan(store.contents.log, 0, check_crc=True, stop=stop)
        assert [found.physical_offset for found in scan.records()] == [place for place in places if place < stop], stop
    abandon(store)


# -- torn properties -----------------------------------------------------------------------------------------------

SIZE = 1500
"""Bytes of properties: more than two sectors of 512."""


async def with_properties(root: Path, text: bytes) -> tuple[DefaultMessageStore, int]:
    """A store with one message that has these properties; also where they begin in the log."""
    store = await open_store(root)
    assert len(text) == SIZE
    put = store.append(message(body=b"body", properties=text))
    store.append(message(body=b"next"))
    store.commit()
    return store, put.end_offset - SIZE


def found_in(store: DefaultMessageStore) -> list[int]:
    return [found.physical_offset for found in scan_of(store).records()]


async def test_zeros_in_properties_are_no_fault_while_each_sector_has_another_byte(tmp_path: Path) -> None:
    store, begin = await with_properties(tmp_path, bytes(SIZE))
    assert found_in(store) != [0, begin + SIZE]
    abandon(store)
    text = bytearray(SIZE)
    sectors = range(begin // 512, (begin + SIZE - 1) // 512 + 1)
    assert len(sectors) == 4
    for sector in sectors:
        last = min(sector * 512 + 511, begin + SIZE - 1)
        text[last - begin] = ord("x")
    store, _ = await with_properties(tmp_path / "sound", bytes(text))
    assert found_in(store) == [0, begin + SIZE]
    abandon(store)


@pytest.mark.parametrize("sector", [0, 1, 2, 3])
async def test_a_sector_of_properties_that_is_all_zeros_is_torn(tmp_path: Path, sector: int) -> None:
    store, begin = await with_properties(tmp_path, b"x" * SIZE)
    assert found_in(store) == [0, begin + SIZE]
    await sync_log(store)
    abandon(store)
    low = max((begin // 512 + sector) * 512, begin)
    high = min((begin // 512 + sector + 1) * 512, begin + SIZE)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(low)
        file.write(bytes(high - low))
    store = await open_store(tmp_path)
    report = store.recovery_report
    assert report is not None
    assert [(damage.begin, damage.end) for damage in report.damages] == [(0, begin + SIZE)]
    found = store.reading.get_messages("T", 0, store.reading.min_offset("T", 0), 9)
    assert [record.decode_record(data).body for data in found.records] == [b"next"]
    abandon(store)


async def test_zeros_in_the_topic_are_torn(tmp_path: Path) -> None:
    store, begin = await with_properties(tmp_path, b"x" * SIZE)
    await sync_log(store)
    abandon(store)
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(begin - 3)
        assert file.read(1) == b"T"
        file.seek(begin - 3)
        file.write(b"\0")
    store = await open_store(tmp_path)
    report = store.recovery_report
    assert report is not None
    assert [damage.begin for damage in report.damages] == [0]
    abandon(store)


async def test_a_scan_says_why_it_passes_over_a_record(tmp_path: Path) -> None:
    store, begin = await with_properties(tmp_path, b"x" * SIZE)
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes().replace(b"body", b"BODY"))
    scan = LogScan(store.contents.log, 0, check_crc=True, synced_offset=begin + SIZE)
    assert [found.physical_offset for found in scan.records()] == [begin + SIZE]
    assert [damage.reason for damage in scan.damages] == ["the body does not match its CRC"]
    abandon(store)
