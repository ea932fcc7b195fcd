"""Check a built site: python docs/generators/check_site.py site

Every link and anchor must lead somewhere inside of the site, and no page may make a browser load anything from another
host. Links to other hosts that a reader may click are fine. The exit code is 1 if something is wrong.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src"), ("audio", "src")}
NOT_FETCHED_LINKS = {"canonical", "next", "prev", "alternate", "edit"}
FETCH_IN_STYLES = re.compile(r"(?:url\(\s*['\"]?|@import\s+['\"])(https?:)?//")


class PageParts(HTMLParser):
    """The links of one page, the files that it makes a browser load, and its anchors."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.assets: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") not in NOT_FETCHED_LINKS:
            self.assets.append(values.get("href", ""))
        self.assets += [values[name] for name in values if (tag, name) in FETCHED]


def problems(site: Path) -> list[str]:
    """Return a line for each problem."""
    pages = {path: parsed(path) for path in sorted(site.rglob("*.html"))}
    found = []
    for path, page in pages.items():
        name = path.relative_to(site).as_posix()
        found += [f"{name}: fetches {asset}" for asset in page.assets if urlsplit(asset).netloc]
        if name == "404.html":  # its links are absolute, as any address may show it
            continue
        for link in (*page.links, *page.assets):
            if reason := dead(link, path, site, pages):
                found.append(f"{name}: {link}: {reason}")
    for path in sorted(site.rglob("*.css")):
        if FETCH_IN_STYLES.search(path.read_text()):
            found.append(f"{path.relative_to(site)}: fetches from another host")
    return found


def parsed(path: Path) -> PageParts:
    parts = PageParts()
    parts.feed(path.read_text())
    return parts


def dead(link: str, path: Path, site: Path, pages: dict[Path, PageParts]) -> str:
    """Return why the link is dead; empty if it leads somewhere, or out of the site."""
    address = urlsplit(link)
    if address.scheme or address.netloc:
        return ""
    target = path if not address.path else (path.parent / unquote(address.path)).resolve()
    if address.path.startswith("/"):
        return "absolute: it breaks where the site is not at the root"
    if target.is_dir():
        target = target / "index.html"
    if not target.is_file() or site.resolve() not in target.resolve().parents:
        return "no such file"
    anchors = pages[target].anchors if target in pages else {address.fragment}
    return f"no anchor {address.fragment!r}" if address.fragment and unquote(address.fragment) not in anchors else ""


def main() -> int:
    site = Path(sys.argv[1]).resolve()
    found = problems(site)
    for line in found:
        print(line, file=sys.stderr)
    print(f"{len(list(site.rglob('*.html')))} pages, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
