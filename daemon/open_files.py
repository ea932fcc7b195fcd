"""The number of files and sockets that this process may have open."""

import resource

import structlog

log = structlog.get_logger("triomq.daemon.open_files")

_CEILING = 1 << 20  # for systems whose hard limit is "unlimited" but not granted
_ENOUGH = 4096


def raise_open_files_limit() -> None:
    """Raise the limit on descriptors, which connections and store files need, to the maximum. Warn if that is low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CEILING if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (OSError, ValueError) as error:
            log.info("limit of open files not raised", soft=soft, hard=hard, reason=str(error))
    if soft != resource.RLIM_INFINITY and soft < _ENOUGH:
        log.warning(
            "connections limited by the number of open files; raise it with `ulimit -Hn` or LimitNOFILE=",
            limit=soft,
            recommended=_ENOUGH,
        )
