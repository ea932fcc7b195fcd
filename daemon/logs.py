"""Log output: files that roll, and standard error for what an operator should see.

    2024-05-01T08:30:00.123Z WARN  triomq.broker.send - disk nearly full used=0.91 path=/store

One line per event: time (UTC), level, logger, event, then key=value pairs (quoted if they contain spaces or controls).
A traceback follows on indented lines, except for a shortage (shortage.py). Values of keys that name secrets are
masked.

Files are in <user.home>/logs/rocketmqlogs, or in TRIOMQ_LOG_DIR; the value "-" stands for standard error only.
TRIOMQ_LOG_LEVEL (debug, info, warning, error) is the lowest level written, info when unset. With files, standard error
gets the first line of warnings and worse, so a healthy daemon prints its boot line only. Each file rolls at its size
and keeps a fixed number of older ones in otherdays/, so the total size of the logs is bounded by that table.

State: open files, owned by the LogFiles that is created at the start. Only the thread of its lines (lines.py) touches
them; the caller never waits. A full disk, or a pipe that nobody reads, must not stop a broker: lines that cannot be
written are counted and dropped, and the count is written with the next line that can be. Correctness never depends on a
log line.
"""

import atexit
import io
import re
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import structlog
from msgspec import Struct

from triomq.daemon.environment import Environment
from triomq.daemon.errors import StartError
from triomq.daemon.lines import STDERR, Lines, Stream, flush_all
from triomq.daemon.secret_names import is_secret
from triomq.daemon.shortage import shortage_fields

_MIB = 1 << 20
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_NAMES = {"debug": "DEBUG", "info": "INFO ", "warning": "WARN ", "error": "ERROR", "critical": "FATAL"}
_PLAIN = re.compile(r"[^\s\"'=\\\x00-\x1f\x7f]+", re.ASCII)
_MAX_VALUE_CHARACTERS = 2000
_SPEAKS_FOR_ITSELF = "triomq.daemon.run"  # it prints to standard error what it logs


class LogFileRule(Struct, frozen=True):
    """Loggers whose name begins with `prefix` (at a dot) write to `name`, which rolls at `roll_bytes` and keeps
    `keep_count` older files."""

    prefix: str
    name: str
    roll_bytes: int
    keep_count: int


BROKER_LOG_FILES: tuple[LogFileRule, ...] = (
    LogFileRule("", "broker_default.log", 100 * _MIB, 10),
    LogFileRule("triomq.broker", "broker.log", 128 * _MIB, 20),
    LogFileRule("triomq.daemon", "broker.log", 128 * _MIB, 20),
    LogFileRule("triomq.broker.audit", "audit.log", 100 * _MIB, 20),
    LogFileRule("triomq.broker.protection", "protection.log", 100 * _MIB, 10),
    LogFileRule("triomq.broker.watermark", "watermark.log", 100 * _MIB, 10),
    LogFileRule("triomq.broker.transactions", "transaction.log", 100 * _MIB, 10),
    LogFileRule("triomq.broker.lock", "lock.log", 100 * _MIB, 5),
    LogFileRule("triomq.broker.stats", "stats.log", 100 * _MIB, 5),
    LogFileRule("triomq.broker.filters", "filter.log", 100 * _MIB, 10),
    LogFileRule("triomq.store", "store.log", 128 * _MIB, 10),
    LogFileRule("triomq.remoting", "remoting.log", 100 * _MIB, 10),
)
NAMESRV_LOG_FILES: tuple[LogFileRule, ...] = (
    LogFileRule("", "namesrv.log", 100 * _MIB, 5),
    LogFileRule("triomq.namesrv.audit", "namesrv_audit.log", 100 * _MIB, 20),
)


class LogFile:
    """One file that rolls into otherdays/<name>.1.log (youngest) ... <name>.<keep_count>.log."""

    def __init__(self, directory: Path, rule: LogFileRule) -> None:
        self._path = directory / rule.name
        self._rolled_directory = directory / "otherdays"
        self._rule = rule
        self._stream: io.FileIO | None = None
        self._size_bytes = 0
        self._lost_count = 0
        self.is_moved = False
        """Whether a program has renamed the file: the next line goes to a new one. Any thread may set it."""

    def write(self, line: str) -> bool:
        """Write a line, or several; return whether that worked."""
        data = line.encode("utf-8", "backslashreplace")
        try:
            stream = self._opened()
            if self._size_bytes and self._size_bytes + len(data) > self._rule.roll_bytes:
                stream = self._roll()
            if self._lost_count:
                data = f"... {self._lost_count} lines lost\n".encode() + data
            stream.write(data)
        except OSError:
            self._lost_count += line.count("\n")
            return False
        self._size_bytes += len(data)
        self._lost_count = 0
        return True

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def _opened(self) -> io.FileIO:
        if self.is_moved:
            self.is_moved = False
            self.close()
        if self._stream is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._stream = io.FileIO(self._path, "a")
            self._size_bytes = self._path.stat().st_size
        return self._stream

    def _roll(self) -> io.FileIO:
        self.close()
        self._rolled_directory.mkdir(exist_ok=True)
        for number in range(self._rule.keep_count - 1, 0, -1):
            older = self._rolled(number)
            if older.exists():
                older.replace(self._rolled(number + 1))
        self._path.replace(self._rolled(1))
        return self._opened()

    def _rolled(self, number: int) -> Path:
        return self._rolled_directory / f"{self._path.stem}.{number}{self._path.suffix}"


