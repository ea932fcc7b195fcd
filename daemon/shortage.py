"""Shortages: errors of a system that has no more of something. No code is at fault, so a log shows one line and no
traceback: what is lacking, where that was noticed, and what helps.
"""

import errno
from collections.abc import Iterator

from triomq.protocol.raised_at import raised_at

_HELP = {
    errno.EMFILE: "raise the limit of open files: LimitNOFILE= of systemd, or `ulimit -n`",
    errno.ENFILE: "raise fs.file-max, the system's limit of open files",
    errno.ENOSPC: "free space on the disk",
    errno.EDQUOT: "free space, or raise the disk quota of the user",
    errno.ENOMEM: "free memory, or raise the memory limit of the process",
}
_NO_THREAD = "can't start new thread"
_THREAD_HELP = "raise the limit of threads: TasksMax= of systemd, or `ulimit -u`"


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in an exception group, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def shortage_fields(error: BaseException) -> dict[str, str] | None:
    """Return the fields of a log line about a shortage (error, at, help); None if anything else is wrong, too."""
    found = list(leaves(error))
    helps = [_help(one) for one in found]
    first = helps[0]
    if first is None or None in helps:
        return None
    return {"error": str(found[0]), "at": raised_at(found[0].__traceback__) or "?", "help": first}


def _help(error: BaseException) -> str | None:
    if isinstance(error, OSError):
        return _HELP.get(error.errno or 0)
    return _THREAD_HELP if isinstance(error, RuntimeError) and str(error) == _NO_THREAD else None
