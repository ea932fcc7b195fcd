"""python -m triomq.store looks at the store of a stopped member as at that of a plain broker, and changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from golden_data import golden_group, golden_member

from triomq.store.__main__ import main

SIZES = """
mappedFileSizeCommitLog=65536
mappedFileSizeConsumeQueue=20000
maxHashSlotNum=1000
maxIndexNum=4000
maxMessageSize=16384
"""
SETS = ("clean", "killed", "divergent", "healed", "stale", "old_log")
FIRST = f"{0:020d}"

Capture = pytest.CaptureFixture[str]


def real_store(name: str, member: str, target: Path) -> Path:
    """Unpack the store of a real member, with a configuration that names the sizes only."""
    root = golden_member(name, member, target)
    (root / "broker.conf").write_text(SIZES)
    return root


def picture(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return time, size and the first MiB of every file. Index files are longer, and empty behind that."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_file():
            with path.open("rb") as file:
                found[str(path.relative_to(root))] = (path.stat().st_mtime_ns, path.stat().st_size, file.read(1 << 20))
    return found


def run(command: str, root: Path, capsys: Capture, *options: str) -> tuple[int, list[str]]:
    code = main([command, str(root), *options])
    shown = capsys.readouterr()
    return code, [*shown.out.splitlines(), *shown.err.splitlines()]


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.mark.parametrize("member", ["n0", "n1", "n2"])
@pytest.mark.parametrize("name", SETS)
def test_the_store_of_a_real_member_has_no_problems_and_stays_as_it_is(
    name: str, member: str, tmp_path: Path, capsys: Capture
) -> None:
    expected = json.loads((golden_group("dledger") / name / "expect.json").read_bytes())["members"][member]
    root = real_store(name, member, tmp_path)
    before = picture(root)
    code, lines = run("verify", root, capsys)
    assert (code, lines[-1]) == (0, "no problems"), lines
    entries = f"entries {expected['begin_index']} to {expected['end_index']} of term {expected['end_term']}"
    assert lines[0].startswith(f"ledger: {entries}, committed up to ")
    assert picture(root) == before


def wrong_unit(root: Path) -> None:
    overwrite(root / "dledger-n0" / "index" / FIRST, 7 * 32 + 8, b"\x01")


def torn_body(root: Path) -> None:
    overwrite(root / "dledger-n0" / "data" / FIRST, 20_000, b"\xff" * 16)


def lost_file(root: Path) -> None:
    max((root / "dledger-n0" / "data").iterdir()).unlink()


def missing_file(root: Path) -> None:
    sorted((root / "dledger-n0" / "data").iterdir())[1].unlink()


def short_file(root: Path) -> None:
    with sorted((root / "dledger-n0" / "data").iterdir())[1].open("r+b") as file:
        file.truncate(1000)


def damaged_term(root: Path) -> None:
    (root / "dledger-n0" / "currterm").write_text("?")


def old_term(root: Path) -> None:
    (root / "dledger-n0" / "currterm").write_text("currTerm=0\nvoteLeader=\n")


def half_replaced(root: Path) -> None:
    (root / "dledger-n0" / f"reset-{FIRST}").touch()


def wrong_queue(root: Path) -> None:
    overwrite(root / "consumequeue" / "Ledger" / "0" / FIRST, 20, bytes(8))


def no_queue(root: Path) -> None:
    for path in (root / "consumequeue" / "Ledger" / "0").iterdir():
        path.unlink()
    (root / "consumequeue" / "Ledger" / "0").rmdir()


def other_older_log(root: Path) -> None:
    max((root / "commitlog").iterdir()).unlink()


PROBLEMS: list[tuple[str, Callable[[Path], None], str]] = [
    ("clean", wrong_unit, "index of the ledger: 1 units are not those of their entries, the first one at 7"),
    ("clean", torn_body, "log damaged from"),
    ("clean", lost_file, "but entries up to 267 were on disk"),
    ("clean", missing_file, "log files are missing between"),
    ("clean", short_file, "is shorter than mappedFileSizeCommitLog"),
    ("clean", damaged_term, "currterm is damaged"),
    ("clean", old_term, "currterm has term 0, but there are entries of term 1"),
    ("clean", half_replaced, "its leader was replacing this ledger"),
    ("clean", wrong_queue, "queue Ledger/0: 1 entries do not point to their messages, the first at 1"),
    ("clean", no_queue, "queue Ledger/0 has no files"),
    ("old_log", other_older_log, "the older log is not the one that this member began with"),
]


@pytest.mark.parametrize(("name", "harm", "problem"), PROBLEMS, ids=[each[1].__name__ for each in PROBLEMS])
def test_verify_names_what_is_wrong_with_a_member(
    name: str, harm: Callable[[Path], None], problem: str, tmp_path: Path, capsys: Capture
) -> None:
    root = real_store(name, "n0", tmp_path)
    harm(root)
    before = picture(root)
    code, lines = run("verify", root, capsys)
    assert code == 1
    assert any(line.startswith("PROBLEM") and problem in line for line in lines), lines
    assert picture(root) == before


def test_what_is_not_known_to_be_committed_need_not_be_in_a_queue(tmp_path: Path, capsys: Capture) -> None:
    """Nobody else got the end of this member's ledger, and it is in no queue."""
    root = real_store("divergent", "n2", tmp_path)
    assert run("verify", root, capsys)[0] == 0
    (root / "dledger-n2" / "checkpoint").write_text("endIndex=538\ncommittedIndex=538\n")
    code, lines = run("verify", root, capsys)
    missing = [
        int(line.split()[3]) for line in lines if line.endswith("on") and "messages of the log are not in it" in line
    ]
    assert code == 1 and sum(missing) == 12, lines


def test_dump_prints_every_message_of_both_logs(tmp_path: Path, capsys: Capture) -> None:
    root = real_store("old_log", "n1", tmp_path)
    code, lines = run("dump", root, capsys)
    rows = [json.loads(line) for line in lines]
    assert code == 0 and len(rows) == 180
    assert [row["physicalOffset"] for row in rows] == sorted(row["physicalOffset"] for row in rows)
    half = rows[150]["physicalOffset"]
    code, lines = run("dump", root, capsys, "--start", str(half))
    assert [json.loads(line)["physicalOffset"] for line in lines] == [row["physicalOffset"] for row in rows[150:]]


def test_a_member_that_is_not_there_or_not_named_is_asked_for(tmp_path: Path, capsys: Capture) -> None:
    root = real_store("clean", "n0", tmp_path)
    group = "enableDLegerCommitLog=true\ndLegerGroup=G\n"
    (root / "broker.conf").write_text(f"{SIZES}{group}dLegerSelfId=n5\n")
    code, lines = run("verify", root, capsys)
    assert code == 2 and "dledger-n5 does not exist" in lines[-1]
    (root / "broker.conf").write_text(SIZES)
    (root / "dledger-n1").mkdir()
    code, lines = run("verify", root, capsys)
    assert code == 2 and lines == ["there are ledgers of n0, n1: give the member's configuration with -c"]
    (root / "broker.conf").write_text(f"{SIZES}{group}dLegerSelfId=n0\n")
    assert run("verify", root, capsys)[0] == 0


def test_the_queues_of_a_member_are_made_again_by_its_start_and_by_nothing_else(
    tmp_path: Path, capsys: Capture
) -> None:
    root = real_store("clean", "n0", tmp_path)
    before = picture(root)
    code, lines = run("rebuild", root, capsys)
    assert code == 2 and "its next start makes them again" in lines[0]
    assert picture(root) == before
