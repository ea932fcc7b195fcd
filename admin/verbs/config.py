"""config get, set, diff: settings of brokers, and where brokers differ."""

from __future__ import annotations

from triomq.admin.cluster_view import chosen_brokers
from triomq.admin.commands.name_servers import properties_of
from triomq.admin.errors import NotFound, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run

# Each broker has its own; they are in `config diff` only with --all.
OWN = {"brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort", "haListenPort", "haMasterAddress"}


def _settings(run: Run) -> dict[str, dict[str, str]]:
    return {name: properties_of(run.session.call(address, 26).body) for name, address in chosen_brokers(run).items()}


def config_get(run: Run) -> None:
    wanted = run.every("KEY")
    items = []
    for name, table in _settings(run).items():
        for key in wanted:
            if key not in table:
                near = sorted(each for each in table if key.lower() in each.lower())[:5]
                hint = f": perhaps {', '.join(near)}" if near else ""
                raise NotFound(f"broker {name!r} has no setting {key!r}{hint}")
        items += [
            {"brokerName": name, "key": key, "value": value}
            for key, value in sorted(table.items())
            if not wanted or key in wanted
        ]
    run.out.table({"brokerName": "BROKER", "key": "KEY", "value": "VALUE"}, items)


def config_set(run: Run) -> None:
    key = run.get("KEY")
    value = run.raw("VALUE")
    if not key or {"\n", "=", "#"} & set(key) or "\n" in value:
        raise UsageError("a key has no '=', '#' or line break, and a value no line break")
    items = []
    for name, address in chosen_brokers(run).items():
        before = properties_of(run.session.call(address, 26).body).get(key)
        if before is None:
            raise NotFound(f"broker {name!r} has no setting {key!r}: `mqadmin config get` shows those it has")
        run.session.call(address, 25, body=f"{key}={value}\n".encode())
        items.append({"brokerName": name, "key": key, "before": before, "value": value})
    run.out.table({"brokerName": "BROKER", "key": "KEY", "before": "BEFORE", "value": "VALUE"}, items)


def config_diff(run: Run) -> None:
    """Show the settings that are not the same at all brokers."""
    every = _settings(run)
    if len(every) < 2:
        raise UsageError("there is one broker: a difference needs two")
    items = []
    for key in sorted(set().union(*every.values())):
        if key in OWN and not run.has("all"):
            continue
        values = {name: table.get(key) for name, table in every.items()}
        if len(set(values.values())) > 1:
            items.append({"key": key, "values": values})
    rows = [{"key": item["key"], **item["values"]} for item in items]  # type: ignore[dict-item]
    if run.out.is_text:
        run.out.table({"key": "KEY", **{name: name for name in every}}, rows)
    else:
        for item in items:
            run.out.item(**item)
    run.exit_status = 1 if items else 0
