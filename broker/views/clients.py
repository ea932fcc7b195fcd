"""The page of connections: which client is on each, and what it belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from triomq.broker.assembly.serving import Serving
from triomq.broker.processors.consume_admin import language_name
from triomq.dashboard.listing import ROWS, number_of
from triomq.dashboard.views import Ask, Steps
from triomq.protocol.codes import version_name
from triomq.remoting.connection import Connection
from triomq.remoting.server import RemotingServer

_STEP_GROUPS = 64


@dataclass(slots=True)
class ConnectionRow:
    """`client` is empty for what sends no heartbeats: tools, slaves, strangers."""

    address: str
    client: str
    language: str
    version: str
    consumes: list[str]
    produces: list[str]


class Clients:
    def __init__(self, serving: Serving, server: RemotingServer) -> None:
        self._metadata = serving.tables.metadata
        self._server = server

    def connections(self, ask: Ask) -> Steps:
        """Make the list of connections."""
        rows: dict[Connection, ConnectionRow] = {
            connection: ConnectionRow(connection.remote.text, "", "", "", [], [])
            for connection in self._server.connections
        }
        yield
        consuming = [(group.name, group.members()) for group in self._metadata.consumers.groups()]
        producing = [(group, list(channels)) for group, channels in self._metadata.producers.items()]
        for number, (group, channels, is_consuming) in enumerate(
            [*((name, found, True) for name, found in consuming), *((name, found, False) for name, found in producing)]
        ):
            for channel in channels:
                row = rows.get(channel.connection)
                if row is None:
                    continue
                row.client = channel.client_id
                row.language = language_name(channel.language) or ""
                row.version = version_name(channel.version)
                (row.consumes if is_consuming else row.produces).append(group)
            if number % _STEP_GROUPS == _STEP_GROUPS - 1:
                yield
        search = ask.query.get("q", "").strip().lower()
        found = [
            row
            for row in rows.values()
            if any(search in text.lower() for text in (row.address, row.client, *row.consumes, *row.produces))
        ]
        found.sort(key=lambda row: (not row.client, row.client, row.address))
        pages = max(1, -(-len(found) // ROWS))
        page = number_of(ask.query, "page", 1, 1, pages)
        return {
            "rows": found[(page - 1) * ROWS : page * ROWS],
            "total": len(found),
            "page": page,
            "pages": pages,
            "search": ask.query.get("q", "").strip(),
        }
