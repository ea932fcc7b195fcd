"""Files with the content of a cluster: topics and groups, main settings, usage."""

from __future__ import annotations

import time

from triomq.admin import bodies
from triomq.admin.commands.brokers import first_number, runtime_table
from triomq.admin.commands.name_servers import properties_of
from triomq.admin.commands.progress import version_name
from triomq.admin.commands.rates import rates_of
from triomq.admin.errors import AdminError
from triomq.admin.java_text import concurrent_order, pretty_json, string_map
from triomq.admin.run import ShowHelp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

DIRECTORY = "/tmp/rocketmq/export"

CONFIG_KEYS = (
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
)

SYSTEM_GROUPS = {
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    "CID_RMQ_SYS_TRANS",
}


def export_metadata(run: Run) -> None:
    directory = run.get("f") or DIRECTORY
    if run.has("b"):
        address = run.get("b")
        if run.has("t"):
            _write(run, directory, "topic.json", _topics(run, address))
        elif run.has("g"):
            _write(run, directory, "subscriptionGroup.json", _groups(run, address))
        else:
            raise ShowHelp
        return
    if not run.has("c"):
        raise ShowHelp
    topics: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for address in run.session.masters(run.get("c")):
        for name, config in _topics(run, address)["topicConfigTable"].items():
            if name in topics:  # queues of several masters are added up
                for count in ("writeQueueNums", "readQueueNums"):
                    config[count] += topics[name][count]
            topics[name] = config
        groups.update(_groups(run, address)["subscriptionGroupTable"])
    topics, groups, now = string_map(topics), string_map(groups), int(time.time() * 1000)
    if run.has("t"):
        _write(run, directory, "topic.json", {"exportTime": now, "topicConfigTable": topics})
    elif run.has("g"):
        _write(run, directory, "subscriptionGroup.json", {"exportTime": now, "subscriptionGroupTable": groups})
    else:
        tables = {"exportTime": now, "topicConfigTable": topics, "subscriptionGroupTable": groups}
        _write(run, directory, "metadata.json", tables)
    run.out.line()


def _topics(run: Run, address: str) -> dict[str, Any]:
    """Return the topics that users created; with -s also those for retries and dead letters."""
    body: dict[str, Any] = bodies.loads(run.session.call(address, 21).body)
    system = set(bodies.loads(run.session.call(address, 305).body).get("topicList", []))
    kept = {
        name: dict(sorted(body["topicConfigTable"][name].items()))
        for name in concurrent_order(list(body["topicConfigTable"]))
        if name not in system and (run.has("s") or not name.startswith(("%RETRY%", "%DLQ%")))
    }
    return {"dataVersion": _version(body), "topicConfigTable": kept}


def _groups(run: Run, address: str) -> dict[str, Any]:
    body: dict[str, Any] = bodies.loads(run.session.call(address, 201).body)
    kept = {
        name: dict(sorted(body["subscriptionGroupTable"][name].items()))
        for name in concurrent_order(list(body["subscriptionGroupTable"]))
        if name not in SYSTEM_GROUPS
    }
    return {"dataVersion": _version(body), "subscriptionGroupTable": kept}


def _version(body: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(body.get("dataVersion", {}).items()))


def _write(run: Run, directory: str, name: str, value: dict[str, Any]) -> None:
    path = f"{directory}/{name}"
    run.write_file(path, pretty_json(value).encode())
    run.out.text(f"export {path} success")
    run.out.item(path=path)


def export_configs(run: Run) -> None:
    cluster = run.get("c")
    masters = slaves = 0
    brokers: dict[str, Any] = {}
    for name in run.session.broker_names(cluster):
        for number, address in run.session.broker_addresses(name).items():
            if number != 0:
                slaves += 1
                continue
            masters += 1
            table = properties_of(run.session.call(address, 26).body)
            brokers[name] = {key: table.get(key, "") for key in concurrent_order(list(CONFIG_KEYS))}
    scale = {"namesrvSize": len(run.session.name_servers), "slaveBrokerSize": slaves, "masterBrokerSize": masters}
    value = {"clusterScale": string_map(scale), "brokerConfigs": string_map(brokers)}
    _write(run, run.get("f") or DIRECTORY, "configs.json", value)


