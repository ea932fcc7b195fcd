"""What must hold of the servers: routes, slaves, and that nothing of their clients stays behind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import trio

from sim.administration import Administration
from sim.checks import Verdict, lossy_moments, store_of
from sim.cluster import Broker, Node
from sim.history import History
from sim.network import Host
from sim.plan import TOPICS
from triomq.client.core.errors import MQClientError, NoRoute
from triomq.remoting.memory import MemoryBudget

CONVERGED_SECONDS = 60.0
"""All NameServers know all topics within two registrations (registerNameServerPeriod is 30 s)."""
CAUGHT_UP_SECONDS = 60.0
GONE_SECONDS = 150.0
"""A broker forgets a client whose host lost its power after two minutes (ClientHousekeepingService)."""
LOOK_SECONDS = 3.0
MADE = ("Made", "Used", "Again")
"""How the names of topics begin that a run makes besides those of its streams."""
Queues = tuple[int, int, int]
"""read queues, write queues, permission"""


async def within(seconds: float, found: Callable[[], list[str]]) -> list[str]:
    """Return what `found` returns as soon as it is nothing, or what it returns after so long."""
    with trio.move_on_after(seconds):
        while found():
            await trio.sleep(LOOK_SECONDS)
    return found()


# Routes.


async def check_routes(
    history: History,
    brokers: Mapping[str, Broker],
    name_servers: Iterable[Host],
    administration: Administration,
    verdict: Verdict,
) -> None:
    """Every NameServer has the topics of every master as the master has them, also those that were deleted; and the
    masters have what they answered to administrators."""
    for host in name_servers:
        wrong: list[str] = []
        with trio.move_on_after(CONVERGED_SECONDS):
            while True:
                wrong = await _differences(host, brokers, administration, history)
                if not wrong:
                    break
                await trio.sleep(LOOK_SECONDS)
        verdict.none_of(wrong, f"{host.name} has other routes than the brokers")
    for name, broker in brokers.items():
        if not broker.restored:
            verdict.none_of(_not_as_told(history, broker), f"{name} does not have what it confirmed to administrators")


async def _differences(
    host: Host, brokers: Mapping[str, Broker], administration: Administration, history: History
) -> list[str]:
    wrong = []
    tables = {name: _topics_of(broker) for name, broker in brokers.items()}
    async with administration.admin(name_server=host) as admin:
        try:
            known = set(await admin.topics())
        except MQClientError as error:
            return [str(error)]
        names = {topic for table in tables.values() for topic in table} | {t for t in known if t in history.topics}
        for topic in sorted(names):
            try:
                route = await admin.route(topic)
            except NoRoute:
                routed: dict[str, Queues] = {}
            except MQClientError as error:
                return [str(error)]
            else:
                routed = {
                    data.broker_name: (data.read_queue_nums, data.write_queue_nums, data.perm)
                    for data in route.queue_datas
                }
            for name, table in tables.items():
                ours, theirs = table.get(topic), routed.get(name)
                is_stale = ours is None and (topic in history.doubtful or bool(brokers[name].restored))
                if ours != theirs and not is_stale:
                    wrong.append(f"{topic} of {name}: {theirs}, the broker: {ours}")
    return wrong


def _topics_of(broker: Broker) -> dict[str, Queues]:
    """Return the topics of this run that a broker has."""
    serving = broker.controller.serving if broker.controller is not None and broker.is_running else None
    if serving is None:
        return {}
    return {
        one.topic_name or "": (one.read_queue_nums, one.write_queue_nums, one.perm)
        for one in serving.tables.metadata.topics.configs()
        if one.topic_name is not None
        and (one.topic_name in TOPICS or one.topic_name.startswith(("Made", "Used", "Again")))
    }


def _not_as_told(history: History, broker: Broker) -> Iterator[str]:
    table = _topics_of(broker)
    for topic, told in history.topics.items():
        if topic not in history.doubtful:
            wanted = None if told is None else (told[0], told[0], told[1])
            if table.get(topic) != wanted:
                yield f"topic {topic}: {table.get(topic)}, told: {wanted}"
    for topic in history.groups:
        if topic not in table:
            yield f"topic {topic}: None"
    serving = broker.controller.serving if broker.controller is not None else None
    if serving is not None:
        for group, retries in history.made_groups.items():
            config = serving.tables.metadata.groups.get(group)
            has = config.retry_max_times if config is not None else None
            if group not in history.doubtful and has != retries:
                yield f"group {group}: {has} retries, told: {retries}"


# Slaves.


async def check_slaves(brokers: Mapping[str, Broker], nodes: Iterable[Node], verdict: Verdict) -> None:
    """A slave that had time to catch up has its master's log. One whose master went back keeps what it has."""
    for node in nodes:
        if isinstance(node, Broker) and node not in brokers.values():
            master = brokers[node.broker_name]
            if master.restored:
                verdict.expect(
                    node.log_end() >= node.kept_bytes,
                    f"{node.name} has {node.log_end()} bytes, and had {node.kept_bytes} when its master went back",
                )
                continue
            verdict.failures += await within(CAUGHT_UP_SECONDS, lambda: _behind(node, master))  # noqa: B023


def _refuses(slave: Broker, master: Broker) -> bool:
    """Return whether the slave leaves it to an administrator to cut what it copied and its master lost in a crash. A
    slave that lost its own power may refuse as well: it takes the damage of its unsynced end for the master's loss."""
    serving = slave.controller.serving if slave.controller is not None and slave.is_running else None
    has_lost = any(how == "power" for node in (master, slave) for _, how in node.died_at) or bool(lossy_moments(master))
    return has_lost and serving is not None and serving.replication.follower.refused is not None


def _behind(slave: Broker, master: Broker) -> list[str]:
    if _refuses(slave, master):
        return []
    ours, theirs = store_of(slave), store_of(master)
    if ours is None or theirs is None:
        return [f"{slave.name} or its master does not run"]
    begin, end = theirs.reading.min_physical_offset, theirs.reading.max_physical_offset
    if ours.reading.max_physical_offset != end:
        return [f"{slave.name} has the log to {ours.reading.max_physical_offset}, its master to {end}"]
    if ours.reading.read_log(begin, end - begin) != theirs.reading.read_log(begin, end - begin):
        return [f"{slave.name} has another log than its master"]
    return []


# What is left of clients.


async def check_left_behind(
    brokers: Mapping[str, Broker], budgets: Mapping[str, MemoryBudget], verdict: Verdict
) -> None:
    """When all clients are gone, servers hold nothing of theirs."""
    verdict.failures += await within(GONE_SECONDS, lambda: list(_left_behind(brokers, budgets)))


def _left_behind(brokers: Mapping[str, Broker], budgets: Mapping[str, MemoryBudget]) -> Iterator[str]:
    for host, budget in budgets.items():
        if budget.held_bytes or budget.granted_bytes:
            yield f"{host} still counts {budget.held_bytes} and {budget.granted_bytes} bytes for clients that are gone"
    for name, broker in brokers.items():
        serving = broker.controller.serving if broker.controller is not None and broker.is_running else None
        if serving is None:
            continue
        if len(serving.pull.long_polling):
            yield f"{name} still holds {len(serving.pull.long_polling)} pulls of clients that are gone"
        groups = [group.name for group in serving.tables.metadata.consumers.groups()]
        if groups:
            yield f"{name} still has members of {', '.join(groups)}, all of which are gone"
