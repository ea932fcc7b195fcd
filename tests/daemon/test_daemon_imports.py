"""Daemons start fast and are small because of what they do not import and do not make."""

from __future__ import annotations

import pytest
from fresh_python import printed


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