# -- exportMetrics -----------------------------------------------------------------------------------------------------

RATES = {"normalInTps": 0.0, "normalOutTps": 0.0, "transInTps": 0.0, "scheduleInTps": 0.0}
COUNTS = {"normalOneDayInNum": 0, "normalOneDayOutNum": 0, "transOneDayInNum": 0, "scheduleOneDayInNum": 0}


def export_metrics(run: Run) -> None:
    rates = {f"total{name[0].upper()}{name[1:]}": 0.0 for name in RATES}
    counts = dict(COUNTS)
    report: dict[str, Any] = {}
    for name in run.session.broker_names(run.get("c")):
        address = run.session.broker_addresses(name).get(0)
        if address is None:
            continue
        report[name] = _broker_report(run, address)
        quota = report[name]["runtimeQuota"]
        for key, value in quota["tps"].items():
            rates[f"total{key[0].upper()}{key[1:]}"] += value
        for key, value in quota["oneDayNum"].items():
            counts[key] += value
    totals = {"totalTps": string_map(rates), "totalOneDayNum": string_map(counts)}
    value = {"totalData": string_map(totals), "evaluateReport": string_map(report)}
    _write(run, run.get("f") or DIRECTORY, "metrics.json", value)


def _broker_report(run: Run, address: str) -> dict[str, Any]:
    table = runtime_table(run, address)
    config = properties_of(run.session.call(address, 26).body)
    groups = _groups(run, address)["subscriptionGroupTable"]
    trans_tps, trans_count = rates_of(run, [address], "TOPIC_PUT_NUMS", "RMQ_SYS_TRANS_HALF_TOPIC")
    delay_tps, delay_count = rates_of(run, [address], "TOPIC_PUT_NUMS", "SCHEDULE_TOPIC_XXXX")
    tps = {
        "normalInTps": first_number(table, "putTps"),
        "normalOutTps": first_number(table, "getTransferedTps"),
        "transInTps": trans_tps,
        "scheduleInTps": delay_tps,
    }
    one_day = {
        "normalOneDayInNum": _day(table, "Put"),
        "normalOneDayOutNum": _day(table, "Get"),
        "transOneDayInNum": trans_count,
        "scheduleOneDayInNum": delay_count,
    }
    disk = {key: table.get(key, "") for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")}
    quota = {
        "diskRatio": string_map(disk),
        "topicSize": len(_topics(run, address)["topicConfigTable"]),
        "tps": string_map(tps),
        "groupSize": len(groups),
        "oneDayNum": string_map(one_day),
        "messageAverageSize": table.get("putMessageAverageSize", ""),
    }
    version = {
        "rocketmqVersion": table.get("brokerVersionDesc", ""),
        "clientInfo": tuple(sorted(_clients(run, address, groups))),
    }
    environment = {"cpuNum": config.get("clientCallbackExecutorThreads", "")}
    parts = {
        "runtimeEnv": environment,
        "runtimeQuota": string_map(quota),
        "runtimeVersion": string_map(version),
    }
    return string_map(parts)


def _clients(run: Run, address: str, groups: dict[str, Any]) -> set[str]:
    found: set[str] = set()
    for group in groups:
        try:
            body = bodies.loads(run.session.call(address, 203, {"consumerGroup": group}).body)
        except AdminError:
            continue  # no member of this group is online
        for connection in body.get("connectionSet") or []:
            found.add(f"{connection['language']}%{version_name(connection['version'])}")
    return found


def _day(table: dict[str, str], verb: str) -> int:
    """Return the messages of yesterday."""
    return int(table.get(f"msg{verb}TotalTodayMorning", "0")) - int(table.get(f"msg{verb}TotalYesterdayMorning", "0"))
