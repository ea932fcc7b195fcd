"""What a program pays for importing the client, and when its lines are shown."""

from __future__ import annotations

import logging

import pytest
import structlog
from fresh_python import printed

import triomq
from triomq.client import api
from triomq.client.core.log import get_logger
from triomq.remoting import log as remoting_log


def imported(statement: str) -> set[str]:
    return set(printed(f"import sys; {statement}; print(*sys.modules)"))


@pytest.mark.parametrize("name", ["Producer", "Message", "PushConsumer"])
def test_a_name_is_imported_with_what_it_needs(name: str) -> None:
    modules = imported(f"from triomq import {name}")
    assert "trio" in modules
    assert not modules & {"structlog", "asyncio", "triomq.client.app.application", "triomq.client.administer.admin"}


def test_every_public_name_is_where_it_is_looked_for() -> None:
    assert [name for name in api.__all__ if getattr(triomq, name) is not getattr(api, name)] == []


@pytest.mark.parametrize("make", [get_logger, remoting_log.get_logger])
def test_a_line_is_shown_as_logging_says(
    make: object, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(structlog, "is_configured", lambda: False)  # other tests of this process may have done it
    name = f"triomq.client.test_{id(make)}"
    assert callable(make)
    log = make(name)
    caplog.set_level(logging.WARNING, name)
    log.info("not shown", queue=3)
    log.warning("shown", queue=3, topic="T")
    caplog.set_level(logging.DEBUG, name)
    log.debug("shown since the level was changed")
    try:
        raise ValueError("odd")
    except ValueError:
        log.exception("failed")
    assert [(one.levelname, one.getMessage().splitlines()[0]) for one in caplog.records] == [
        ("WARNING", "shown [queue=3 topic='T']"),
        ("DEBUG", "shown since the level was changed"),
        ("ERROR", "failed"),
    ]
    assert caplog.records[-1].getMessage().endswith("ValueError: odd")


def test_a_line_that_is_not_shown_imports_nothing() -> None:
    statement = "from triomq.client.core.log import get_logger; get_logger('triomq.client').info('not shown', queue=3)"
    assert "structlog" not in imported(statement)
