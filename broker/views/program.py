"""The program of a broker's dashboard: its pages, actions and downloads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from triomq import __version__
from triomq.broker.assembly.serving import Serving, account_of
from triomq.broker.figures.lag_history import LagHistory
from triomq.broker.views.account_actions import AccountActions
from triomq.broker.views.accounts import AccountPages, AclAccounts
from triomq.broker.views.all_brokers import AllBrokers
from triomq.broker.views.brokers import Brokers
from triomq.broker.views.clients import Clients
from triomq.broker.views.dledger_actions import DledgerActions
from triomq.broker.views.group_actions import GroupActions
from triomq.broker.views.groups import Groups
from triomq.broker.views.hand_actions import HandActions
from triomq.broker.views.letter_actions import LetterActions
from triomq.broker.views.letter_files import LetterFiles
from triomq.broker.views.letters import Letters
from triomq.broker.views.member import MemberPage
from triomq.broker.views.messages import Messages
from triomq.broker.views.neighbours import Neighbours
from triomq.broker.views.operator import Operator
from triomq.broker.views.overview import Overview
from triomq.broker.views.quota_actions import QuotaActions
from triomq.broker.views.quotas import QuotaPage
from triomq.broker.views.send_actions import SendActions
from triomq.broker.views.settings_actions import SettingsActions
from triomq.broker.views.tail import Tail
from triomq.broker.views.topic_actions import TopicActions
from triomq.broker.views.topics import Topics
from triomq.broker.views.waiting import Waiting
from triomq.dashboard.history import History
from triomq.dashboard.one_time_token import FILE_NAME, OneTimeToken
from triomq.dashboard.views import Download, Program, View
from triomq.monitoring.health import Check
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer


def build_program(
    serving: Serving,
    server: RemotingServer,
    table: ProcessorTable,
    history: History,
    lags: LagHistory,
    began: float,
    checks: Callable[[], list[Check]],
) -> Program:
    """Actions are requests to `table`; `checks` are those of /health/ready; `began`: when the broker did, monotonic
    seconds."""
    tables = serving.tables
    configuration = tables.configuration
    access = tables.access
    operator = Operator(table, tables.surroundings.turn, access, serving.host, tables.now_ms)
    brokers = Brokers(serving, operator)
    letters = Letters(serving)
    messages = Messages(serving)
    all_brokers = AllBrokers(serving, operator)
    neighbours = Neighbours(serving, operator, all_brokers)
    acting = (
        TopicActions(serving, brokers),
        GroupActions(serving, operator, brokers),
        SendActions(serving, operator),
        LetterActions(serving, operator, letters),
        HandActions(serving, operator, messages),
        DledgerActions(serving, operator, neighbours),
        SettingsActions(serving, brokers),
        QuotaActions(serving, brokers),
        *((AccountActions(access, brokers, account_of(tables)),) if access is not None else ()),
    )
    token = OneTimeToken(Path(configuration.store.store_path_root_dir) / FILE_NAME) if access is None else None
    if token is not None and not configuration.server.dashboard_read_only:
        token.renew()
    overview = Overview(serving, server, began, checks, neighbours)
    tail = Tail(serving, messages)
    return Program(
        "broker",
        serving.tables.configuration.broker.broker_name,
        __version__,
        [
            *_views(overview, neighbours, all_brokers, Groups(serving, lags), messages, serving, server),
            *all_brokers.views(),
            *tail.views(),
            MemberPage(serving, operator).view(),
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
    all_brokers: AllBrokers,
    groups: Groups,
    messages: Messages,
    serving: Serving,
    server: RemotingServer,
) -> list[View]:
    """Return the pages that change nothing."""
    topics = Topics(serving)
    waiting = Waiting(serving)
    access = serving.tables.access
    return [
        View("/", "Overview", "overview.html", overview.overview),
        View("/topics", "Topics", "topics.html", all_brokers.beside(topics.topics)),
        View("/topic", "Topic", "topic.html", all_brokers.beside(topics.topic), of="/topics"),
        View("/groups", "Groups", "groups.html", all_brokers.beside(groups.groups)),
        View("/group", "Group", "group.html", all_brokers.beside(groups.group), of="/groups"),
        View("/messages", "Messages", "messages.html", messages.messages, refreshes=False),
        View("/message", "Message", "message.html", messages.message, of="/messages", refreshes=False),
        View("/dead", "Dead letters", "dead.html", waiting.dead_letters),
        View("/waiting", "Delayed and half", "waiting.html", waiting.waiting, admins_only=True),
        View("/connections", "Connections", "connections.html", Clients(serving, server).connections, admins_only=True),
        neighbours.view(),
        View("/broker", "Broker", "broker.html", overview.broker),
        View(
            "/configuration",
            "Configuration",
            "configuration.html",
            overview.configuration,
            refreshes=False,
            admins_only=True,
        ),
        QuotaPage(serving).view(),
        *(AccountPages(access).views() if access is not None else []),
    ]
