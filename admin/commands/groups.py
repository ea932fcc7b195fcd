"""Consumer groups: create, change, delete, show."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.commands.topics import delete_topic_of_cluster
from triomq.admin.errors import AdminError
from triomq.admin.java_text import GROUP_FIELDS, group_config_text, plain
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run


def update_sub_group(run: Run) -> None:
    config: dict[str, Any] = {
        "groupName": run.get("g"),
        "consumeEnable": run.flag("s", True),
        "consumeFromMinEnable": run.flag("m"),
        "consumeBroadcastEnable": run.flag("d"),
        "retryQueueNums": run.number("q", 1),
        "retryMaxTimes": run.number("r", 16),
        "brokerId": run.number("i", 0),
        "whichBrokerWhenConsumeSlowly": run.number("w", 1),
        "notifyConsumerIdsChangedEnable": run.flag("a", True),
    }

    if run.has("o"):  # of RocketMQ 5; otherwise a group keeps what it has
        config["consumeMessageOrderly"] = run.flag("o")

    def create(address: str) -> None:
        run.session.call(address, 200, body=bodies.dumps(config))
        run.out.line(f"create subscription group to {address} success.")

    run.for_each(run.targets(run.session.masters), create)
    run.out.text(group_config_text(config))
    run.out.item(**config)


def delete_sub_group(run: Run) -> None:
    group = run.get("g")
    cluster = run.get("c")
    place = "" if run.has("b") else f" in cluster [{cluster}]"

    def delete(address: str) -> None:
        run.session.call(address, 207, {"groupName": group, "removeOffset": run.flag("r")})
        run.out.line(f"delete subscription group [{group}] from broker [{address}]{place} success.")

    run.for_each(run.targets(run.session.masters), delete)
    if not run.has("b"):
        for prefix in (RETRY_PREFIX, DLQ_PREFIX):
            delete_topic_of_cluster(run, cluster, prefix + group)
    run.out.item(group=group, deleted=True)


def get_consumer_config(run: Run) -> None:
    group = run.get("g")
    info = run.session.cluster_info()
    for name in info.get("brokerAddrTable", {}):
        addresses = run.session.broker_addresses(name)
        if not addresses:
            continue
        try:
            response = run.session.call(addresses.get(0) or addresses[min(addresses)], 201)
        except AdminError as error:
            run.failed(str(error))
            continue
        config = bodies.loads(response.body).get("subscriptionGroupTable", {}).get(group)
        if config is None:
            continue
        cluster = next((each for each, names in info["clusterAddrTable"].items() if name in names), "")
        run.out.line(f"============================={cluster}:{name}=============================")
        for field in GROUP_FIELDS:
            run.out.line("%-40s=  %s" % (field, plain(config.get(field))))
        run.out.item(cluster=cluster, brokerName=name, **config)
