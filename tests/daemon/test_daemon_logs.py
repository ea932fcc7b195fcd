import errno
import io
import re
from pathlib import Path

import pytest
import structlog

from triomq.daemon.environment import read_environment
from triomq.daemon.errors import StartError
from triomq.daemon.lines import Lines, Sink
from triomq.daemon.logs import BROKER_LOG_FILES, LogFile, LogFileRule, LogFiles, configure_logs


def configured(tmp_path: Path, **variables: str) -> tuple[LogFiles, io.StringIO]:
    stderr = io.StringIO()
    environment = read_environment({"HOME": str(tmp_path), **variables})
    return configure_logs(environment, BROKER_LOG_FILES, stderr=stderr), stderr


@pytest.fixture(autouse=True)
def written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each line written when its call returns: threads write them."""
    put = Lines.put

    def put_and_wait(lines: Lines, sink: Sink, text: str) -> None:
        put(lines, sink, text)
        assert lines.flush(10)

    monkeypatch.setattr(Lines, "put", put_and_wait)


def test_lines_go_to_the_file_of_their_logger_and_stderr_stays_quiet(tmp_path: Path) -> None:
    _, stderr = configured(tmp_path)
    structlog.get_logger("triomq.broker.send").info("message stored", topic="Orders", offset=7, note="two words")
    structlog.get_logger("triomq.broker.transactions.check").info("checked")
    structlog.get_logger("triomq.store").debug("not written")
    structlog.get_logger("elsewhere").info("default")
    directory = tmp_path / "logs" / "rocketmqlogs"
    line = (directory / "broker.log").read_text()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO  triomq\.broker\.send - "
        r'message stored topic=Orders offset=7 note="two words"\n',
        line,
    )
    assert sorted(path.name for path in directory.iterdir()) == ["broker.log", "broker_default.log", "transaction.log"]
    assert stderr.getvalue() == ""


def test_warnings_also_go_to_stderr(tmp_path: Path) -> None:
    _, stderr = configured(tmp_path)
    structlog.get_logger("triomq.store").warning("disk nearly full", used=0.91)
    assert stderr.getvalue().endswith("WARN  triomq.store - disk nearly full used=0.91\n")
    assert (tmp_path / "logs/rocketmqlogs/store.log").read_text() == stderr.getvalue()


def test_with_files_stderr_gets_no_traceback_and_nothing_twice(tmp_path: Path) -> None:
    _, stderr = configured(tmp_path)
    error = ValueError("because")
    structlog.get_logger("triomq.broker").error("failed", exc_info=error)
    structlog.get_logger("triomq.daemon.run").critical("daemon ended by an error", exc_info=error)
    assert stderr.getvalue().endswith("ERROR triomq.broker - failed\n")
    assert stderr.getvalue().count("\n") == 1
    assert (tmp_path / "logs/rocketmqlogs/broker.log").read_text().count("ValueError: because") == 2


def test_standard_error_only(tmp_path: Path) -> None:
    _, stderr = configured(tmp_path, TRIOMQ_LOG_DIR="-", TRIOMQ_LOG_LEVEL="debug")
    structlog.get_logger("triomq.store").debug("detail")
    assert stderr.getvalue().endswith("DEBUG triomq.store - detail\n")
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_level_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="TRIOMQ_LOG_LEVEL: 'loud' is not one of debug, info"):
        configured(tmp_path, TRIOMQ_LOG_LEVEL="loud")


def test_secrets_are_masked_and_lines_cannot_be_forged(tmp_path: Path) -> None:
    _, stderr = configured(tmp_path, TRIOMQ_LOG_DIR="-")
    structlog.get_logger("triomq.broker.acl").info(
        "changed\nfake",
        secretKey="s3cret",
        fields={"Signature": "s3cret", "topic": "T"},
        tls_server_keyPassword="s3cret",
        remark='a "b"\nINFO forged',
    )
    line = stderr.getvalue()
    assert "s3cret" not in line
    assert line.count("\n") == 1
    assert "changed\\nfake secretKey=***" in line
    assert 'remark="a \\"b\\"\\nINFO forged"' in line


def test_a_traceback_follows_its_line(tmp_path: Path) -> None:
    _, stderr = configured(tmp_path, TRIOMQ_LOG_DIR="-")
    try:
        raise ValueError("because")
    except ValueError as error:
        structlog.get_logger("triomq.store").exception("failed", topic="T")
        structlog.get_logger("triomq.store").error("failed again", exc_info=error)
    lines = stderr.getvalue().splitlines()
    assert lines[0].endswith("ERROR triomq.store - failed topic=T")
    assert lines[1] == "    Traceback (most recent call last):"
    assert lines.count("    ValueError: because") == 2


def test_a_shortage_has_one_line_that_says_what_helps(tmp_path: Path) -> None:
    _, stderr = configured(tmp_path, TRIOMQ_LOG_DIR="-")
    log = structlog.get_logger("triomq.store")
    try:
        raise OSError(errno.EMFILE, "Too many open files", "/store/topics.json")
    except OSError as error:
        log.exception("not written", table="topics")
        log.error("several", exc_info=ExceptionGroup("", [error, RuntimeError("can't start new thread")]))
        log.error("not only that", exc_info=ExceptionGroup("", [error, ValueError("a bug")]))
    lines = stderr.getvalue().splitlines()
    assert "ERROR triomq.store - not written table=topics error=" in lines[0]
    assert "Too many open files: '/store/topics.json'" in lines[0] and "LimitNOFILE=" in lines[0]
    assert "at=test_daemon_logs.test_a_shortage_has_one_line_that_says_what_helps" in lines[0]
    assert "ERROR triomq.store - several error=" in lines[1]
    assert lines[2].endswith("not only that") and lines[3].startswith("    "), "a bug beside it keeps its traceback"


def test_files_roll_and_are_bounded(tmp_path: Path) -> None:
    file = LogFile(tmp_path, LogFileRule("", "a.log", 30, 2))
    for number in range(10):
        file.write(f"line {number} with 20 b\n")
    file.close()
    assert (tmp_path / "a.log").read_text() == "line 9 with 20 b\n"
    rolled = tmp_path / "otherdays"
    assert sorted(path.name for path in rolled.iterdir()) == ["a.1.log", "a.2.log"]
    assert (rolled / "a.1.log").read_text() == "line 8 with 20 b\n"
    assert (rolled / "a.2.log").read_text() == "line 7 with 20 b\n"


def test_a_log_is_continued_after_a_restart(tmp_path: Path) -> None:
    rule = LogFileRule("", "a.log", 100, 2)
    for text in ("one\n", "two\n"):
        file = LogFile(tmp_path, rule)
        file.write(text)
        file.close()
    assert (tmp_path / "a.log").read_text() == "one\ntwo\n"


def test_lines_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    blocked = tmp_path / "logs"
    blocked.write_text("a file where the directory should be")
    file = LogFile(blocked, LogFileRule("", "a.log", 100, 2))
    file.write("one\n")
    file.write("two\n")
    blocked.unlink()
    file.write("three\n")
    file.close()
    assert (blocked / "a.log").read_text() == "... 2 lines lost\nthree\n"
