"""Results of the audit as text for a terminal, and as one self-contained HTML page with plots."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

BAR_WIDTH = 640
BAR_HEIGHT = 18
MAX_BARS = 60

_STYLE = """
body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:62em;padding:0 1em;color:#1c2733;background:#fff}
h1{font-size:1.5em}h2{font-size:1.15em;margin-top:2em;border-bottom:1px solid #d5dde5}
table{border-collapse:collapse;margin:.6em 0}td,th{padding:.25em .8em;text-align:left;border-bottom:1px solid #e4e9ee}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.good{color:#0a7d38}.bad{color:#b3261e}
details{margin:.3em 0}summary{cursor:pointer}code{font-size:.92em}svg text{font:12px system-ui,sans-serif;fill:#1c2733}
"""


def as_text(result: dict[str, Any], show: int) -> str:
    """Return a table of counts, followed by the findings by kind with at most `show` examples each."""
    lines = [f"store {result['store']}: {'sound' if result['is_sound'] else 'DAMAGED'}", ""]
    lines += _columns([[name, f"{value:,}"] for name, value in result["counts"].items()])
    for item in result["findings"]:
        lines += ["", f"{item['area']}: {item['kind']} ({item['count']:,})"]
        lines += [f"  {example['place']}: {example['text']}" for example in item["examples"][:show]]
        if item["count"] > min(show, len(item["examples"])):
            lines.append(f"  ... and {item['count'] - min(show, len(item['examples'])):,} more")
    return "\n".join(lines) + "\n"


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]


def as_html(result: dict[str, Any]) -> str:
    """Return the whole page."""
    verdict = ("good", "sound") if result["is_sound"] else ("bad", "damaged")
    counts = "".join(
        f"<tr><td>{escape(name)}</td><td class=n>{value:,}</td></tr>" for name, value in result["counts"].items()
    )
    segments = [
        (f"{row['start']:,}", row["records"], f"{_time(row['firstMs'])} to {_time(row['lastMs'])}")
        for row in result["segments"]
    ]
    used = [(f"{row['start']:,}", row["usedBytes"], f"of {row['sizeBytes']:,} bytes") for row in result["segments"]]
    topics = sorted(((row["topic"], row["records"], "") for row in result["topics"]), key=lambda item: -item[1])
    kinds = [(f"{item['area']}: {item['kind']}", item["count"], "") for item in result["findings"]]
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Store audit</title><style>{_STYLE}</style>"
        f"<h1>Store audit: <span class={verdict[0]}>{verdict[1]}</span></h1>"
        f"<p><code>{escape(result['store'])}</code></p>"
        f"<table>{counts}</table>"
        f"<h2>Findings</h2>{bars(kinds) if kinds else '<p class=good>None.</p>'}{_details(result['findings'])}"
        f"<h2>Records by topic</h2>{bars(topics)}"
        f"<h2>Records by segment</h2>{bars(segments)}"
        f"<h2>Used bytes by segment</h2>{bars(used)}"
        "</html>\n"
    )


def _details(findings: list[dict[str, Any]]) -> str:
    parts = []
    for item in findings:
        rows = "".join(
            f"<tr><td><code>{escape(example['place'])}</code></td><td>{escape(example['text'])}</td></tr>"
            for example in item["examples"]
        )
        parts.append(
            f"<details><summary>{escape(item['area'])}: {escape(item['kind'])} ({item['count']:,})</summary>"
            f"<table>{rows}</table></details>"
        )
    return "".join(parts)


def bars(items: Sequence[tuple[str, int, str]]) -> str:
    """Return horizontal bars (label, value, tooltip) as SVG. At most MAX_BARS; a sentence counts the rest."""
    shown = items[:MAX_BARS]
    largest = max((value for _, value, _ in shown), default=0) or 1
    rows = []
    for at, (label, value, note) in enumerate(shown):
        y = at * (BAR_HEIGHT + 4)
        width = round(BAR_WIDTH * value / largest, 1)
        rows.append(
            f"<g><title>{escape(label)}: {value:,} {escape(note)}</title>"
            f'<text x="230" y="{y + 13}" text-anchor="end">{escape(label[-34:])}</text>'
            f'<rect x="240" y="{y}" width="{max(width, 1)}" height="{BAR_HEIGHT}" fill="#3572b0" rx="2"/>'
            f'<text x="{246 + width}" y="{y + 13}">{value:,}</text></g>'
        )
    more = f"<p>… and {len(items) - MAX_BARS} more</p>" if len(items) > MAX_BARS else ""
    height = len(shown) * (BAR_HEIGHT + 4)
    return f'<svg width="{BAR_WIDTH + 340}" height="{height}" role="img">{"".join(rows)}</svg>{more}'


def lines(series: dict[str, list[tuple[float, float]]], unit: str) -> str:
    """Return one line per name over time (seconds since 1970) as SVG."""
    points = [point for values in series.values() for point in values]
    if not points:
        return "<p>No data.</p>"
    begin = min(x for x, _ in points)
    end = max(x for x, _ in points)
    top = max(y for _, y in points) or 1
    colors = ("#3572b0", "#c2571a", "#2a8c55", "#8a4fa0", "#a8323e", "#6b7280")
    parts = []
    for at, (name, values) in enumerate(sorted(series.items())):
        color = colors[at % len(colors)]
        path = " ".join(
            f"{50 + 700 * (x - begin) / ((end - begin) or 1):.1f},{210 - 190 * y / top:.1f}" for x, y in values
        )
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.8"/>')
        parts.append(f'<text x="770" y="{24 + 16 * at}" style="fill:{color}">{escape(name[-28:])}</text>')
    axis = (
        '<path d="M50 20V210H750" fill="none" stroke="#9aa7b3"/>'
        f'<text x="44" y="24" text-anchor="end">{top:,.0f}</text>'
        f'<text x="44" y="214" text-anchor="end">0</text><text x="50" y="228">{_time(int(begin * 1000))}</text>'
        f'<text x="750" y="228" text-anchor="end">{_time(int(end * 1000))} ({escape(unit)})</text>'
    )
    return f'<svg width="980" height="240" role="img">{axis}{"".join(parts)}</svg>'


def page(title: str, body: str) -> str:
    """Return an HTML page in the style of all reports."""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1>{body}</html>\n"
    )


def _time(time_ms: int | None) -> str:
    return "-" if time_ms is None else f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
