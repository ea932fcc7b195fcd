"""Brokers: the list of a cluster, state, settings, cleaning."""

from __future__ import annotations

import time

from triomq.admin import bodies
from triomq.admin.commands.name_servers import properties_of
from triomq.admin.errors import AdminError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run


def cluster_list(run: Run) -> None:
    interval = run.number("i", 0)
    while True:
        _cluster_more(run) if run.has("m") else _cluster_rates(run)
        if interval <= 0:
            return
        run.out.line()
        run.pause(interval)
        run.session.forget_cluster_info()


def _brokers(run: Run) -> list[tuple[str, str, int, str, dict[str, str] | None]]:
    """Return (cluster, broker name, id, address, runtime table or None) of all brokers."""
    found: list[tuple[str, str, int, str, dict[str, str] | None]] = []
    for cluster, names in sorted(run.session.cluster_info().get("clusterAddrTable", {}).items()):
        for name in sorted(names):
            for number, address in run.session.broker_addresses(name).items():
                try:
                    table = runtime_table(run, address)
                except AdminError as error:
                    run.failed(str(error))
                    table = None
                found.append((cluster, name, number, address, table))
    return found


def runtime_table(run: Run, address: str) -> dict[str, str]:
    """Return the table of GET_BROKER_RUNTIME_INFO."""
    table: dict[str, str] = bodies.loads(run.session.call(address, 28).body)["table"]
    return table


def _cluster_rates(run: Run) -> None:
    layout = "%-16s  %-22s  %-4s  %-22s %-16s %19s %19s %10s %5s %6s"
    names = ("#Cluster Name", "#Broker Name", "#BID", "#Addr", "#Version", "#InTPS(LOAD)", "#OutTPS(LOAD)")
    run.out.header(layout % (*names, "#PCWait(ms)", "#Hour", "#SPACE"))
    for cluster, name, number, address, table in _brokers(run):
        cells = _rate_cells(table or {})
        run.out.line(layout % (cluster, name, number, address, *cells))
        version, _, _, wait, hours, space = cells
        run.out.item(
            cluster=cluster,
            brokerName=name,
            brokerId=number,
            address=address,
            version=version,
            inTps=first_number(table or {}, "putTps"),
            outTps=first_number(table or {}, "getTransferedTps"),
            pageCacheLockTimeMills=wait,
            hours=hours,
            space=space,
            runtime=table,
        )


def _rate_cells(table: dict[str, str]) -> tuple[str, str, str, str, str, str]:
    """Return version, in, out, page cache wait, age of the oldest message in hours, disk ratio."""
    rates = []
    for rate, pool in (("putTps", "sendThreadPoolQueue"), ("getTransferedTps", "pullThreadPoolQueue")):
        tps = first_number(table, rate)
        rates.append(f"{tps:9.2f}({table.get(pool + 'Size', '')},{table.get(pool + 'HeadWaitTimeMills', '')}ms)")
    earliest = table.get("earliestMessageTimeStamp")
    hours = (int(time.time() * 1000) - int(earliest)) / 3_600_000 if earliest else 0.0
    space = float(table.get("commitLogDiskRatio", 0.0) or 0.0)
    return (
        table.get("brokerVersionDesc", ""),
        rates[0],
        rates[1],
        table.get("pageCacheLockTimeMills", ""),
        f"{hours:2.2f}",
        f"{space:.4f}",
    )


def first_number(table: dict[str, str], key: str) -> float:
    """Return the first number of a text such as "0.0 0.2 0.1"."""
    words = table.get(key, "").split()
    return float(words[0]) if words else 0.0


def _cluster_more(run: Run) -> None:
    run.out.header(
        "%-16s  %-32s %14s %14s %14s %14s"
        % ("#Cluster Name", "#Broker Name", "#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
    )
    for cluster, name, _, _, table in _brokers(run):
        numbers = []
        for verb in ("Put", "Get"):
            yesterday, morning, now = [
                int((table or {}).get(f"msg{verb}Total{moment}", "0"))
                for moment in ("YesterdayMorning", "TodayMorning", "TodayNow")
            ]
            numbers += [morning - yesterday, now - morning]
        in_yesterday, in_today, out_yesterday, out_today = numbers
        shown = (in_yesterday, out_yesterday, in_today, out_today)
        run.out.line("%-16s  %-32s %14d %14d %14d %14d" % (cluster, name, *shown))
        run.out.item(
            cluster=cluster,
            brokerName=name,
            inTotalYest=in_yesterday,
            outTotalYest=out_yesterday,
            inTotalToday=in_today,
            outTotalToday=out_today,
        )


def broker_status(run: Run) -> None:
    of_cluster = not run.has("b")

    def show(address: str) -> None:
        table = runtime_table(run, address)
        for key, value in sorted(table.items()):
            run.out.line("%-24s %-32s: %s" % (address, key, value) if of_cluster else "%-32s: %s" % (key, value))
        run.out.item(address=address, runtime=dict(sorted(table.items())))

    run.for_each(run.targets(run.session.masters_and_slaves), show)


def get_broker_config(run: Run) -> None:
    if run.has("b"):
        _show_config(run, run.get("b"), f"============{run.get('b')}============")
        return
    run.targets(run.session.masters)
    for name in run.session.broker_names(run.get("c")):
        addresses = run.session.broker_addresses(name)
        master = addresses.get(0)
        if master is not None:
            _show_config(run, master, f"============Master: {master}============")
        for number, address in addresses.items():
            if number != 0:
                _show_config(run, address, f"============My Master: {master}=====Slave: {address}============")


def _show_config(run: Run, address: str, title: str) -> None:
    table = properties_of(run.session.call(address, 26).body)
    run.out.line(title)
    for key, value in table.items():
        run.out.line("%-50s=  %s" % (key, value))
    run.out.line()
    run.out.item(address=address, settings=table)


def update_broker_config(run: Run) -> None:
    key = run.get("k")
    value = run.get("v")

    def update(address: str) -> None:
        run.session.call(address, 25, body=f"{key}={value}\n".encode())
        run.out.line(f"update broker config success, {address}")
        run.out.item(address=address, key=key, value=value)

    run.for_each(run.targets(run.session.masters), update)


def clean_expired_cq(run: Run) -> None:
    _clean(run, 306)


def delete_expired_commit_log(run: Run) -> None:
    _clean(run, 329)


def clean_unused_topic(run: Run) -> None:
    _clean(run, 316)


def _clean(run: Run, code: int) -> None:
    """Run the cleaning at the broker of -b, else at all masters of the cluster of -c, else at those of all clusters."""
    if run.has("b"):
        addresses = [run.get("b")]
    else:
        clusters = [run.get("c")] if run.has("c") else list(run.session.cluster_info().get("clusterAddrTable", {}))
        addresses = [address for cluster in clusters for address in run.session.masters(cluster)]
    refused: list[str] = []
    for address in addresses:
        try:
            run.session.call(address, code, timeout_seconds=15)
        except AdminError as error:
            refused.append(str(error))
            run.failed(str(error))
    run.out.text("false" if refused or not addresses else "success")
    run.out.item(brokers=addresses, success=not refused)
