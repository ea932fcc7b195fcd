"""Readiness and metrics of brokers whose store fails, and of slaves."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import trio
from broker_scrape import watched
from broker_shown import shown
from broker_whole import ANSWER_SECONDS
from file_faults import FULL, FaultyFiles
from free_ports import free_port

from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.codes import RequestCode, ResponseCode


async def test_a_dashboard_port_that_is_taken_is_a_reason_not_to_be_ready(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        async with watched(tmp_path, dashboardPort=str(port)) as it:
            status, checks = await it.ready()
            assert status == 503
            assert {name for name, (is_ok, _) in checks.items() if not is_ok} == {"ports"}
            assert f"dashboardPort: cannot listen on 127.0.0.1:{port}: Address already in use" in checks["ports"][1]
            assert (await it.scrape()).value("triomq_ready", check="ports") == 0


async def test_a_metrics_port_that_is_taken_is_shown_on_the_dashboard(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        async with shown(tmp_path, metricsPort=str(port)) as here:
            overview = await here.data("/")
    assert not overview["is_ready"]
    [reason] = [check["detail"] for check in overview["checks"] if not check["ok"]]
    assert f"metricsPort: cannot listen on 127.0.0.1:{port}: Address already in use" in reason


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(ANSWER_SECONDS):
        while not await holds():  # noqa: ASYNC110 (over HTTP)
            await trio.sleep(0.02)


async def test_a_store_that_cannot_write_is_not_ready_until_it_can(tmp_path: Path) -> None:
    files = FaultyFiles()
    async with watched(tmp_path, files=files) as it:
        await it.broker.create_topic("T", 1)
        assert (await it.broker.send("T")).code == ResponseCode.SUCCESS
        files.fail(FULL, "pwrite", where="/consumequeue/")
        await it.broker.send("T")
        assert (await it.broker.send("T")).code != ResponseCode.SUCCESS
        status, checks = await it.ready()
        assert status == 503
        assert {name for name, (is_ok, _) in checks.items() if not is_ok} == {"store"}
        assert "consume queue" in checks["store"][1]
        assert "No space left on device" in checks["store"][1]
        scrape = await it.scrape()
        assert scrape.value("triomq_ready", check="store") == 0
        assert scrape.value("triomq_ready", check="disk") == 1
        files.mend()

        async def is_ready() -> bool:
            return (await it.ready())[0] == 200

        await until(is_ready)
        assert (await it.broker.send("T")).code == ResponseCode.SUCCESS


async def test_a_slave_without_its_master_is_not_ready_and_follows_nobody(tmp_path: Path) -> None:
    settings = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": f"127.0.0.1:{free_port()}"}
    async with watched(tmp_path, **settings) as slave:
        status, checks = await slave.ready()
        assert (status, checks["replication"]) == (503, (False, "not connected to the master"))
        scrape = await slave.scrape()
        body = (await slave.broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body
        failing = {key: text for key, text in KVTable.decode(body).table.items() if key.startswith("notReady_")}
        assert failing == {"notReady_replication": "not connected to the master"}
        assert scrape.value("triomq_replication_follows") == 0, "an empty log agrees with every master's"
        assert scrape.value("triomq_ready", check="replication") == 0
