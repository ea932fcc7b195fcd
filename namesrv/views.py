"""The dashboard of a NameServer: brokers and topics. Imported only if its port is open."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

import trio

from triomq import __version__
from triomq.daemon.clock import system_now_ms
from triomq.dashboard.door import Door
from triomq.dashboard.history import History, Series
from triomq.namesrv.routes import RouteTable
from triomq.remoting import network
from triomq.remoting.certificates import ServerCertificates
from triomq.remoting.config import ServerSettings

if TYPE_CHECKING:
    from triomq.dashboard.others import Asks
    from triomq.dashboard.views import Ask, Data, Steps, View
    from triomq.monitoring.http_server import HttpServer


class NamesrvViews:
    def __init__(self, routes: RouteTable) -> None:
        self._routes = routes

    def overview(self, ask: Ask) -> Steps:
        """Make the list of clusters and brokers."""
        now = trio.current_time()
        brokers: list[Data] = []
        for name, data in sorted(self._routes.brokers.cluster_info().broker_addr_table.items()):
            for broker_id, address in sorted(data.broker_addrs.items()):
                seen = self._routes.brokers.last_seen(address)
                brokers.append(
                    {
                        "cluster": data.cluster or "",
                        "name": name,
                        "id": broker_id,
                        "address": address,
                        "heard_seconds": None if seen is None else round(now - seen, 1),
                    }
                )
        yield
        return {"brokers": brokers, "topics": self._routes.sizes()["topics"], "routes": self._routes.route_count}

    def topics(self, ask: Ask) -> Steps:
        """Make the list of topics."""
        from triomq.dashboard.listing import listed

        def row(topic: str) -> Data | None:
            route = self._routes.route(topic)
            if route is None:
                return None
            queues = [{"broker": one.broker_name, "queues": one.write_queue_nums} for one in route.queue_datas]
            return {"name": topic, "brokers": queues}

        page = yield from listed(
            self._routes.topics(), ask.query, row, {"name": lambda row: row["name"]}, default="name"
        )
        return {"list": page}


def cluster_view(
    routes: RouteTable, open_client: Callable[[], AbstractAsyncContextManager[Asks]], here: str | None
) -> View:
    """Return the page of all brokers, as they say themselves. `open_client` and `here` as in Others."""
    from triomq.dashboard.others import Others
    from triomq.dashboard.views import View

    others = Others(
        open_client,
        list,
        lambda: (routes.brokers.cluster_info(), routes.departed(trio.current_time())),
        here,
        system_now_ms,
    )

    def cluster(ask: Ask) -> Steps:
        yield
        return others.data()

    async def gather(ask: Ask) -> None:
        await others.look()

    return View("/cluster", "Cluster", "cluster.html", cluster, gather=gather)


def open_dashboard(
    routes: RouteTable,
    settings: ServerSettings,
    certificates: ServerCertificates,
    own_port: int,
    background: trio.Nursery,
) -> Door | None:
    """Open the port and begin the history; None if the port is taken."""
    history = History(
        [
            Series("Live brokers", "", lambda: routes.brokers.live_count, is_counter=False),
            Series("Topics", "", lambda: routes.sizes()["topics"], is_counter=False),
        ]
    )

    def load(port: int) -> Callable[[network.Listening], HttpServer]:
        from triomq.dashboard.site import prepare
        from triomq.dashboard.views import Program, View
        from triomq.monitoring.host_names import is_loopback
        from triomq.remoting.client import open_client

        here = "127.0.0.1" if is_loopback(settings.dashboard_address) else None
        views = NamesrvViews(routes)
        program = Program(
            "NameServer",
            str(own_port),
            __version__,
            [
                View("/", "Overview", "clusters.html", views.overview),
                cluster_view(routes, open_client, here),
                View("/topics", "Topics", "routes.html", views.topics),
            ],
            history,
        )
        return prepare(program, settings, certificates.context if settings.dashboard_tls else None, port)

    return Door(settings.dashboard_address, settings.dashboard_port, load).serve(background, history)
