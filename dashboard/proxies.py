"""Proxies: what a request was before a proxy passed it on.

    browser --https--> proxy --http--> dashboard

Anybody can write headers. So X-Forwarded-For and X-Forwarded-Proto count only in requests from the addresses of
dashboardProxies: of several addresses the last that is no such proxy is the client's. A proxy may take dashboardPath
off the path or leave it there; links have it in any case.
"""

from __future__ import annotations

import ipaddress
import string
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from triomq.monitoring.http_server import Request

_PATH_CHARACTERS: Final = frozenset(string.ascii_letters + string.digits + "/-._~")
_SCHEMES: Final = ("http", "https")
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxies:
    """See the module's docstring. `scheme` is that of the port."""

    def __init__(self, addresses: str, path: str, scheme: str) -> None:
        """Raises ValueError for what is no list of addresses and networks, and for what is no path."""
        self.root = checked_path(path)
        self._networks = networks_of(addresses)
        self._scheme = scheme

    def original(self, request: Request) -> Request:
        """Return the request with the address of the client, and a path without dashboardPath."""
        path = request.path
        if self.root and (path == self.root or path.startswith(self.root + "/")):
            path = path[len(self.root) :] or "/"
        address = request.address
        if self._is_trusted(address):
            address = self._client(request.headers.get("x-forwarded-for", ""), address)
        return replace(request, path=path, address=address)

    def scheme(self, address: str, headers: Mapping[str, str]) -> str:
        """Return the scheme of the page that a browser shows. `address`: of who has connected."""
        forwarded = headers.get("x-forwarded-proto", "").rpartition(",")[2].strip().lower()
        return forwarded if forwarded in _SCHEMES and self._is_trusted(address) else self._scheme

    def _client(self, forwarded: str, proxy: str) -> str:
        client = proxy
        for each in reversed(forwarded.split(",")):
            text = each.strip().removeprefix("[").removesuffix("]")
            try:
                ipaddress.ip_address(text)
            except ValueError:
                return client
            client = text
            if not self._is_trusted(client):
                return client
        return client

    def _is_trusted(self, address: str) -> bool:
        if not self._networks:
            return False
        try:
            parsed = ipaddress.ip_address(address)
        except ValueError:
            return False
        if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
            parsed = parsed.ipv4_mapped
        return any(parsed in network for network in self._networks)


def networks_of(text: str) -> list[Network]:
    """Return the networks of dashboardProxies. Raises ValueError for what is none."""
    return [ipaddress.ip_network(each.strip()) for each in text.split(",") if each.strip()]


def checked_path(text: str) -> str:
    """Return dashboardPath as links begin: "" or "/" and a name. Raises ValueError."""
    path = text.strip().rstrip("/")
    if path and (
        path[0] != "/"
        or not _PATH_CHARACTERS.issuperset(path)
        or any(p in ("", ".", "..") for p in path.split("/")[1:])
    ):
        raise ValueError(f"{text!r} is no path: write /name, with letters, digits, and - . _ ~")
    return path
