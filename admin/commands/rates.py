"""statsAll: incoming and outgoing rates by topic and group."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.commands.progress import consume_stats
from triomq.admin.errors import AdminError
from triomq.admin.java_text import front
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX, all_topics, groups_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run


def stats_all(run: Run) -> None:
    layout = "%-64s  %-64s %12s %11s %11s %14s %14s"
    names = ("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    run.out.header(layout % names)
    wanted = run.get("t")
    for topic in all_topics(run.session):
        if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or (wanted and topic != wanted):
            continue
        try:
            _topic_stats(run, topic, run.has("a"))
        except AdminError as error:
            run.failed(f"{topic}: {error}")


def _topic_stats(run: Run, topic: str, only_active: bool) -> None:
    layout = "%-64s  %-64s %12d %11.2f %11s %14d %14s"
    brokers = run.session.route(topic)["brokerDatas"]
    masters = [data["brokerAddrs"]["0"] for data in brokers if "0" in data["brokerAddrs"]]
    in_tps, in_count = rates_of(run, masters, "TOPIC_PUT_NUMS", topic)
    groups = groups_of(run.session, topic)
    for group in groups:
        out_tps, out_count = rates_of(run, masters, "GROUP_GET_NUMS", f"{topic}@{group}")
        backlog = max(0, _backlog(run, topic, group))
        if only_active and not in_count and not out_count:
            continue
        shown = (front(topic, 64), front(group, 64), backlog, in_tps, f"{out_tps:.2f}", in_count, out_count)
        run.out.line(layout % shown)
        run.out.item(
            topic=topic,
            group=group,
            accumulation=backlog,
            inTps=in_tps,
            outTps=out_tps,
            inMsg24Hour=in_count,
            outMsg24Hour=out_count,
        )
    if not groups and (in_count or not only_active):
        run.out.line(layout % (front(topic, 64), "", 0, in_tps, "", in_count, "NO_CONSUMER"))
        run.out.item(
            topic=topic, group=None, accumulation=0, inTps=in_tps, outTps=None, inMsg24Hour=in_count, outMsg24Hour=None
        )


def rates_of(run: Run, addresses: list[str], name: str, key: str) -> tuple[float, int]:
    """Return (messages a second in the last minute, messages in the last day) of VIEW_BROKER_STATS_DATA, over all
    brokers.
    """
    tps, count = 0.0, 0
    for address in addresses:
        try:
            response = run.session.call(address, 315, {"statsName": name, "statsKey": key})
        except AdminError:
            continue  # a broker without this counter refuses
        stats = bodies.loads(response.body)
        tps += stats["statsMinute"]["tps"]
        sums = [stats[part]["sum"] for part in ("statsDay", "statsHour", "statsMinute")]
        count += next((number for number in sums if number), 0)
    return tps, count


def _backlog(run: Run, topic: str, group: str) -> int:
    try:
        stats = consume_stats(run, group, topic)
    except AdminError:
        return 0
    return sum(row["brokerOffset"] - row["consumerOffset"] for queue, row in stats.rows if queue[0] == topic)
