"""restore: what a backup has and a cluster lacks is created; what differs is shown, and changed only with --overwrite.

The order is that of dependence: topics, groups, key-value configuration, accounts, messages, offsets. A queue receives
messages only while it is empty, and offsets are set as far as the queue reaches, so that nothing new is skipped.
"""

from __future__ import annotations

import os
from functools import partial

from triomq.admin import backup_file, bodies
from triomq.admin.backup_messages import queue_ends, restore_messages
from triomq.admin.cluster_view import broker_table, members
from triomq.admin.commands.offsets import set_offset
from triomq.admin.commands.topics import create_topic, put_kv
from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.session import Refused
from triomq.admin.verbs.backup import kv_table, saved_accounts, saved_groups, saved_offsets, saved_topics

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from triomq.admin.backup_messages import Restored
    from triomq.admin.run import Run

# `order` is not among them: brokers take it from the pairs of ORDER_TOPIC_CONFIG at each registration.
TOPIC_FIELDS = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag")
SETTINGS_STAY = (
    "The settings of brokers are left alone, because they have paths and addresses of one machine: "
    "compare them with the backup, and change them with `mqadmin config set`."
)
CREATED, CHANGED, KEPT, SAME, FAILED = "created", "changed", "kept", "same", "failed"
COLUMNS = {
    "kind": "KIND",
    "name": "NAME",
    "brokerName": "BROKER",
    "result": "RESULT",
    "before": "PRESENT",
    "after": "BACKUP",
}


def restore(run: Run) -> None:
    directory = run.get("DIR")
    saved = backup_file.read(directory)
    restorer = Restorer(run, saved)
    restorer.everything(directory)
    shown = [item for item in restorer.items if run.has("all") or item["result"] != SAME]
    run.out.table(COLUMNS, shown)
    if any(broker["settings"] for broker in saved["brokers"].values()):
        run.out.line(SETTINGS_STAY)
    counts = {
        result: sum([item["result"] == result for item in restorer.items])
        for result in (CREATED, CHANGED, KEPT, SAME, FAILED)
    }
    run.out.line(", ".join([f"{count} {result}" for result, count in counts.items() if count]) or "nothing in it")
    if run.is_plan:
        return  # its steps say all of that
    if counts[KEPT]:
        run.failed(f"{counts[KEPT]} differ from the backup and were kept: --overwrite changes them")
    if counts[FAILED]:
        run.failed(f"{counts[FAILED]} failed")