class LogFiles:
    """All log files of one daemon by logger name, and standard error. `configure_logs` creates it once."""

    def __init__(self, directory: Path | None, rules: Sequence[LogFileRule], stderr: TextIO | None) -> None:
        self._stderr = Stream(stderr) if stderr is not None else None
        self._has_files = directory is not None
        self._lines = Lines("files")
        files: dict[str, LogFile] = {}
        if directory is not None:
            for rule in rules:
                files.setdefault(rule.name, LogFile(directory, rule))
        self._files = files
        self._by_prefix = {rule.prefix: files[rule.name] for rule in rules} if directory else {}

    def __call__(self, *names: Any) -> "LogTarget":
        """structlog's logger factory: what `get_logger(name)` writes to."""
        name = str(names[0]) if names else "root"
        return LogTarget(self, name, self._file_for(name))

    def write(self, target: "LogTarget", level: str, line: str) -> None:
        if target.file is not None:
            self._lines.put(target.file, line)
        if self._stderr is None:
            return
        if not self._has_files:
            STDERR.put(self._stderr, line)
        elif _LEVELS[level] >= _LEVELS["warning"] and target.name != _SPEAKS_FOR_ITSELF:
            STDERR.put(self._stderr, line[: line.index("\n") + 1])

    def reopen(self) -> None:
        """Continue in new files after a program such as logrotate has renamed the current ones: the next line opens its
        file again."""
        for file in self._files.values():
            file.is_moved = True

    def close(self) -> None:
        """Write what is queued, as far as that goes within two seconds, and close the files."""
        flush_all()
        if self._lines.flush(0):
            for file in self._files.values():
                file.close()

    def _file_for(self, name: str) -> LogFile | None:
        prefix = name
        while prefix and prefix not in self._by_prefix:
            prefix = prefix.rpartition(".")[0]
        return self._by_prefix.get(prefix)


class LogTarget:
    """structlog calls it with the rendered lines of one logger; one method per level."""

    def __init__(self, files: LogFiles, name: str, file: LogFile | None) -> None:
        self._files = files
        self.file = file
        self.name = name

    def debug(self, line: str) -> None:
        self._files.write(self, "debug", line)

    def info(self, line: str) -> None:
        self._files.write(self, "info", line)

    def warning(self, line: str) -> None:
        self._files.write(self, "warning", line)

    def error(self, line: str) -> None:
        self._files.write(self, "error", line)

    def critical(self, line: str) -> None:
        self._files.write(self, "critical", line)


def render(target: Any, level: str, event: MutableMapping[str, Any]) -> str:
    """structlog's last processor: return the whole line, with its newline."""
    seconds, ms = divmod(time.time_ns() // 1_000_000, 1000)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    name = getattr(target, "name", "root")
    error = _error_of(event.pop("exc_info", None))
    shortage = shortage_fields(error) if error is not None else None
    exception = "" if error is None or shortage is not None else _traceback(error)
    event.update(shortage or {})
    text = _clean(str(event.pop("event", "")))
    pairs = "".join(f" {key}={_value(key, value)}" for key, value in event.items())
    return f"{stamp}.{ms:03}Z {_NAMES.get(level, 'INFO ')} {name} - {text}{pairs}\n{exception}"


def configure_logs(
    environment: Environment,
    rules: Sequence[LogFileRule],
    *,
    subdirectory: str = "",
    to_files: bool = True,
    stderr: TextIO | None = None,
) -> LogFiles:
    """Make all structlog loggers of this process write as described above; with `to_files=False` warnings and worse to
    standard error only. Raises StartError for an unknown level."""
    level = environment.variables.get("TRIOMQ_LOG_LEVEL", "info").lower()
    if level not in _LEVELS:
        raise StartError(f"TRIOMQ_LOG_LEVEL: {level!r} is not one of {', '.join(_LEVELS)}")
    if not to_files:
        level = "warning"
    directory = log_directory(environment) if to_files else None
    files = LogFiles(directory / subdirectory if directory else None, rules, stderr or sys.stderr)
    atexit.register(flush_all)
    structlog.configure(
        processors=[render],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=files,
        cache_logger_on_first_use=True,
    )
    return files


def log_directory(environment: Environment) -> Path | None:
    """Return the directory of the log files, or None when all lines go to standard error."""
    stated = environment.variables.get("TRIOMQ_LOG_DIR")
    if stated == "-":
        return None
    return Path(stated) if stated else environment.user_home / "logs" / "rocketmqlogs"


def _value(key: str, value: Any) -> str:
    if is_secret(key):
        return "***"
    if isinstance(value, Mapping):
        value = {inner: "***" if is_secret(str(inner)) else item for inner, item in value.items()}
    text = value if isinstance(value, str) else str(value)
    if len(text) > _MAX_VALUE_CHARACTERS:
        text = text[:_MAX_VALUE_CHARACTERS] + "..."
    return text if _PLAIN.fullmatch(text) else '"' + _clean(text).replace('"', '\\"') + '"'


def _clean(text: str) -> str:
    """Escape control characters, so that text from a peer cannot forge a log line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _error_of(exc_info: Any) -> BaseException | None:
    if not exc_info:
        return None
    if isinstance(exc_info, BaseException):
        return exc_info
    error: BaseException | None = exc_info[1] if isinstance(exc_info, tuple) else sys.exc_info()[1]
    return error


def _traceback(error: BaseException) -> str:
    import traceback

    return "".join("    " + line + "\n" for line in "".join(traceback.format_exception(error)).splitlines())
