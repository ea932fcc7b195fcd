"""The cookies of a request. Browsers send those of other programs on the same host, too, whatever characters these put
into them; so what cannot be read costs only itself."""

from __future__ import annotations

from collections.abc import Mapping


def cookies_of(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the values by name. Of several with one name the first counts, which belongs to the longest path."""
    found: dict[str, str] = {}
    for part in headers.get("cookie", "").split(";"):
        name, separator, value = part.strip().partition("=")
        if separator:
            found.setdefault(name.strip(), value.strip().removeprefix('"').removesuffix('"'))
    return found
