"""mqadmin selftest: the report and the exit status are those of `python -m triomq.store selftest`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from test_admin_imports import NEVER, loaded
from verb_calls import check

from triomq.admin.__main__ import main


def test_a_directory_is_tested_and_left_as_it_was(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", str(tmp_path), "--seconds", "2", "--mib", "64"]) == 0
    printed = capfd.readouterr().out
    assert "rename" in printed and "ASYNC_FLUSH: acknowledged messages survive" in printed
    assert list(tmp_path.iterdir()) == []


def test_the_report_is_json_on_request(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", str(tmp_path), "--seconds", "2", "--mib", "64", "--output", "json"]) == 0
    [item] = check("selftest", capfd.readouterr().out)
    assert item["directory"] == str(tmp_path)
    assert item["passed"] is True
    assert len(item["report"]) > 5


def test_a_directory_that_cannot_be_tested_is_an_error_that_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["selftest", str(tmp_path / "none")]) == 2
    printed = capfd.readouterr()
    assert str(tmp_path / "none") in printed.err
    assert printed.out == ""


@pytest.mark.parametrize("words", [["selftest"], ["selftest", "a", "b"], ["selftest", "a", "--seconds"]])
def test_a_wrong_command_line_starts_nothing(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "usage: mqadmin selftest DIR" in capsys.readouterr().out


def test_a_dry_run_tests_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["selftest", str(tmp_path), "--dry-run"]) == 0
    assert f"scratch directory inside of {tmp_path}" in capsys.readouterr().out


def test_a_failed_test_is_exit_status_1_with_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process that tests is replaced by one that reports a failure."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho FAILED rename\nexit 1\n")
    python.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(python))
    assert main(["selftest", "/data"]) == 1
    assert capsys.readouterr().out == "FAILED rename\n"
    assert main(["selftest", "/data", "--output", "json"]) == 1
    [item] = check("selftest", capsys.readouterr().out)
    assert item == {"directory": "/data", "passed": False, "report": ["FAILED rename"]}


def test_the_command_itself_imports_no_store() -> None:
    modules = loaded("import triomq.admin.verbs.selftest")
    assert modules & {*NEVER, "triomq.store", "msgspec"} == set()