class Restorer:
    """`items` are what was compared, and what was done about it."""

    def __init__(self, run: Run, saved: backup_file.Backup) -> None:
        self._run = run
        self._saved = saved
        self._brokers = self._targets()
        self.items: list[dict[str, Any]] = []

    def _targets(self) -> dict[str, dict[int, str]]:
        """Return the addresses of the broker that takes the place of each saved one. Raises NotFound without it."""
        other: dict[str, str] = {}
        for text in self._run.every("map"):
            name, separator, target = text.partition("=")
            if not separator or name not in self._saved["brokers"]:
                raise UsageError(f"--map is NAME=NAME, first a broker of the backup: {text!r}")
            other[name] = target
        present = broker_table(self._run)
        found = {}
        for name in self._saved["brokers"]:
            target = other.get(name, name)
            if 0 not in present.get(target, {}):
                hint = ", ".join(present) or "none"
                raise NotFound(f"no master of broker {target!r} is registered ({hint}): --map {name}=OTHER chooses one")
            found[name] = present[target]
        if len({addresses[0] for addresses in found.values()}) < len(found):
            raise UsageError("two brokers of the backup cannot be restored into one")
        return found

    def everything(self, directory: str) -> None:
        for name, addresses in self._brokers.items():
            self._topics(name, addresses[0])
            self._groups(name, addresses[0])
        self._kv()
        for name, addresses in self._brokers.items():
            for address in addresses.values():
                self._acl(name, address)
        restored: Restored = {}
        masters = {name: addresses[0] for name, addresses in self._brokers.items()}
        for topic, entry in self._saved["messages"].items():
            path = os.path.join(directory, entry["file"])
            found, failures = restore_messages(self._run, path, topic, masters)
            restored.update(found)
            for (broker, _, queue_id), (_, count) in found.items():
                self._note("messages", f"{topic}/{queue_id}", broker, CREATED, after=count)
            for broker, queue_id, present in failures:
                self._note("messages", f"{topic}/{queue_id}", broker, FAILED, before=present)
        for name, addresses in self._brokers.items():
            self._offsets(name, addresses[0], restored)

    # -- one thing -----------------------------------------------------------------------------------------------------

    def _note(
        self, kind: str, name: str, broker: str | None, result: str, before: object = None, after: object = None
    ) -> None:
        self.items.append(
            {"kind": kind, "name": name, "brokerName": broker, "result": result, "before": before, "after": after}
        )

    def _fail(self, text: str) -> None:
        """Report what fails; a plan shows it among its steps, and continues."""
        if self._run.is_plan:
            self._run.change("warn", f"would fail: {text}", lambda: None)
        else:
            self._run.failed(text)

    def _settle(
        self, kind: str, name: str, broker: str | None, states: tuple[Any, Any], change: Callable[[], object]
    ) -> None:
        """Compare what is present with the backup, and change it where that is allowed."""
        before, after = states
        if before == after:
            self._note(kind, name, broker, SAME, before, after)
            return
        if before is not None and not self._run.has("overwrite"):
            place = f" at {broker}" if broker else ""
            text = f"keep {kind} {name}{place}, which differs: {bodies.dumps(before).decode()}, in the backup "
            self._run.change("keep", text + bodies.dumps(after).decode(), lambda: None)
            self._note(kind, name, broker, KEPT, before, after)
            return
        try:
            change()
        except Refused as error:
            self._fail(str(error))
            self._note(kind, name, broker, FAILED, before, after)
            return
        self._note(kind, name, broker, CREATED if before is None else CHANGED, before, after)

    # -- kinds ---------------------------------------------------------------------------------------------------------

    def _topics(self, broker: str, address: str) -> None:
        present = saved_topics(self._run, address)
        for name, config in self._saved["brokers"][broker]["topics"].items():
            after = {key: config.get(key) for key in TOPIC_FIELDS}
            before = {key: present[name].get(key) for key in TOPIC_FIELDS} if name in present else None
            whole = {"topicFilterType": "SINGLE_TAG", **config, "topicName": name}
            self._settle("topic", name, broker, (before, after), partial(create_topic, self._run, address, whole))

    def _groups(self, broker: str, address: str) -> None:
        present = saved_groups(self._run, address)
        for name, config in self._saved["brokers"][broker]["groups"].items():
            before = {key: present[name].get(key) for key in config} if name in present else None
            body = bodies.dumps({**config, "groupName": name})
            change = partial(self._run.session.call, address, 200, body=body)
            self._settle("group", name, broker, (before, config), change)

    def _kv(self) -> None:
        for namespace, table in self._saved["kv"].items():
            present = kv_table(self._run, namespace)
            for key, value in table.items():
                change = partial(put_kv, self._run, namespace, key, value)
                self._settle("kv", f"{namespace}/{key}", None, (present.get(key), value), change)

    def _acl(self, broker: str, address: str) -> None:
        saved = self._saved["brokers"][broker]["acl"]
        if not saved:
            return
        try:
            present = saved_accounts(self._run, address, True)
        except AdminError as error:
            self._fail(f"accounts of {broker}: {error}")
            self._note("acl", address, broker, FAILED)
            return
        texts = saved["whiteAddresses"]
        if texts:
            fields = {"globalWhiteAddrs": ",".join(texts)}
            self._settle(
                "whiteAddresses",
                address,
                broker,
                (present["whiteAddresses"] or None, texts),
                lambda: self._run.session.call(address, 53, fields),
            )
        accounts = {account["accessKey"]: account for account in present["accounts"]}
        for account in saved["accounts"]:
            self._account(broker, address, account, accounts.get(account.get("accessKey")))

    def _account(self, broker: str, address: str, saved: dict[str, Any], present: dict[str, Any] | None) -> None:
        """Compare with the secret if the backup has it, but never show one."""
        name = str(saved.get("accessKey"))
        secret = saved.get("secretKey") or (present or {}).get("secretKey")
        if secret is None:
            self._fail(f"account {name} is new at {broker}, and the backup has no secret: use updateAclConfig")
            self._note("account", name, broker, FAILED)
            return
        before = None if present is None else {key: present.get(key) for key in saved}
        fields = {**saved, "secretKey": secret}
        for key in ("topicPerms", "groupPerms"):
            fields[key] = ",".join(saved.get(key) or []) or None
        states = _without_secrets(before, saved)
        self._settle("account", name, broker, states, lambda: self._run.session.call(address, 50, fields))

    def _offsets(self, broker: str, address: str, restored: Restored) -> None:
        saved = self._saved["brokers"][broker]["offsets"]
        present = saved_offsets(self._run, address, {topic: None for topics in saved.values() for topic in topics})
        ends: dict[str, dict[int, int]] = {}
        for group, topics in saved.items():
            online = members(self._run, group)
            if online:
                names = ", ".join(sorted(online)[:3])
                self._fail(f"group {group}: members are online ({names}) and would overwrite offsets: stop them")
                if not self._run.is_plan:
                    self._note("offset", group, broker, FAILED)
                    continue
            for topic, queues in topics.items():
                if topic not in ends:
                    ends[topic] = queue_ends(self._run, address, topic)
                for text, offset in queues.items():
                    number = int(text)
                    first, count = restored.get((broker, topic, number), (0, 0))
                    end = max(count, ends[topic].get(number, 0))
                    after = max(0, min(offset - first, end))
                    before = present.get(group, {}).get(topic, {}).get(text)
                    change = partial(set_offset, self._run, address, group, topic, number, after)
                    self._settle("offset", f"{group}/{topic}/{number}", broker, (before, after), change)


def _without_secrets(before: dict[str, Any] | None, after: dict[str, Any]) -> tuple[Any, Any]:
    """Return both states without their secrets; a secret that differs is a word in both."""
    shown_after = {key: value for key, value in after.items() if key != "secretKey"}
    if before is None:
        return None, shown_after
    shown_before = {key: value for key, value in before.items() if key != "secretKey"}
    if before.get("secretKey") != after.get("secretKey"):
        return {**shown_before, "secretKey": "another"}, {**shown_after, "secretKey": "that of the backup"}
    return shown_before, shown_after
