"""The page of the cluster: one broker shows all of them, and the NameServers that it registers at."""

from __future__ import annotations

from pathlib import Path

from broker_shown import shown
from free_ports import free_port

import triomq
from triomq.testing import LocalCluster


async def test_the_cluster_is_one_page_of_a_broker(tmp_path: Path) -> None:
    gone = free_port()
    port = free_port()
    settings = {"dashboardPort": str(port)}
    with LocalCluster(store=tmp_path / "other", settings=settings) as other:
        servers = f"{other.name_server};127.0.0.1:{gone}"
        async with shown(tmp_path, namesrvAddr=servers, brokerName="broker-b") as here:
            assert "nobody has looked" in (await here.get("/"))[1]
            data = await here.data("/cluster")
            brokers = {one["name"]: one for one in data["brokers"]}
            assert len(brokers) == 2
            assert brokers["broker-b"]["role"] == "ASYNC_MASTER"
            assert f"http://127.0.0.1:{port}/" in {one["dashboard"] for one in brokers.values()}
            assert {one["build"] for one in brokers.values()} == {f"TrioMQ {triomq.__version__}"}
            first, second = data["name_servers"]
            assert (first["build"], second["build"]) == (f"TrioMQ {triomq.__version__}", "")
            assert (first["registered"], first["why"], second["registered"]) == (True, "", False)
            assert second["why"]
            assert second["failure"]
            status, text = await here.get("/cluster")
            assert f"TrioMQ {triomq.__version__} (V4_9_7)" in text
            assert (status, "broker-b" in text, f":{gone}" in text) == (200, True, True)
            cluster = (await here.data("/"))["cluster"]["seen"]
            assert f"127.0.0.1:{gone}" in [one["subject"] for one in cluster["alarms"]]
            assert f"NameServer 127.0.0.1:{gone} does not respond" in (await here.get("/"))[1]
