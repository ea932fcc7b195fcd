"""NameServers: key-value configuration, write permission of brokers, settings."""

from __future__ import annotations

from triomq.admin.commands.topics import delete_kv, put_kv
from triomq.admin.errors import AdminError
from triomq.admin.java_text import concurrent_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from triomq.admin.run import Run


def update_kv_config(run: Run) -> None:
    put_kv(run, run.get("s"), run.get("k"), run.get("v"))
    run.out.line("create or update kv config to namespace success.")
    run.out.item(namespace=run.get("s"), key=run.get("k"), value=run.get("v"))


def delete_kv_config(run: Run) -> None:
    delete_kv(run, run.get("s"), run.get("k"))
    run.out.line("delete kv config from namespace success.")
    run.out.item(namespace=run.get("s"), key=run.get("k"), deleted=True)


def wipe_write_perm(run: Run) -> None:
    _change_write_perm(run, 205, "wipe", "wipeTopicCount")


def add_write_perm(run: Run) -> None:
    _change_write_perm(run, 327, "add", "addTopicCount")


def _change_write_perm(run: Run, code: int, verb: str, count_field: str) -> None:
    broker = run.get("b")
    for address in run.session.required_name_servers():
        text = f"{verb} write perm of broker[{broker}] in name server[{address}]"
        try:
            response = run.session.call(address, code, {"brokerName": broker})
        except AdminError as error:
            run.out.line(f"{text} Failed")
            run.failed(str(error))
            continue
        count = int(response.fields.get(count_field, "0"))
        run.out.line(f"{text} OK, {count}")
        run.out.item(nameServer=address, brokerName=broker, topics=count)


def get_namesrv_config(run: Run) -> None:
    for address in run.session.required_name_servers():
        response = run.session.call(address, 319)
        run.out.line(f"============{address}============")
        table = properties_of(response.body)
        for key, value in table.items():
            run.out.line("%-50s=  %s" % (key, value))
        run.out.item(nameServer=address, settings=table)


def update_namesrv_config(run: Run) -> None:
    key = run.get("k")
    value = run.get("v")
    addresses = run.session.required_name_servers()
    for address in addresses:
        run.session.call(address, 318, body=f"{key}={value}\n".encode())
    run.out.line(f"update name server config success![{', '.join(addresses)}]")
    run.out.line(f"{key} : {value}")
    run.out.item(nameServers=addresses, key=key, value=value)


def properties_of(body: bytes) -> dict[str, str]:
    """Parse Java properties text to a table in the order of java.util.Properties."""
    from triomq.protocol.java_properties import parse

    table = parse(body.decode("utf-8", "replace"))
    return {key: table[key] for key in java_properties_order(table)}


def java_properties_order(table: Mapping[str, object]) -> list[str]:
    """Return keys as java.util.Properties iterates: those of a ConcurrentHashMap that begins with 16 buckets."""
    return concurrent_order(list(table))
