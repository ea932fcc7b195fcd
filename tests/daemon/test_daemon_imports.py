"""Daemons start fast and are small because of what they do not import and do not make."""

from __future__ import annotations

from pathlib import Path

import pytest
from fresh_python import printed

from triomq.daemon.deferred import defer


def test_a_broker_that_checks_no_access_imports_no_access_control() -> None:
    program = (
        "import sys, triomq.broker.__main__, triomq.broker.assembly.processors; "
        "print(*sorted(n for n in sys.modules if n.startswith('triomq.broker.acl.')))"
    )
    assert printed(program) == ["triomq.broker.acl.errors", "triomq.broker.acl.names"]


@pytest.mark.parametrize(("daemon", "others"), [("broker", ["Configuration", "Extensions"]), ("namesrv", [])])
def test_the_values_of_a_daemon_are_no_dataclasses(daemon: str, others: list[str]) -> None:
    """To make one takes as long as fifty msgspec.Structs, and a start makes all of them. `others` are public."""
    program = f"""
import sys, triomq.{daemon}.__main__
modules = [module for name, module in sys.modules.items() if name.startswith("triomq.")]
classes = {{each for module in modules for each in vars(module).values() if isinstance(each, type)}}
classes = {{each for each in classes if "__dataclass_fields__" in vars(each) and each.__module__.startswith("triomq.")}}
print(*sorted(each.__name__ for each in classes))
"""
    assert printed(program) == others


@pytest.mark.parametrize("daemon", ["broker", "namesrv"])
def test_a_daemon_without_tls_loads_neither_ssl_nor_asyncio(daemon: str) -> None:
    loaded = "{'_ssl', 'asyncio.events', 'rich', 'greenlet', 'colorama'} & set(sys.modules)"
    assert printed(f"import sys, triomq.{daemon}.__main__; print(*sorted({loaded}))") == []


def test_a_module_that_was_put_off_is_whole_when_it_is_used() -> None:
    program = """
import sys
from triomq.daemon.deferred import defer

defer("json", "sys")
import json
before = "json.decoder" in sys.modules
read = json.loads
print(before, read is sys.modules["json"].loads, json.loads("[1]") == [1], sys.modules["json"] is not json)
"""
    assert printed(program) == ["False", "True", "True", "True"]


def test_a_module_that_does_not_exist_cannot_be_put_off() -> None:
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        defer("nowhere")


def test_a_module_is_imported_without_packages_that_are_there_afterwards(tmp_path: Path) -> None:
    (tmp_path / "colors.py").write_text("")
    (tmp_path / "page.py").write_text("try:\n    import colors\nexcept ImportError:\n    colors = None\n")
    program = f"""
import sys
sys.path.insert(0, {str(tmp_path)!r})
from triomq.daemon.deferred import import_without

import_without("page", "colors")
import page
print(page.colors, "colors" in sys.modules)
import colors
"""
    assert printed(program) == ["None", "False"]
