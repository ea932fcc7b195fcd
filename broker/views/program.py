"""The dashboard of a broker. Imported only if its port is open; the pages themselves only when somebody comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from triomq import __version__
from triomq.broker.assembly.serving import Serving
from triomq.broker.figures.lag_history import LagHistory
from triomq.dashboard.door import Door
from triomq.dashboard.history import History, Series
from triomq.remoting import network
from triomq.remoting.certificates import ServerCertificates
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer

if TYPE_CHECKING:
    from triomq.broker.views.groups import Groups
    from triomq.broker.views.messages import Messages
    from triomq.broker.views.neighbours import Neighbours
    from triomq.broker.views.overview import Overview
    from triomq.dashboard.views import Program, View
    from triomq.monitoring.health import Check
    from triomq.monitoring.http_server import HttpServer


def open_dashboard(
    serving: Serving,
    server: RemotingServer,
    table: ProcessorTable,
    certificates: ServerCertificates,
    background: trio.Nursery,
    checks: Callable[[], list[Check]],
) -> Door | None:
    """Open the port and begin the history; None if the port is taken. Actions are requests to `table`; `checks` are
    those of /health/ready."""
    began = time.monotonic()  # with the broker; the pages are made for the first visitor
    settings = serving.tables.configuration.server
    stats = serving.tables.stats
    lags = LagHistory(serving)
    history = History(
        [
            Series("Messages stored", "/s", lambda: stats.stored_total),
            Series("Messages read", "/s", lambda: stats.read_total),
            Series("Bytes stored", "B/s", lambda: stats.stored_size_total_bytes),
            Series("Connections", "", lambda: len(server.connections), is_counter=False),
        ]
    )

    def load(port: int) -> Callable[[network.Listening], HttpServer]:
        from triomq.broker.views.groups import Groups
        from triomq.broker.views.neighbours import Neighbours
        from triomq.broker.views.overview import Overview
        from triomq.dashboard.site import prepare

        get_context = certificates.context if settings.dashboard_tls else None
        neighbours = Neighbours(serving)
        overview = Overview(serving, server, began, checks, neighbours)
        program = _program(overview, neighbours, Groups(serving, lags), serving, server, table, history)
        return prepare(program, settings, get_context, port)

    door = Door(settings.dashboard_address, settings.dashboard_port, load).serve(background, history)
    if door is not None:
        background.start_soon(lags.run)
    return door


def _program(
    overview: Overview,
    neighbours: Neighbours,
    groups: Groups,
    serving: Serving,
    server: RemotingServer,
    table: ProcessorTable,
    history: History,
) -> Program:
    from triomq.broker.views.accounts import AclAccounts
    from triomq.broker.views.group_actions import GroupActions
    from triomq.broker.views.letter_actions import LetterActions
    from triomq.broker.views.letter_files import LetterFiles
    from triomq.broker.views.letters import Letters
    from triomq.broker.views.messages import Messages
    from triomq.broker.views.operator import Operator
    from triomq.broker.views.send_actions import SendActions
    from triomq.broker.views.tail import Tail
    from triomq.broker.views.topic_actions import TopicActions
    from triomq.dashboard.one_time_token import FILE_NAME, OneTimeToken
    from triomq.dashboard.views import Download, Program

    tables = serving.tables
    configuration = tables.configuration
    access = tables.access
    operator = Operator(table, tables.surroundings.turn, access, serving.host, tables.now_ms)
    letters = Letters(serving)
    acting = (
        TopicActions(serving, operator),
        GroupActions(serving, operator),
        SendActions(serving, operator),
        LetterActions(serving, operator, letters),
    )
    token = OneTimeToken(Path(configuration.store.store_path_root_dir) / FILE_NAME) if access is None else None
    if token is not None and not configuration.server.dashboard_read_only:
        token.renew()
    messages = Messages(serving)
    tail = Tail(serving, messages)
    return Program(
        "broker",
        serving.tables.configuration.broker.broker_name,
        __version__,
        [
            *_views(overview, neighbours, groups, messages, serving, server),
            *tail.views(),
            *[view for part in acting for view in part.views()],
        ],
        history,
        AclAccounts(access) if access is not None else None,
        [action for part in acting for action in part.actions()],
        token,
        lambda: configuration.server.dashboard_read_only,
        [*LetterFiles(letters).downloads(), Download("/body", messages.body)],
        tail.streams(),
    )


def _views(
    overview: Overview,
    neighbours: Neighbours,
    groups: Groups,
    messages: Messages,
    serving: Serving,
    server: RemotingServer,
) -> list[View]:
    """Return the pages that change nothing."""
    from triomq.broker.views.accounts import AccountPages
    from triomq.broker.views.clients import Clients
    from triomq.broker.views.topics import Topics
    from triomq.broker.views.waiting import Waiting
    from triomq.dashboard.views import View

    topics = Topics(serving)
    waiting = Waiting(serving)
    access = serving.tables.access
    return [
        View("/", "Overview", "overview.html", overview.overview),
        View("/topics", "Topics", "topics.html", topics.topics),
        View("/topic", "Topic", "topic.html", topics.topic, of="/topics"),
        View("/groups", "Groups", "groups.html", groups.groups),
        View("/group", "Group", "group.html", groups.group, of="/groups"),
        View("/messages", "Messages", "messages.html", messages.messages, refreshes=False),
        View("/message", "Message", "message.html", messages.message, of="/messages", refreshes=False),
        View("/dead", "Dead letters", "dead.html", waiting.dead_letters),
        View("/waiting", "Delayed and half", "waiting.html", waiting.waiting),
        View("/connections", "Connections", "connections.html", Clients(serving, server).connections),
        neighbours.view(),
        View("/broker", "Broker", "broker.html", overview.broker),
        View("/configuration", "Configuration", "configuration.html", overview.configuration, refreshes=False),
        *(AccountPages(access).views() if access is not None else []),
    ]
