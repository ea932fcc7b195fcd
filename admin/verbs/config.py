"""config get, set, diff: settings of brokers, and where brokers differ."""

from __future__ import annotations

from triomq.admin.cluster_view import chosen_members
from triomq.admin.commands.name_servers import properties_of
from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.table import LATER, ROWS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run

# Each broker has its own; they are in `config diff` only with --all.
OWN = {"brokerName", "brokerId", "brokerIP1", "brokerIP2", "listenPort", "haListenPort", "haMasterAddress"}
COLUMNS = {"brokerName": "BROKER", "brokerId": "ID", "key": "KEY"}


def _settings(run: Run, address: str) -> dict[str, str]:
    return properties_of(run.session.call(address, 26).body)


def config_get(run: Run) -> None:
    wanted = run.every("KEY")
    items = []
    for name, number, address in chosen_members(run):
        table = _settings(run, address)
        for key in wanted:
            _check_known(name, key, table)
        items += [
            {"brokerName": name, "brokerId": number, "key": key, "value": value}
            for key, value in sorted(table.items())
            if not wanted or key in wanted
        ]
    run.out.table({**COLUMNS, "value": "VALUE"}, items)


def config_set(run: Run) -> None:
    key = run.get("KEY")
    value = run.raw("VALUE")
    if not key or {"\n", "=", "#"} & set(key) or "\n" in value:
        raise UsageError("a key has no '=', '#' or line break, and a value no line break")
    items = []
    for name, number, address in chosen_members(run):
        try:
            table = _settings(run, address)
            _check_known(name, key, table)
            run.session.call(address, 25, body=f"{key}={value}\n".encode())
        except NotFound:
            raise
        except AdminError as error:  # the others are changed nevertheless
            run.failed(f"broker {name!r} with id {number}: {error}")
            continue
        items.append({"brokerName": name, "brokerId": number, "key": key, "before": table[key], "value": value})
    run.out.table({**COLUMNS, "before": "BEFORE", "value": "VALUE"}, items)


def config_diff(run: Run) -> None:
    """Show the settings that are not the same at all brokers. A master has its name; a slave NAME/ID."""
    every = {
        name if not number else f"{name}/{number}": _settings(run, address)
        for name, number, address in chosen_members(run)
    }
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


def _check_known(broker: str, key: str, table: dict[str, str]) -> None:
    """Raise NotFound for a key that a broker does not have, with those that are like it."""
    if key in table:
        return
    from difflib import get_close_matches

    for command, whose in (("updateSubGroup", "groups"), ("updateTopic", "topics")):
        options = next(options for name, _, *options in ROWS if name == command)
        for letter, name, *_ in [*options, *LATER.get(command, ())]:
            if name.lower() == key.lower():
                raise NotFound(f"{name} is a setting of {whose}, not of brokers: `mqadmin {command} -{letter}` sets it")
    by_case = {each.lower(): each for each in table}
    near = [each for name, each in by_case.items() if key.lower() in name]
    near = near or [by_case[name] for name in get_close_matches(key.lower(), by_case, 3)]
    hint = f": perhaps {', '.join(sorted(near)[:5])}" if near else "; `mqadmin config get` shows those it has"
    raise NotFound(f"broker {broker!r} has no setting {key!r}{hint}")
