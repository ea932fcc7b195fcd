"""The broker covers all of RocketMQ's: its request codes, keys and tasks, one by one (broker_spec.json)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock

from triomq.broker.assembly.processors import register
from triomq.broker.assembly.serving import Serving, build_serving
from triomq.broker.assembly.tables import Surroundings, build_tables
from triomq.broker.assembly.timetable import add_tasks
from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.extensions import Extensions
from triomq.broker.tasks import NOT_SCHEDULED, TIMETABLE
from triomq.broker.views.own_totals import TotalsProcessor
from triomq.protocol.codes import RequestCode
from triomq.protocol.settings import declarations, to_text
from triomq.remoting.client import open_client
from triomq.remoting.config import ClientSettings, ServerSettings
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.turn import Turn
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files

SPEC: dict[str, Any] = json.loads((Path(__file__).parent / "broker_spec.json").read_text())

# Request codes that RocketMQ's broker handles and this one refuses intentionally, with the reason. (None at present: a
# processor refuses what is not possible here, with a sentence.)
REFUSED: dict[int, str] = {}

# Request codes of RocketMQ 5: those that its tools need for what a broker of 4.9.7 can do, too, and those of POP. Then
# those that only TrioMQ has.
LATER = {
    *(RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG),
    *(RequestCode.QUERY_ASSIGNMENT, RequestCode.SET_MESSAGE_REQUEST_MODE),
    *(RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION, RequestCode.POLLING_INFO),
    *(RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME),
    *(RequestCode.QUERY_IN_FLIGHT, RequestCode.RELEASE_IN_FLIGHT, RequestCode.QUERY_GRPC_ENDPOINT),
    RequestCode.QUERY_BROKER_TOTALS,
}
OF_NAME_SERVERS = {RequestCode.QUERY_DEPARTED_BROKERS}
"""Those of a NameServer that only TrioMQ has."""

RECORDS: dict[str, type] = {
    "BrokerConfig": BrokerSettings,
    "MessageStoreConfig": StoreSettings,
    "NettyServerConfig": ServerSettings,
    "NettyClientConfig": ClientSettings,
}

# Keys that another part of the program reads, or whose name in a file differs from that in the listing.
KEYS_ELSEWHERE: dict[str, str] = {}

# Defaults that depend on the machine, or differ intentionally.
OTHER_DEFAULTS = {
    "rocketmqHome": "from the environment",
    "namesrvAddr": "from the environment",
    "brokerIP1": "the address of the machine",
    "brokerIP2": "the address of the machine",
    "brokerName": "the name of the machine",
    "storePathRootDir": "below the home directory",
    **dict.fromkeys(
        (
            *("sendMessageThreadPoolNums", "putMessageFutureThreadPoolNums", "pullMessageThreadPoolNums"),
            *("processReplyMessageThreadPoolNums", "queryMessageThreadPoolNums", "heartbeatThreadPoolNums"),
            *("endTransactionThreadPoolNums", "clientCallbackExecutorThreads"),
        ),
        "counted in processors",
    ),
}


class Wired:
    """The parts of a broker that is built but not started."""

    def __init__(self, serving: Serving, table: ProcessorTable, fast_table: ProcessorTable) -> None:
        self.serving = serving
        self.table = table
        self.fast_table = fast_table


async def wired(folder: Path, **settings: str) -> Wired:
    values = {"storePathRootDir": str(folder), "brokerIP1": "127.0.0.1", "namesrvAddr": "", **settings}
    configuration = Configuration.from_values(values)
    tables = build_tables(Surroundings(configuration, Turn(), FakeClock(), Files(), None, Extensions()))
    table, fast_table = ProcessorTable(), ProcessorTable()
    async with open_client() as client:
        serving = build_serving(tables, 10911, client)
        register(serving, table, fast_table, lambda: TotalsProcessor(serving))
        add_tasks(serving)
    return Wired(serving, table, fast_table)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Wired]:
    yield await wired(tmp_path)


# -- request codes ----------------------------------------------------------------------------------------------------


async def test_every_request_code_has_its_processor(broker: Wired) -> None:
    wanted = {int(code) for code in SPEC["requests"]}
    assert len(wanted) == 59
    assert wanted - broker.table.codes() == REFUSED.keys()
    assert wanted - broker.fast_table.codes() == REFUSED.keys() | {RequestCode.PULL_MESSAGE}
    assert [entry["name"] for entry in SPEC["requests"].values() if not entry["fast"]] == ["PULL_MESSAGE"]


async def test_no_other_code_has_one(broker: Wired) -> None:
    """RocketMQ declares more codes: those of other servers and clients, and some without a handler."""
    wanted = {int(code) for code in SPEC["requests"]} - REFUSED.keys()
    assert broker.table.codes() == wanted | LATER
    assert not wanted & {int(code) for code in SPEC["unanswered"]}
    known = {int(code): entry["name"] for code, entry in SPEC["requests"].items()}
    known |= {int(code): name for code, name in SPEC["unanswered"].items()}
    assert known == {int(code): code.name for code in RequestCode if code not in LATER | OF_NAME_SERVERS}


POOLS = {
    "sendMessageExecutor": "send",
    "pullMessageExecutor": "pull",
    "replyMessageExecutor": "reply",
    "queryMessageExecutor": "query",
    "heartbeatExecutor": "heartbeat",
    "clientManageExecutor": "client",
    "consumerManageExecutor": "consumer",
    "endTransactionExecutor": "transaction",
    "adminBrokerExecutor": "admin",
}


async def test_every_code_counts_in_its_pool(broker: Wired) -> None:
    """Requests share a bound exactly if they share an executor in RocketMQ."""
    for code, entry in SPEC["requests"].items():
        pool = broker.table._entries[int(code)].pool
        assert pool is not None, entry["name"]
        assert pool.name == POOLS[entry["pool"]], entry["name"]


# -- configuration keys -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDS)
def test_every_key_has_a_setting(name: str) -> None:
    ours = {declared.shown_as for declared in declarations(RECORDS[name])}
    missing = SPEC["config"][name].keys() - ours
    assert missing == KEYS_ELSEWHERE.keys() & SPEC["config"][name].keys()


@pytest.mark.parametrize("name", RECORDS)
def test_defaults_are_those_of_rocketmq(name: str) -> None:
    ours = to_text(RECORDS[name](), null="null")
    for key, default in SPEC["config"][name].items():
        if key not in OTHER_DEFAULTS:
            assert ours[key] == ("null" if default is None else default), key


def test_every_key_can_be_set() -> None:
    """A file with all keys at their defaults is accepted."""
    values: dict[str, str] = {}
    for name, record in RECORDS.items():
        listed = {declared.shown_as: declared.key for declared in declarations(record)}
        for key, default in SPEC["config"][name].items():
            if key not in OTHER_DEFAULTS and default is not None:
                values[listed[key]] = default
    del values["listenPort"]
    configuration = Configuration.from_values(values)
    assert configuration.broker.broker_permission == 6
    assert not configuration.unknown


# -- tasks ------------------------------------------------------------------------------------------------------------


def test_every_task_is_known() -> None:
    names = {name for name, _, _ in SPEC["tasks"]}
    assert len(names) >= 22
    unknown = names - TIMETABLE.keys() - NOT_SCHEDULED.keys()
    assert not unknown, f"tasks of RocketMQ that broker/tasks.py says nothing about: {sorted(unknown)}"
    assert NOT_SCHEDULED.keys() <= names


async def test_every_task_is_really_added(tmp_path: Path) -> None:
    master = (await wired(tmp_path / "master")).serving.schedule.names
    slave = (await wired(tmp_path / "slave", brokerRole="SLAVE", brokerId="1")).serving.schedule.names
    assert {*master, *slave} == TIMETABLE.keys()
    assert TIMETABLE.keys() - set(master) == {"SlaveSynchronize.syncAll"}
    assert TIMETABLE.keys() - set(slave) == {"printMasterAndSlaveDiff", "half messages without a producer"}


SECONDS = {"10 s": 10, "3 s": 3, "3 min": 180, "60 s": 60, "10 s (plus once during start, not DLedger)": 10}
PERIODS = {"5 s": 5, "10 s": 10, "3 min": 180, "1 s": 1, "2 min": 120, "60 s": 60, "30 s": 30}


@pytest.mark.parametrize(("name", "first", "period"), [task for task in SPEC["tasks"] if task[0] in TIMETABLE])
def test_tasks_have_rocketmqs_times(name: str, first: str, period: str) -> None:
    timing = TIMETABLE[name]
    if first == "next midnight":
        assert timing.at is not None
        return
    configuration = Configuration.from_values({})

    def seconds(given: Any) -> float:
        return float(given(configuration) if callable(given) else given)

    assert seconds(timing.first) == SECONDS[first]
    assert seconds(timing.period) == PERIODS[period]
