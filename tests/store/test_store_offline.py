"""python -m triomq.store: verify, dump, rebuild."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from golden_data import copy_golden_store, golden_expectation
from store_golden import open_golden
from store_support import message, open_store, small_settings, unique_key

from triomq.protocol import java_properties
from triomq.store.__main__ import main
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.upkeep.offline import dump, verify
from triomq.store.upkeep.offline_sizes import sizes_in
from triomq.store.upkeep.progress import Progress, State, unseen


def settings_of(root: Path) -> StoreSettings:
    return StoreSettings(store_path_root_dir=str(root))


def picture(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(root)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("k00_killed", None),
        ("c05_flip_magic_second_last_file", "log damaged from 243147 to 243696"),
        ("c07_no_consumequeue_of_one_queue", "queue GoldOrders/1 has no files, but 48 messages"),
        ("c12_middle_commitlog_file_missing", "log files are missing between"),
        ("c16_cq_ahead", "3 entries point beyond the end of the log"),
        ("c17_cq_short", "queue GoldOrders/3: 3 messages of the log are not in it, from 43 on"),
        ("k10_cut_file", "is shorter than mappedFileSizeCommitLog"),
    ],
)
def test_verify_names_each_problem_and_changes_nothing(
    name: str, problem: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_golden_store(name, tmp_path)
    before = picture(root)
    code = main(["verify", str(root), "-c", str(root / "broker.conf")])
    shown = capsys.readouterr().out
    assert picture(root) == before
    if problem is None:
        assert (code, shown.splitlines()[-1]) == (0, "no problems")
    else:
        assert code == 1
        assert any(line.startswith("PROBLEM") and problem in line for line in shown.splitlines()), shown


def test_dump_prints_every_message_of_the_log_from_an_offset_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_golden_store("k00_killed", tmp_path)
    assert main(["dump", str(root)]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    wanted = golden_expectation("k00_killed")["messages"]
    assert [(row["physicalOffset"], row["topic"], row["queueOffset"]) for row in rows] == [
        (row["phys"], row["topic"], row["queueOffset"]) for row in wanted
    ]
    assert main(["dump", str(root), "--start", str(rows[400]["physicalOffset"])]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == rows[400:]


def test_rebuild_makes_the_queues_anew_from_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import trio

    root = copy_golden_store("c07_no_consumequeue_of_one_queue", tmp_path)
    assert main(["rebuild", str(root)]) == 0
    assert main(["verify", str(root)]) == 0

    async def look() -> None:
        store = await open_golden(root)
        assert store.reading.max_offset("GoldOrders", 1) == 48
        assert store.reading.max_offset("GoldGone", 0) == 4
        await store.close()

    trio.run(look)
    assert (root / "consumequeue.before-rebuild").is_dir()


async def test_an_open_store_is_not_rebuilt(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import trio

    store = await open_store(tmp_path)
    store.append(message(uniq_key=unique_key()))
    store.commit()
    assert await trio.to_thread.run_sync(main, ["rebuild", str(tmp_path)]) == 2
    assert "in use" in capsys.readouterr().err
    assert store.reading.get_messages("T", 0, 0, 1).message_count == 1
    await store.close()


def test_a_directory_or_file_that_is_not_there_is_one_line_and_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path / "nowhere")]) == 2
    assert main(["verify", str(tmp_path), "-c", str(tmp_path / "none")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2


async def three_lives(root: Path) -> None:
    """A topic with three messages is deleted and created again with two; another one stays."""
    store = await open_store(root)
    for topic in ("T", "T", "T", "Stays"):
        store.append(message(topic, uniq_key=unique_key()))
    store.commit()
    assert store.upkeep.delete_topic("T") == 1
    for topic in ("T", "Stays", "T"):
        store.append(message(topic, uniq_key=unique_key()))
    store.commit()
    await store.close()


async def test_a_topic_that_was_made_again_is_no_problem(tmp_path: Path) -> None:
    await three_lives(tmp_path)
    findings = verify(small_settings(tmp_path))
    assert (findings.records, findings.problems) == (8, [])


async def test_entries_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    await three_lives(tmp_path)
    [file] = (tmp_path / "consumequeue" / "Stays" / "0").iterdir()
    for number, text in ((0, "the first at 0"), (1, "the first at 1")):
        sound = file.read_bytes()
        physical_offset = int.from_bytes(sound[20 * number : 20 * number + 8], "big") + 1
        file.write_bytes(sound[: 20 * number] + physical_offset.to_bytes(8, "big") + sound[20 * number + 8 :])
        problems = verify(small_settings(tmp_path)).problems
        assert problems == [f"queue Stays/0: 1 entries do not point to their messages, {text}"]
        file.write_bytes(sound)


async def test_verify_counts_records_queues_and_entries(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    for number in range(25):
        assert store.append(message("T" if number < 10 else "U", number % 2)).is_ok
    await store.close()
    found = verify(small_settings(tmp_path))
    assert (found.records, found.queues, found.queue_entries, found.missing_entries) == (25, 4, 25, 0)
    assert (found.log_begin, found.problems) == (0, [])


async def test_the_progress_of_verify_covers_the_log_and_what_the_queues_have(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    for _ in range(25):
        assert store.append(message()).is_ok
    await store.close()
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").unlink()
    begun: list[tuple[str, int, int]] = []

    def start(what: str, begin: int, end: int) -> Progress:
        begun.append((what, begin, end))
        return unseen(what, begin, end)

    assert verify(small_settings(tmp_path), start).queue_entries == 15
    assert begun == [("reading the log", 0, 4096), ("checking queues", 0, 15 * 20)]


async def test_verify_names_the_first_message_that_is_missing_and_the_first_wrong_entry(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    for queue_id in (0, 0, 0, 1, 1, 1):
        assert store.append(message("T", queue_id)).is_ok
    await store.close()
    (tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(bytes(200))
    path = tmp_path / "consumequeue" / "T" / "1" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[7] ^= 1  # the first entry and the second: their offsets
    data[27] ^= 1
    path.write_bytes(data)
    problems = verify(small_settings(tmp_path)).problems
    starts = ("queue T/0: 3 messages", "queue T/1: 2 entries")
    assert [problem.startswith(start) for problem, start in zip(problems, starts, strict=True)] == [True, True]
    assert problems[0].endswith(", from 0 on") and problems[1].endswith(", the first at 0")


async def test_dump_tells_its_progress_once_per_1024_records(tmp_path: Path) -> None:
    store = await open_store(tmp_path, mapped_file_size_commit_log_bytes=1 << 20)
    for _ in range(1030):
        assert store.append(message(body=b"")).is_ok
    await store.close()
    told: list[State] = []

    class Every:
        every_ms = 0

        def tell(self, state: State) -> None:
            told.append(state)

        def end(self) -> None:
            told.append(State("the end", 0, 0, 0))

    def start(what: str, begin: int, end: int) -> Progress:
        return Progress(Every(), lambda: 0, what, begin, end)

    lines = list(dump(small_settings(tmp_path, mapped_file_size_commit_log_bytes=1 << 20), None, start))
    assert len(lines) == 1030
    place = json.loads(lines[1024])["physicalOffset"]
    assert [(state.what, state.done_bytes) for state in told] == [
        ("reading the log", 0),
        ("reading the log", place),
        ("the end", 0),
    ]


def test_sizes_that_no_configuration_names_are_those_of_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_golden_store("k00_killed", tmp_path)
    sizes = sizes_in(Files(), Layout(settings_of(root)))
    stated = java_properties.parse((root / "broker.conf").read_text())
    assert sizes == {name: stated[name] for name in sizes} and "mappedFileSizeCommitLog" in sizes
    (root / "broker.conf").unlink()
    assert main(["verify", str(root)]) == 0, capsys.readouterr().out


def test_a_last_file_that_was_cut_is_found_by_the_names_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = copy_golden_store("k10_cut_file", tmp_path)
    (root / "broker.conf").unlink()
    assert main(["verify", str(root)]) == 1
    assert "is shorter than mappedFileSizeCommitLog" in capsys.readouterr().out


def test_a_directory_without_files_tells_no_sizes(tmp_path: Path) -> None:
    assert sizes_in(Files(), Layout(settings_of(tmp_path))) == {}
