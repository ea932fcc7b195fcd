"""Whether a request comes from where it should: its Host header, and for a change its Origin."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from triomq.monitoring.host_names import is_local_name

_OWN = ("same-origin", "none")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}


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
    program that is no browser says nothing. `scheme`: of the pages.

    A browser that says "same-origin" has compared scheme, name and port with those of the page itself. Behind a proxy
    that ends TLS, which knows the scheme better than this daemon, that is what counts.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in _OWN:
        return False
    origin = headers.get("origin")
    if origin is None:
        return True
    schemes = _DEFAULT_PORTS if site == "same-origin" else (scheme,)
    host = headers.get("host", "")
    return any(_without_port(origin, each) == _without_port(f"{each}://{host}", each) for each in schemes)


def _without_port(origin: str, scheme: str) -> str:
    """Return an origin without the port that its scheme has anyway."""
    return origin.lower().removesuffix(_DEFAULT_PORTS[scheme])
