"""mqadmin store: the report and the exit status are those of `python -m triomq.store`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from verb_calls import check

from triomq.admin.__main__ import main
from triomq.testing import LocalCluster

Capture = pytest.CaptureFixture[str]


SIZES = {
    "mappedFileSizeCommitLog": str(1024 * 1024),
    "mappedFileSizeConsumeQueue": str(20 * 1000),
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The store of a stopped broker with three messages."""
    directory = tmp_path_factory.mktemp("store")
    with LocalCluster(store=directory, settings=SIZES) as cluster:
        assert main(["send", "Kept", "body", "--count", "3", "-n", cluster.name_server]) == 0
    [log] = directory.rglob("commitlog")
    (log.parent / "broker.conf").write_text("".join([f"{name}={value}\n" for name, value in SIZES.items()]))
    yield str(log.parent)


def test_a_good_store_is_verified(store: str, capfd: Capture) -> None:
    assert main(["store", "verify", store]) == 0
    printed = capfd.readouterr().out
    assert printed.startswith("log: 3 records from 0 to ")
    assert printed.endswith("no problems\n")
    assert main(["store", "verify", store, "--output", "json"]) == 0
    [item] = check("store verify", capfd.readouterr().out)
    assert (item["directory"], item["passed"]) == (store, True)


def test_a_dump_has_a_line_for_each_record(store: str, capfd: Capture) -> None:
    assert main(["store", "dump", store]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert len([line for line in lines if "Kept" in line]) == 3
    assert main(["store", "dump", store, "--output", "jsonl"]) == 0
    written = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [item["line"] for item in written] == lines
    check("store dump", json.dumps(written))


def test_a_rebuild_needs_yes_and_a_dry_run_moves_nothing(store: str, capfd: Capture) -> None:
    before = sorted(path.name for path in Path(store).iterdir())
    assert main(["store", "rebuild", store, "--dry-run"]) == 0
    assert f"move the queues and the index of {store} away" in capfd.readouterr().out
    assert main(["store", "rebuild", store]) == 2
    assert sorted(path.name for path in Path(store).iterdir()) == before
    assert main(["store", "rebuild", store, "--yes", "--output", "json"]) == 0
    [item] = check("store rebuild", capfd.readouterr().out)
    assert any("3 records read" in line for line in item["report"])
    assert main(["store", "verify", store]) == 0


def test_a_directory_without_a_store_is_an_error_that_says_why(tmp_path: Path, capfd: Capture) -> None:
    assert main(["store", "verify", str(tmp_path / "none")]) == 2
    printed = capfd.readouterr()
    assert "is not a directory" in printed.err
    assert printed.out == ""


def test_the_sizes_may_be_in_another_file(store: str, tmp_path: Path, capfd: Capture) -> None:
    (tmp_path / "other.conf").write_text("maxIndexNum=7\n")
    assert main(["store", "verify", store, "--config", str(tmp_path / "other.conf")]) == 1
    assert "PROBLEM" in capfd.readouterr().out


@pytest.mark.parametrize("words", ["store", "store verify", "store dump d --start x", "store verify a b"])
def test_a_wrong_command_line_starts_nothing(words: str) -> None:
    assert main(words.split()) == 2
