"""The location of topics, queues and groups: queries that several commands share."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.errors import AdminError, NotFound
from triomq.admin.java_text import hash_ordered, string_hash
from triomq.protocol import queue_keys
from triomq.protocol.errors import BodyError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.session import Session

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"


def any_address(broker: dict[str, Any]) -> str:
    """Return an address of a BrokerData: the master's, else the first slave's (BrokerData.selectBrokerAddr)."""
    addresses = {int(number): address for number, address in broker["brokerAddrs"].items()}
    if not addresses:
        raise NotFound(f"no address of broker {broker.get('brokerName')} is known")
    return str(addresses.get(0) or addresses[min(addresses)])


def queue_items(table: dict[Any, Any]) -> list[tuple[tuple[str, str, int], Any]]:
    """Return ((topic, broker name, queue id), value) of a map whose keys are MessageQueues."""
    try:
        return queue_keys.queue_items(table)
    except BodyError as error:
        raise AdminError(f"the body of the response is not JSON: {error}") from error


def all_topics(session: Session) -> list[str]:
    """Return GET_ALL_TOPIC_LIST_FROM_NAMESERVER, in HashSet's order."""
    topics = bodies.loads(session.ask_name_server(206).body).get("topicList", [])
    return hash_ordered(topics, [string_hash(topic) for topic in topics])


def groups_of(session: Session, topic: str) -> list[str]:
    """Return QUERY_TOPIC_CONSUME_BY_WHO of the first broker that responds, in HashSet's order."""
    for data in session.route(topic)["brokerDatas"]:
        groups = bodies.loads(session.call(any_address(data), 300, {"topic": topic}).body).get("groupList", [])
        return hash_ordered(groups, [string_hash(group) for group in groups])
    return []


def clusters_of(session: Session, topic: str) -> list[str]:
    """Return the clusters that have a broker of the topic, in HashMap's order."""
    info = session.cluster_info()
    [first, *_] = session.route(topic)["brokerDatas"] or [None]
    if first is None:
        return []
    found = [name for name, brokers in info["clusterAddrTable"].items() if first["brokerName"] in brokers]
    return hash_ordered(found, [string_hash(name) for name in found])
