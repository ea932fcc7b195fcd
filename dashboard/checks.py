"""Whether a request comes from where it should: its Host header, and for a change its Origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from triomq.monitoring.host_names import is_local_name

_OWN = ("same-origin", "none")


def host_judge(more_hosts: str) -> Callable[[str], bool]:
    """Return what judges a Host header: it must be there, and be an address, localhost or one of dashboardHosts (names,
    separated by commas)."""
    known = frozenset(name.strip().lower() for name in more_hosts.split(",") if name.strip())

    def is_host(host: str) -> bool:
        name = host.rpartition(":")[0] if ":" in host and host.rpartition(":")[2].isdigit() else host
        return bool(host) and (is_local_name(host) or name.rstrip(".").lower() in known)

    return is_host


def is_own_change(headers: Mapping[str, str], scheme: str) -> bool:
    """Return whether a request that changes something comes from a page of this site, as far as the browser says. A
    program that is no browser says nothing."""
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN:
        return False
    origin = headers.get("origin")
    return origin is None or origin.lower() == f"{scheme}://{headers.get('host', '')}".lower()
