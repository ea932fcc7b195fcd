"""What a NameServer shows on its metricsPort."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request
from functools import partial

import pytest
import trio
from free_ports import free_port
from namesrv_fakes import broker_fields, registration
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.controller import serve
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.remoting.client import open_client
from triomq.remoting.config import ServerSettings


async def page(port: int, path: str) -> str:
    def fetch() -> str:
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", headers={"Accept": "application/openmetrics-text"}
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            text: str = response.read().decode()
            return text

    return await trio.to_thread.run_sync(fetch)


async def samples(port: int) -> dict[tuple[str, str], float]:
    """Return (name, values of the labels) -> value."""
    return {
        (sample.name, ",".join(sample.labels.values())): sample.value
        for family in read_openmetrics(await page(port, "/metrics"))
        for sample in family.samples
    }


async def test_a_name_server_shows_its_brokers() -> None:
    port = free_port()
    settings = ServerSettings(listen_port=0, bind_address="127.0.0.1", metrics_port=port)
    async with trio.open_nursery() as nursery:
        namesrv_port = await nursery.start(partial(serve, NamesrvSettings(), settings))
        async with open_client() as client:
            fields = {**broker_fields(), "haServerAddr": "10.0.0.1:10912"}
            request = new_request(RequestCode.REGISTER_BROKER, body=registration("T").encode(), ext_fields=fields)
            assert (await client.invoke(f"127.0.0.1:{namesrv_port}", request)).code == 0
            found = await samples(port)
            cluster, name = fields["clusterName"], fields["brokerName"]
            assert found["triomq_namesrv_brokers", cluster] == 1
            assert 0 <= found["triomq_namesrv_broker_last_heard_seconds", f"{cluster},{name},0"] < 30
            assert (found["triomq_namesrv_topics", ""], found["triomq_namesrv_routes", ""]) == (1, 1)
            assert found["triomq_connections", "main"] == 1
            assert found["triomq_ready", "port"] == 1
            assert '"status": "ready"' in await page(port, "/health/ready")
        found = await samples(port)
        with trio.fail_after(30):
            while not found["triomq_namesrv_brokers_dropped_total", "closed"]:
                found = await samples(port)
        assert found["triomq_namesrv_brokers_dropped_total", "closed"] == 1
        assert ("triomq_namesrv_brokers", cluster) not in found
        nursery.cancel_scope.cancel()


async def test_a_dashboard_port_that_is_taken_is_a_reason_not_to_be_ready() -> None:
    port = free_port()
    with socket.create_server(("127.0.0.1", 0)) as holder:
        taken = holder.getsockname()[1]
        settings = ServerSettings(listen_port=0, bind_address="127.0.0.1", metrics_port=port, dashboard_port=taken)
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve, NamesrvSettings(), settings))
            with trio.fail_after(30):
                while True:
                    with pytest.raises(urllib.error.HTTPError) as caught:
                        await page(port, "/health/ready")
                    text = caught.value.read().decode()
                    if "the start is not finished" not in text and "dashboardPort" in text:
                        break
                    await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert f"dashboardPort: cannot listen on 127.0.0.1:{taken}: Address already in use" in text


@pytest.mark.parametrize("is_taken", [False, True])
async def test_a_name_server_serves_also_without_its_pages(is_taken: bool) -> None:
    port = free_port() if is_taken else 0
    async with trio.open_nursery() as nursery:
        for _ in range(2):
            settings = ServerSettings(listen_port=0, bind_address="127.0.0.1", metrics_port=port)
            address = f"127.0.0.1:{await nursery.start(partial(serve, NamesrvSettings(), settings))}"
        async with open_client() as client:
            request = new_request(RequestCode.GET_BROKER_CLUSTER_INFO)
            assert (await client.invoke(address, request)).code == 0
        nursery.cancel_scope.cancel()
