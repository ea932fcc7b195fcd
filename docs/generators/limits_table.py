"""Tables of everything that a peer can choose, with its bound: docs/internals/limits.md.

What is in headers and bodies comes from their declarations (declared_bounds.py). What a processor or a table bounds is
a constant of its module (declared_constants.py). A taste test fails for a bound without a test, or with one that does
not exist, and for one that does not say why it refuses no client that works.
"""

from __future__ import annotations

from docs.generators.declared_bounds import Declared, declared, records
from docs.generators.declared_constants import CONSTANTS, SETTINGS
from triomq.protocol.codes import RequestCode


def request_limits() -> str:
    """Return a table of every field of a header or body that a peer sends."""
    rows = [
        "| request, field | what the peer chooses | bound | key | beyond | clients | test |",
        "|---|---|---|---|---|---|---|",
    ]
    for code, what, record in records():
        for one in declared(record):
            rows.append(_row(RequestCode(code), what, one))
    return "\n".join(rows)


def other_limits() -> str:
    """Return a table of what processors and tables bound, and of what settings bound."""
    rows = ["| what the peer chooses | bound | key | beyond | clients | test |", "|---|---|---|---|---|---|"]
    for one in CONSTANTS:
        rows.append(
            f"| {one.what} | {one.value:,} | {_code(one.key)} | {one.beyond} | {one.clients} | {_test(one.test)} |"
        )
    for setting in SETTINGS:
        beyond = f"{setting.beyond} | {setting.clients}"
        rows.append(f"| {setting.what} | | {_code(setting.key)} | {beyond} | {_test(setting.test)} |")
    return "\n".join(rows)


def named_tests() -> set[str]:
    """Return every test that a bound names."""
    fields = {one.test for _, _, record in records() for one in declared(record)}
    return fields | {one.test for one in CONSTANTS} | {one.test for one in SETTINGS}


def named_keys() -> set[str]:
    """Return every setting that a bound names."""
    fields = {one.bound.key for _, _, record in records() for one in declared(record) if one.bound is not None}
    return (fields | {one.key for one in CONSTANTS} | {one.key for one in SETTINGS}) - {""}


def _row(code: RequestCode, what: str, one: Declared) -> str:
    bound = one.bound
    assert bound is not None, f"{one.record.__name__}.{one.path} has no bound"
    place = f"{code.name} ({code}), {what}: `{one.path}`"
    limit = one.limit if bound.key not in one.limit or not bound.key else "see the key"
    beyond = f"{bound.beyond} | {bound.clients}"
    return f"| {place} | {bound.what} | {limit} | {_code(bound.key)} | {beyond} | {_test(one.test)} |"


def _test(name: str) -> str:
    return f"`{name.rpartition('::')[2]}`"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""
