"""Topics: create, change, delete, show."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.java_text import (
    date_time_ms,
    front,
    iso_time,
    map_text,
    pretty_json,
    string_map,
    topic_config_text,
)
from triomq.admin.messages import queues_of
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX, all_topics, any_address, clusters_of, groups_of, queue_items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"


# -- creating, changing, deleting ----------------------------------------------------------------------------------


def update_topic(run: Run) -> None:
    system_flag = (1 if run.flag("u") else 0) | (2 if run.flag("s") else 0)
    config: dict[str, Any] = {
        "topicName": run.get("t"),
        "readQueueNums": run.number("r", 8),
        "writeQueueNums": run.number("w", 8),
        "perm": run.number("p", 6),
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": system_flag,
        "order": run.flag("o"),
    }
    if run.has("b"):
        address = run.get("b")
        create_topic(run, address, config)
        if config["order"]:
            name = _broker_name_of(run, address)
            entry = f"{name}:{config['writeQueueNums']}"
            _merge_order_configuration(run, config["topicName"], name, entry)
            run.out.text(f"set broker orderConf. isOrder={str(config['order']).lower()}, orderConf=[{entry}]")
        run.out.line(f"create topic to {address} success.")
    else:
        cluster = run.get("c")
        masters = run.session.masters(cluster)

        def create(address: str) -> None:
            create_topic(run, address, config)
            run.out.line(f"create topic to {address} success.")

        run.for_each(masters, create)
        if config["order"]:
            names = [name for name in run.session.broker_names(cluster) if 0 in run.session.broker_addresses(name)]
            text = ";".join([f"{name}:{config['writeQueueNums']}" for name in names])
            put_kv(run, ORDER_NAMESPACE, config["topicName"], text)
            run.out.text(f"set cluster orderConf. isOrder={str(config['order']).lower()}, orderConf=[{text}]")
    run.out.text(topic_config_text(config))
    run.out.item(**config)


def create_topic(run: Run, address: str, config: dict[str, Any]) -> None:
    """Create a topic at one broker (UPDATE_AND_CREATE_TOPIC)."""
    run.session.call(
        address,
        17,
        {
            "topic": config["topicName"],
            "defaultTopic": "TBW102",
            "readQueueNums": config["readQueueNums"],
            "writeQueueNums": config["writeQueueNums"],
            "perm": config["perm"],
            "topicFilterType": config["topicFilterType"],
            "topicSysFlag": config["topicSysFlag"],
            "order": config["order"],
        },
    )


def put_kv(run: Run, namespace: str, key: str, value: str) -> None:
    """Store a value at every NameServer (PUT_KV_CONFIG)."""
    run.for_each(
        run.session.required_name_servers(),
        lambda address: _ignore(run.session.call(address, 100, {"namespace": namespace, "key": key, "value": value})),
    )


def delete_kv(run: Run, namespace: str, key: str) -> None:
    """Delete a value at every NameServer (DELETE_KV_CONFIG)."""
    run.for_each(
        run.session.required_name_servers(),
        lambda address: _ignore(run.session.call(address, 102, {"namespace": namespace, "key": key})),
    )


def get_kv(run: Run, namespace: str, key: str) -> str:
    return run.session.ask_name_server(101, {"namespace": namespace, "key": key}).fields.get("value", "")


def _ignore(_: object) -> None:
    pass


def _broker_name_of(run: Run, address: str) -> str:
    for name, data in run.session.cluster_info().get("brokerAddrTable", {}).items():
        if address in data.get("brokerAddrs", {}).values():
            return str(name)
    raise NotFound(f"no NameServer knows a broker at {address}")


def _merge_order_configuration(run: Run, topic: str, broker_name: str, entry: str) -> None:
    """Merge the entry of one broker into those of the others."""
    try:
        present = get_kv(run, ORDER_NAMESPACE, topic)
    except AdminError:
        present = ""
    table = {text.partition(":")[0]: text for text in present.split(";") if text}
    table[broker_name] = entry
    put_kv(run, ORDER_NAMESPACE, topic, ";".join(table.values()))


def delete_topic(run: Run) -> None:
    delete_topic_of_cluster(run, run.get("c"), run.get("t"))
    run.out.item(topic=run.get("t"), cluster=run.get("c"), deleted=True)


def delete_topic_of_cluster(run: Run, cluster: str, topic: str) -> None:
    """Delete the topic at all masters, then at all NameServers."""
    run.for_each(
        run.session.masters(cluster), lambda address: _ignore(run.session.call(address, 215, {"topic": topic}))
    )
    run.out.line(f"delete topic [{topic}] from cluster [{cluster}] success.")
    run.for_each(
        run.session.required_name_servers(),
        lambda address: _ignore(run.session.call(address, 216, {"topic": topic, "clusterName": cluster})),
    )
    run.out.line(f"delete topic [{topic}] from NameServer success.")


def update_topic_perm(run: Run) -> None:
    topic = run.get("t")
    perm = run.number("p", 0)
    route = run.session.route(topic)
    first = route["queueDatas"][0]
    config = {
        "topicName": topic,
        "readQueueNums": first["readQueueNums"],
        "writeQueueNums": first["writeQueueNums"],
        "perm": perm,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": first.get("topicSysFlag", 0),
        "order": False,
    }
    old = first["perm"]
    if old == perm:
        run.out.line("new perm equals to the old one!")
        return
    done = f"update topic perm from {old} to {perm} in {{}} success."
    if run.has("b"):
        masters = [data["brokerAddrs"].get("0") for data in route["brokerDatas"]]
        if run.get("b") not in masters:
            run.out.line("updateTopicPerm error broker not exit or broker is not master!.")
            raise NotFound(f"{run.get('b')} is not a master of a broker that has topic {topic!r}")
        create_topic(run, run.get("b"), config)
        run.out.line(done.format(run.get("b")))
        run.out.text(topic_config_text(config) + ".\n")
    elif run.has("c"):
        for address in run.session.masters(run.get("c")):
            create_topic(run, address, config)
            run.out.line(done.format(address))
    else:
        raise UsageError("give a broker with -b or a cluster with -c")
    run.out.item(topic=topic, oldPerm=old, newPerm=perm)


def update_order_conf(run: Run) -> None:
    topic = run.get("t")
    method = run.get("m")
    if method == "get":
        value = get_kv(run, ORDER_NAMESPACE, topic)
        run.out.text(f"get orderConf success. topic=[{topic}], orderConf=[{value}] ")
    elif method == "put":
        value = run.get("v")
        if not value:
            raise UsageError("-m put needs the configuration with -v: broker1:queues;broker2:queues")
        put_kv(run, ORDER_NAMESPACE, topic, value)
        run.out.text(f"update orderConf success. topic=[{topic}], orderConf=[{value}]")
    elif method == "delete":
        value = ""
        delete_kv(run, ORDER_NAMESPACE, topic)
        run.out.text(f"delete orderConf success. topic=[{topic}]")
    else:
        raise UsageError(f"-m must be get, put or delete, not {method!r}")
    run.out.item(topic=topic, method=method, orderConf=value)


# -- showing ---------------------------------------------------------------------------------------------------------


def topic_route(run: Run) -> None:
    route = run.session.route(run.get("t"))
    if run.has("l"):
        _route_table(run, route)
    else:
        run.out.line(pretty_json(route_in_java_order(route)))
    run.out.item(**route)


def route_in_java_order(route: dict[str, Any]) -> dict[str, Any]:
    """Sort members by name, with broker ids as numbers, as fastjson writes a TopicRouteData."""
    result: dict[str, Any] = {
        "brokerDatas": [
            {
                "brokerAddrs": {int(number): address for number, address in sorted(data["brokerAddrs"].items())},
                "brokerName": data["brokerName"],
                "cluster": data["cluster"],
            }
            for data in route["brokerDatas"]
        ],
        "filterServerTable": route.get("filterServerTable") or {},
    }
    if route.get("orderTopicConf"):
        result["orderTopicConf"] = route["orderTopicConf"]
    result["queueDatas"] = [dict(sorted(data.items())) for data in route["queueDatas"]]
    return result


def _route_table(run: Run, route: dict[str, Any]) -> None:
    layout = "%-45s %-32s %-50s %-10s %-11s %-5s"
    run.out.header(layout % ("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"))
    queues = {data["brokerName"]: data for data in route["queueDatas"]}
    names = sorted(data["brokerName"] for data in route["brokerDatas"])
    brokers = {data["brokerName"]: data for data in route["brokerDatas"]}
    read = write = 0
    for name in names:
        data, queue = brokers[name], queues.get(name)
        if queue is None:
            continue
        addresses = map_text({int(number): address for number, address in sorted(data["brokerAddrs"].items())})
        run.out.line(
            layout % (data["cluster"], name, addresses, queue["readQueueNums"], queue["writeQueueNums"], queue["perm"])
        )
        read += queue["readQueueNums"]
        write += queue["writeQueueNums"]
    run.out.line("-" * 158)
    run.out.line(layout % ("Total:", len(names), "", read, write, ""))


def topic_status(run: Run) -> None:
    topic = run.get("t")
    rows: list[tuple[str, int, dict[str, Any]]] = []
    for data in run.session.route(topic)["brokerDatas"]:
        address = any_address(data)
        table = bodies.loads(run.session.call(address, 202, {"topic": topic}).body).get("offsetTable", {})
        rows += [(queue[1], queue[2], offsets) for queue, offsets in queue_items(table)]
    if not rows:
        raise NotFound("Not found the topic stats info")
    layout = "%-32s  %-4s  %-20s  %-20s    %s"
    run.out.header(layout % ("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"))
    for name, queue_id, offsets in sorted(rows, key=lambda row: row[:2]):
        updated = offsets.get("lastUpdateTimestamp", 0)
        shown = date_time_ms(updated) if updated > 0 else ""
        run.out.line(layout % (front(name, 32), queue_id, offsets["minOffset"], offsets["maxOffset"], shown))
        run.out.item(
            brokerName=name,
            queueId=queue_id,
            minOffset=offsets["minOffset"],
            maxOffset=offsets["maxOffset"],
            lastUpdateTimestamp=updated,
            lastUpdate=iso_time(updated),
        )


def topic_cluster_list(run: Run) -> None:
    topic = run.get("t")
    clusters = clusters_of(run.session, topic)
    for cluster in clusters:
        run.out.line(cluster)
        run.out.item(topic=topic, cluster=cluster)


def topic_list(run: Run) -> None:
    topics = all_topics(run.session)
    if not run.has("c"):
        for topic in topics:
            run.out.line(topic)
            run.out.item(topic=topic)
        return
    run.out.header("%-20s  %-48s  %-48s" % ("#Cluster Name", "#Topic", "#Consumer Group"))
    layout = "%-20s  %-64s  %-64s"
    for topic in topics:
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
            continue
        try:
            clusters = clusters_of(run.session, topic)
            cluster = clusters[0] if clusters else ""
            groups = groups_of(run.session, topic)
        except AdminError as error:
            run.failed(str(error))
            cluster, groups = "", []
        for group in groups or [""]:
            run.out.line(layout % (front(cluster, 20), front(topic, 64), front(group, 64)))
        run.out.item(cluster=cluster, topic=topic, groups=groups)


def allocate_mq(run: Run) -> None:
    """Divide all write queues as a client of each address would (AllocateMessageQueueAveragely)."""
    topic = run.get("t")
    addresses = [text for text in run.get("i").split(",") if text]
    queues = [(queue.broker_name, queue.queue_id) for queue in queues_of(run, topic)]
    result: dict[str, list[dict[str, Any]]] = {}
    for index, address in enumerate(addresses):
        share, rest = divmod(len(queues), len(addresses))
        size = share + (1 if index < rest else 0)
        begin = index * share + min(index, rest)
        result[address] = [
            {"brokerName": name, "queueId": number, "topic": topic} for name, number in queues[begin : begin + size]
        ]
    ordered = string_map(result)
    run.out.line(bodies.dumps({"result": ordered}).decode())
    run.out.item(result=ordered)
