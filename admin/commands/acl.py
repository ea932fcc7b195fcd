"""Accounts and the white list of brokers with ACL."""

from __future__ import annotations

import sys

from triomq.admin import bodies
from triomq.admin.errors import UsageError
from triomq.admin.java_text import date_time, iso_time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

MAX_SECRET_CHARACTERS = 4096


def update_acl_config(run: Run) -> None:
    fields: dict[str, Any] = {
        "accessKey": run.get("a"),
        "secretKey": _secret(run.get("s")),
        "whiteRemoteAddress": run.get("w") or None,
        "admin": run.flag("m") if run.has("m") else None,
        "defaultTopicPerm": run.get("i") or None,
        "defaultGroupPerm": run.get("u") or None,
        "topicPerms": run.get("t") or None,
        "groupPerms": run.get("g") or None,
    }

    def update(address: str) -> None:
        run.session.call(address, 50, fields)
        run.out.line(f"create or update plain access config to {address} success.")

    run.for_each(run.targets(run.session.masters_and_slaves), update)
    # Java prints the identity of an object here, which differs each time.
    run.out.text("org.apache.rocketmq.common.PlainAccessConfig@0")
    run.out.item(accessKey=run.get("a"), updated=True)


def _secret(text: str) -> str:
    """Return the secret; "-" stands for the first line of standard input. RocketMQ has no secret as short as that."""
    if text != "-":
        return text
    if sys.stdin.isatty():
        import getpass

        return getpass.getpass("Secret key: ").strip()
    secret = sys.stdin.readline(MAX_SECRET_CHARACTERS).strip()
    if not secret:
        raise UsageError("the secret key is empty: standard input has none")
    return secret


def delete_acl_config(run: Run) -> None:
    key = run.get("a")

    def delete(address: str) -> None:
        run.session.call(address, 51, {"accessKey": key})
        run.out.line(f"delete plain access config account from {address} success.")

    run.for_each(run.targets(run.session.masters_and_slaves), delete)
    run.out.text(f"account's accesskey is:{key}")
    run.out.item(accessKey=key, deleted=True)


def update_global_white_addr(run: Run) -> None:
    addresses = run.get("g")
    path = run.get("p")

    def update(address: str) -> None:
        run.session.call(address, 53, {"globalWhiteAddrs": addresses, "aclFileFullPath": path or None})
        run.out.text(f"update global white remote addresses to {address} success.\n")

    run.for_each(run.targets(run.session.masters_and_slaves), update)
    run.out.item(globalWhiteRemoteAddresses=addresses.split(","), updated=True)


def cluster_acl_config_version(run: Run) -> None:
    if run.has("b"):
        _show_versions(run, run.get("b"))
        run.out.line("get broker's plain access config version success.")
        return
    layout = "%-16s  %-22s  %-22s  %-20s  %-22s  %-22s"
    names = ("#Cluster Name", "#Broker Name", "#Broker Addr", "#AclFilePath")
    run.out.header(layout % (*names, "#AclConfigVersionNum", "#AclLastUpdateTime"))
    run.for_each(run.targets(run.session.masters), lambda address: _show_versions(run, address))
    run.out.line("get cluster's plain access config version success.")


def _show_versions(run: Run, address: str) -> None:
    fields = run.session.call(address, 52).fields
    every = bodies.loads(fields.get("allAclFileVersion", "{}").encode()) or {}
    if not every and fields.get("version"):
        every = {"": bodies.loads(fields["version"].encode())}
    for path, version in every.items():
        moment = version.get("timestamp", 0)
        cells = (fields.get("clusterName", ""), fields.get("brokerName", ""), fields.get("brokerAddr", ""), path)
        run.out.line("%-16s  %-22s  %-22s  %-20s  %-22s  %-22s" % (*cells, version.get("counter"), date_time(moment)))
        run.out.item(
            cluster=cells[0],
            brokerName=cells[1],
            address=cells[2],
            path=path,
            version=version.get("counter"),
            timestamp=moment,
            time=iso_time(moment),
        )


ACCOUNT_FIELDS = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "admin",
    "defaultTopicPerm",
    "defaultGroupPerm",
    "topicPerms",
    "groupPerms",
)


def get_acl_config(run: Run) -> None:
    run.for_each(run.targets(run.session.masters), lambda address: _show_accounts(run, address))


def _show_accounts(run: Run, address: str) -> None:
    body = bodies.loads(run.session.call(address, 54).body)
    run.out.line()
    addresses = body.get("globalWhiteAddrs") or []
    run.out.line(f"globalWhiteRemoteAddresses: [{', '.join(addresses)}]")
    run.out.line()
    run.out.line("accounts:")
    for account in body.get("plainAccessConfigs") or []:
        for name in ACCOUNT_FIELDS:
            run.out.line("%-1s %-18s: %s" % ("", name, _shown(account.get(name))))
        run.out.line()
        # JSON is for programs that keep what they read: it has no secrets.
        run.out.item(address=address, **{name: account.get(name) for name in ACCOUNT_FIELDS if name != "secretKey"})


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return str(value).lower() if isinstance(value, bool) else str(value)
