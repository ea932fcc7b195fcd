"""Requests of one connection that arrive together take effect in the order in which they arrive."""

from __future__ import annotations

from inspect import iscoroutinefunction

import trio
from namesrv_fakes import FakeNamesrv

from triomq.namesrv.config import NamesrvSettings
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request


async def ask_together(namesrv: FakeNamesrv, code: int, *asked: tuple[dict[str, str] | None, bytes]) -> None:
    for fields, body in asked:
        namesrv.table.handle(namesrv.peer, new_request(code, ext_fields=fields, body=body))
    with trio.fail_after(10):
        for _ in asked:
            response: RemotingCommand = await namesrv.peer.next_answer()
            assert response.code == 0


async def test_the_last_value_of_a_key_counts(nursery: trio.Nursery) -> None:
    namesrv = FakeNamesrv(nursery)
    values = [str(number) for number in range(32)]
    await ask_together(
        namesrv,
        RequestCode.PUT_KV_CONFIG,
        *[({"namespace": "N", "key": "k", "value": value}, b"") for value in values],
    )
    assert namesrv.kv_config.get("N", "k") == "31"


async def test_the_last_change_of_the_configuration_counts(nursery: trio.Nursery) -> None:
    namesrv = FakeNamesrv(nursery, settings=NamesrvSettings(config_update_without_acl=True, config_store_path=""))
    bodies = [f"maxTopics={number}".encode() for number in range(1000, 1032)]
    await ask_together(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, *[(None, body) for body in bodies])
    assert namesrv.config.namesrv.max_topics == 1031


async def test_what_changes_something_is_no_async_function(nursery: trio.Nursery) -> None:
    """Its task would begin after what arrived behind the request."""
    table = FakeNamesrv(nursery).table
    entries = table._entries.values()
    assert [entry.processor for entry in entries if iscoroutinefunction(entry.processor)] == []
