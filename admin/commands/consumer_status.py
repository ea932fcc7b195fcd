"""consumerStatus: the state that members of a group report. startMonitoring: the same for all groups, repeatedly."""

from __future__ import annotations

import os
import time

from triomq.admin.commands.name_servers import java_properties_order
from triomq.admin.commands.progress import PUSH, consume_stats, consumer_connections, running_info, version_name
from triomq.admin.errors import AdminError
from triomq.admin.java_text import plain, queue_text
from triomq.admin.output import warn
from triomq.admin.routes import RETRY_PREFIX, all_topics, queue_items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

BLOCKED_MS = 60_000
ROUND_SECONDS = 60


def consumer_status(run: Run) -> None:
    group = run.get("g")
    with_stacks = run.has("s")
    if run.has("i"):
        info = running_info(run, group, run.get("i"), with_stacks=with_stacks)
        run.out.text(info_text(info))
        run.out.item(clientId=run.get("i"), **_info_item(info))
        return
    connections = consumer_connections(run, group, run.get("b"))["connectionSet"]
    now = int(time.time() * 1000)
    layout = "%-10s %-40s %-20s %s"
    run.out.header(layout % ("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    infos: dict[str, dict[str, Any]] = {}
    for connection in connections:
        client = connection["clientId"]
        try:
            info = running_info(run, group, client, with_stacks=with_stacks)
        except AdminError as error:
            run.failed(str(error))
            continue
        infos[client] = info
        path = f"{now}/{client}"
        if run.out.is_text:
            run.write_file(os.path.join(str(now), client.replace("/", "_")), info_text(info).encode())
        run.out.line(layout % (len(infos), client, version_name(connection["version"]), path))
        run.out.item(clientId=client, **_info_item(info))
    if infos:
        run.out.text(_judgement(infos))


def _info_item(info: dict[str, Any]) -> dict[str, Any]:
    """Return a ConsumerRunningInfo as JSON: its map by queue becomes a list."""
    queues = [
        {"topic": topic, "brokerName": name, "queueId": number, **state}
        for (topic, name, number), state in sorted(queue_items(info.get("mqTable", {})), key=lambda item: item[0])
    ]
    return {**info, "mqTable": queues}


def _judgement(infos: dict[str, dict[str, Any]]) -> str:
    subscriptions = {
        tuple(sorted((each["topic"], each["subString"]) for each in info.get("subscriptionSet", ())))
        for info in infos.values()
    }
    if len(subscriptions) > 1:
        return "\n\nWARN: Different subscription in the same group of consumer!!!"
    held = [queue for info in infos.values() for queue, _ in queue_items(info.get("mqTable", {}))]
    is_good = len(held) == len(set(held))
    lines = ["\n\nSame subscription in the same group of consumer", f"\n\nRebalance {'OK' if is_good else 'Failed'}\n"]
    return "".join([*lines, *[_stuck_queues(client, info) for client, info in sorted(infos.items())]])


def _stuck_queues(client: str, info: dict[str, Any]) -> str:
    """Return the queues that make no progress (ConsumerRunningInfo.analyzeProcessQueue)."""
    properties = info.get("properties", {})
    if properties.get("PROP_CONSUME_TYPE") != PUSH:
        return ""
    now = int(time.time() * 1000)
    lines = []
    for queue, state in sorted(queue_items(info.get("mqTable", {})), key=lambda item: item[0]):
        name = queue_text(*queue)
        if properties.get("PROP_CONSUMEORDERLY") == "true":
            if not state.get("locked"):
                lines.append(f"{client} {name} can't lock for a while, {now - state.get('lastLockTimestamp', 0)}ms\n")
            elif state.get("droped") and state.get("tryUnlockTimes", 0) > 0:
                lines.append(f"{client} {name} unlock {state['tryUnlockTimes']} times, still failed\n")
        else:
            silent = now - state.get("lastConsumeTimestamp", 0)
            if silent > BLOCKED_MS and state.get("cachedMsgCount", 0) > 0:
                lines.append(f"{client} {name} can't consume for a while, maybe blocked, {silent}ms\n")
    return "".join(lines)


# -- ConsumerRunningInfo.formatString ----------------------------------------------------------------------------------


def info_text(info: dict[str, Any]) -> str:
    queues = sorted(queue_items(info.get("mqTable", {})), key=lambda item: item[0])
    parts = ["#Consumer Properties#\n"]
    properties = info.get("properties", {})
    parts += ["%-40s: %s\n" % (key, properties[key]) for key in java_properties_order(properties)]
    parts.append("\n\n#Consumer Subscription#\n")
    subscriptions = sorted(info.get("subscriptionSet", ()), key=lambda each: f"{each['topic']}@{each['subString']}")
    for number, each in enumerate(subscriptions, 1):
        shown = (number, each["topic"], plain(each.get("classFilterMode", False)), each["subString"])
        parts.append("%03d Topic: %-40s ClassFilter: %-8s SubExpression: %s\n" % shown)
    layout = "%-64s  %-32s  %-4s  %-20s\n"
    parts.append("\n\n#Consumer Offset#\n" + layout % ("#Topic", "#Broker Name", "#QID", "#Consumer Offset"))
    parts += ["%-32s  %-32s  %-4d  %-20d\n" % (*queue, state["commitOffset"]) for queue, state in queues]
    parts.append("\n\n#Consumer MQ Detail#\n" + layout % ("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo"))
    parts += ["%-64s  %-32s  %-4d  %s\n" % (*queue, _queue_state_text(state)) for queue, state in queues]
    parts.append(_rates_text(info.get("statusTable", {})))
    if info.get("jstack") is not None:
        parts.append(f"\n\n#Consumer jstack#\n{info['jstack']}")
    return "".join(parts)


def _queue_state_text(state: dict[str, Any]) -> str:
    """Return the text of ProcessQueueInfo.toString."""
    numbers = (
        "commitOffset",
        "cachedMsgMinOffset",
        "cachedMsgMaxOffset",
        "cachedMsgCount",
        "cachedMsgSizeInMiB",
        "transactionMsgMinOffset",
        "transactionMsgMaxOffset",
        "transactionMsgCount",
    )
    pairs = [f"{name}={state.get(name, 0)}" for name in numbers]
    pairs.append(f"locked={plain(state.get('locked', False))}")
    pairs.append(f"tryUnlockTimes={state.get('tryUnlockTimes', 0)}")
    pairs.append(f"lastLockTimestamp={_compact_time(state.get('lastLockTimestamp', 0))}")
    pairs.append(f"droped={plain(state.get('droped', False))}")
    pairs.append(f"lastPullTimestamp={_compact_time(state.get('lastPullTimestamp', 0))}")
    pairs.append(f"lastConsumeTimestamp={_compact_time(state.get('lastConsumeTimestamp', 0))}")
    return f"ProcessQueueInfo [{', '.join(pairs)}]"


def _compact_time(ms: int) -> str:
    """Return yyyyMMddHHmmssSSS in local time (UtilAll.timeMillisToHumanString)."""
    return f"{time.strftime('%Y%m%d%H%M%S', time.localtime(ms // 1000))}{ms % 1000:03}"


def _rates_text(table: dict[str, dict[str, Any]]) -> str:
    layout = "%-64s  %14s %14s %14s %14s %18s %25s\n"
    names = ("#Topic", "#Pull RT", "#Pull TPS", "#Consume RT", "#ConsumeOK TPS", "#ConsumeFailed TPS")
    lines = ["\n\n#Consumer RT&TPS#\n", layout % (*names, "#ConsumeFailedMsgsInHour")]
    for topic, rates in sorted(table.items()):
        values = [rates.get(key, 0.0) for key in ("pullRT", "pullTPS", "consumeRT", "consumeOKTPS", "consumeFailedTPS")]
        lines.append(
            "%-32s  %14.2f %14.2f %14.2f %14.2f %18.2f %25d\n" % (topic, *values, rates.get("consumeFailedMsgs", 0))
        )
    return "".join(lines)


# -- startMonitoring ---------------------------------------------------------------------------------------------------


def start_monitoring(run: Run) -> None:
    """Run a round each minute until interrupted. Problems go to standard error; RocketMQ writes them to its log."""
    while True:
        for group in _groups(run):
            _monitor(run, group)
        run.pause(ROUND_SECONDS)


def _groups(run: Run) -> list[str]:
    return [topic.removeprefix(RETRY_PREFIX) for topic in all_topics(run.session) if topic.startswith(RETRY_PREFIX)]


def _monitor(run: Run, group: str) -> None:
    try:
        stats = consume_stats(run, group)
    except AdminError:
        return  # a group that never consumed has nothing to report
    if stats.backlog > 0:
        warn(f"group {group}: {stats.backlog} messages behind")
        run.out.item(group=group, diffTotal=stats.backlog)
    try:
        connections = consumer_connections(run, group)["connectionSet"]
    except AdminError:
        return  # nobody is online
    for connection in connections:
        try:
            stuck = _stuck_queues(connection["clientId"], running_info(run, group, connection["clientId"]))
        except AdminError as error:
            warn(f"group {group}: {error}")
            continue
        if stuck:
            warn(f"group {group}: {stuck.rstrip()}")
