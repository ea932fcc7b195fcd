"""Actions on accounts: create, change and delete them, and change the addresses that need none.

Nobody types a secret key: an action makes one when it is confirmed, and the page of its result is the only one that has
it. docs/internals/dashboard.md says why.
"""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.accounts import MIN_KEY_LENGTH, check_patterns
from triomq.broker.acl.addresses import EVERYTHING
from triomq.broker.acl.errors import AclUpdateRefused
from triomq.broker.processors.acl import split_list
from triomq.broker.replication.master_account import MasterAccount
from triomq.broker.views.brokers import Brokers, Places
from triomq.broker.views.operator import Requests
from triomq.dashboard.actions import Act, Action, ActionRefused, Fact, Preview, Result, Row
from triomq.dashboard.render import link_text
from triomq.dashboard.views import Ask, NotThere, Steps, View
from triomq.protocol.bodies.acl import PlainAccessConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand

CREATE: Final = "/act/account/create"
CHANGE: Final = "/act/account"
DELETE: Final = "/act/account/delete"
WHITE: Final = "/act/white-addresses"
MOST_ROWS: Final = 200
"""Permissions of one account on a page."""
MOST_CHARACTERS: Final = 15_000
"""Of the permissions of one account, in a form."""
SECRET_BYTES: Final = 24
_PERMISSIONS: Final = ("DENY", "PUB", "SUB", "PUB|SUB")
_ABOUT: Final = ("name", "admin", "addresses", "default_topic", "default_group", "permissions")
_NO_ADDRESS: Final = " "
"""Takes the addresses of an account away: brokers leave them as they are for an empty text, and read this as none."""
_LABELS: Final = {
    "admin": "Administrator",
    "addresses": "Addresses that need no signature",
    "topics": "Other topics",
    "groups": "Other groups",
}
OWN_ACCOUNT: Final = "This broker signs its own requests with this account (conf/tools.yml): slaves copy with it."
NEW_SECRET: Final = "Clients that have the old secret key are refused as soon as this is confirmed; sessions here end."
EVERYBODY: Final = "A pattern stands for all addresses: everybody who reaches the brokers needs no account."


class AccountActions:
    """Forms, previews and changes of accounts. `own` is the account of this broker at others."""

    def __init__(self, access: AccessTable, brokers: Brokers, own: MasterAccount) -> None:
        self._access = access
        self._brokers = brokers
        self._own = own

    def views(self) -> list[View]:
        """Return the pages with forms."""
        return [
            View("/edit-account", "Create an account", "edit_account.html", self.form, "/accounts", False, True),
            View("/edit-white", "Change the addresses", "edit_white.html", self.white_form, "/accounts", False, True),
        ]

    def actions(self) -> list[Action]:
        """Return what may be done."""
        return [
            Action(
                CREATE,
                "Create the account",
                _ABOUT,
                self.preview_creation,
                self.create,
                of="/accounts",
                long_field="permissions",
            ),
            Action(
                CHANGE,
                "Change the account",
                (*_ABOUT, "secret"),
                self.preview_change,
                self.change,
                of="/accounts",
                long_field="permissions",
            ),
            Action(
                DELETE,
                "Delete the account",
                ("name",),
                self.preview_deletion,
                self.delete,
                of="/accounts",
                warning="Clients that have this account are refused as soon as this is confirmed.",
            ),
            Action(
                WHITE,
                "Change the addresses",
                ("addresses",),
                self.preview_white,
                self.change_white,
                of="/accounts",
                long_field="addresses",
            ),
        ]

    def form(self, ask: Ask) -> Steps:
        """Make the form of an account: with what it has now, or an empty one."""
        name = ask.query.get("name", "")
        config = self._access.config(name) if name else PlainAccessConfig()
        if config is None:
            raise NotThere(f"there is no account {name!r}")
        permissions = "\n".join([f"{resource}={permission}" for resource, permission in _table(config).items()])
        if len(permissions) > MOST_CHARACTERS:
            raise NotThere("this account has more permissions than a form takes: mqadmin updateAclConfig changes them")
        yield
        return {
            "name": name,
            "is_admin": config.admin,
            "addresses": config.white_remote_address or "",
            "default_topic": _usual(config.default_topic_perm),
            "default_group": _usual(config.default_group_perm),
            "permissions": permissions,
            "choices": _PERMISSIONS,
            "least_characters": MIN_KEY_LENGTH,
            "is_own": ask.viewer is not None and name == ask.viewer.name,
        }

    def white_form(self, ask: Ask) -> Steps:
        """Make the form of the addresses that need no account."""
        yield
        return {"addresses": "\n".join(self._access.default_white_addresses())}

    # -- create and change -----------------------------------------------------------------------------------------

    def _config(self, act: Act, present: PlainAccessConfig | None, secret: str) -> PlainAccessConfig:
        """Return the account of a form. Raises ActionRefused if the broker would refuse it, or cannot do it."""
        fields, name = act.fields, act.fields["name"]
        if len(name) < MIN_KEY_LENGTH or name != name.strip() or not name.isprintable():
            raise ActionRefused(f"an access key has at least {MIN_KEY_LENGTH} characters, and no blank at its ends")
        topics, groups = _resources(fields["permissions"])
        config = PlainAccessConfig(
            access_key=name,
            secret_key=secret,
            white_remote_address=fields["addresses"].strip() or (_NO_ADDRESS if present is not None else None),
            admin=fields["admin"] == "yes",
            default_topic_perm=_permission(fields["default_topic"]),
            default_group_perm=_permission(fields["default_group"]),
            topic_perms=topics or None,
            group_perms=groups or None,
        )
        if present is not None:
            for before, after in ((present.topic_perms, topics), (present.group_perms, groups)):
                if before and not after:
                    raise ActionRefused(f"brokers cannot forget the last permission: write {before[0]} as DENY")
            if present.admin and not config.admin and name == act.actor.account:
                raise ActionRefused("you are logged in with this account: another administrator can take its rights")
        with _refusals():
            self._access.check_account(config)
        return config

    def _creation(self, act: Act, secret: str) -> PlainAccessConfig:
        config = self._config(act, None, secret)
        if self._access.config(act.fields["name"]) is not None:
            raise ActionRefused("there is an account of this name: change it")
        return config

    def _present(self, act: Act) -> PlainAccessConfig:
        config = self._access.config(act.fields["name"])
        if config is None:
            raise ActionRefused(f"there is no account {act.fields['name'][:80]!r}")
        return config

    def _changed(self, act: Act, secret: str) -> tuple[PlainAccessConfig, PlainAccessConfig]:
        """Return an account before and after; without a secret it keeps its own."""
        present = self._present(act)
        return present, self._config(act, present, secret or present.secret_key or "")

    async def _places(self) -> Places:
        return await self._brokers.of_cluster(with_slaves=True)

    async def _reached(self, act: Act) -> Places:
        """Return the brokers, after each has said that it checks access and knows who asks: nothing else is asked for,
        since a list of accounts has their secret keys."""
        places = await self._places()

        async def look(broker: Requests) -> RemotingCommand:
            return await broker.change(act.actor, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)

        await places.each(look, "The account was not changed")
        return places

    async def preview_creation(self, act: Act) -> Preview:
        """Show what the account may do."""
        config = self._creation(act, _new_secret())
        places = await self._reached(act)
        rows = [Row("Secret key", None, "new"), *_rows(None, config)]
        return Preview(config.access_key or "", rows, places.facts())

    async def create(self, act: Act) -> Result:
        """Send UPDATE_AND_CREATE_ACL_CONFIG."""
        secret = _new_secret()
        return await self._written(act, self._creation(act, secret), "The account was created", secret)

    async def preview_change(self, act: Act) -> Preview:
        """Show what the account may do, before and after."""
        is_new = act.fields["secret"] == "new"
        present, config = self._changed(act, _new_secret() if is_new else "")
        places = await self._reached(act)
        rows = [Row("Secret key", "as now", "new" if is_new else "as now"), *_rows(present, config)]
        is_own = config.access_key == self._own.access_key() and (is_new or present.admin != config.admin)
        warnings = (*((NEW_SECRET,) if is_new else ()), *((OWN_ACCOUNT,) if is_own else ()))
        return Preview(config.access_key or "", rows, places.facts(), warnings=warnings)

    async def change(self, act: Act) -> Result:
        """Send UPDATE_AND_CREATE_ACL_CONFIG."""
        secret = _new_secret() if act.fields["secret"] == "new" else ""
        return await self._written(act, self._changed(act, secret)[1], "The account was changed", secret)

    async def _written(self, act: Act, config: PlainAccessConfig, done: str, secret: str) -> Result:
        """Write an account at each broker. This one comes last: from then on it signs with the new secret key, which
        the others have by then."""
        fields = {
            "accessKey": config.access_key,
            "secretKey": config.secret_key,
            "whiteRemoteAddress": config.white_remote_address,
            "admin": config.admin,
            "defaultTopicPerm": config.default_topic_perm,
            "defaultGroupPerm": config.default_group_perm,
            "topicPerms": ",".join(config.topic_perms) if config.topic_perms else None,
            "groupPerms": ",".join(config.group_perms) if config.group_perms else None,
        }
        name, code = config.access_key or "", RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
        places = await self._places()
        is_own = name == act.actor.account
        found = await places.each(
            lambda broker: broker.change(act.actor, code, fields), "The account was not changed", own_last=is_own
        )
        return Result(places.done(found, lambda _: done, name), path=link_text("/accounts", q=name), secret=secret)

    # -- delete ----------------------------------------------------------------------------------------------------

    def _doomed(self, act: Act) -> PlainAccessConfig:
        if act.fields["name"] == act.actor.account:
            raise ActionRefused("you are logged in with this account: another administrator can delete it")
        return self._present(act)

    async def preview_deletion(self, act: Act) -> Preview:
        """Show what nobody may do with the account any more."""
        config = self._doomed(act)
        places = await self._reached(act)
        name = config.access_key or ""
        warnings = (OWN_ACCOUNT,) if name == self._own.access_key() else ()
        return Preview(name, _rows(config, None), places.facts(), typed=name, warnings=warnings)

    async def delete(self, act: Act) -> Result:
        """Send DELETE_ACL_CONFIG."""
        name = self._doomed(act).access_key or ""
        places = await self._places()
        code = RequestCode.DELETE_ACL_CONFIG
        found = await places.each(
            lambda broker: broker.change(act.actor, code, {"accessKey": name}), "The account was not deleted"
        )
        return Result(places.done(found, lambda _: "The account was deleted", name), path="/accounts")

    # -- addresses that need no account ----------------------------------------------------------------------------

    async def preview_white(self, act: Act) -> Preview:
        """Show the addresses before and after."""
        after = _patterns(act.fields["addresses"])
        before = self._access.default_white_addresses()
        places = await self._reached(act)
        every = [*after, *[one for one in before if one not in after]]
        rows = [
            Row(one, "yes" if one in before else "no", "yes" if one in after else "no") for one in every[:MOST_ROWS]
        ]
        warnings = (EVERYBODY,) if EVERYTHING.intersection(after) else ()
        facts = [Fact("Addresses before", len(before)), Fact("Addresses after", len(after)), *places.facts()]
        return Preview("plain_acl.yml", rows, facts, column="Addresses that need no account", warnings=warnings)

    async def change_white(self, act: Act) -> Result:
        """Send UPDATE_GLOBAL_WHITE_ADDRS_CONFIG."""
        fields = {"globalWhiteAddrs": ",".join(_patterns(act.fields["addresses"]))}
        code, places = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, await self._places()
        found = await places.each(
            lambda broker: broker.change(act.actor, code, fields), "The addresses were not changed"
        )
        return Result(places.done(found, lambda _: "The addresses were changed", "plain_acl.yml"), path="/accounts")


def _new_secret() -> str:
    return secrets.token_urlsafe(SECRET_BYTES)


@contextmanager
def _refusals() -> Generator[None, None, None]:
    try:
        yield
    except AclUpdateRefused as error:
        raise ActionRefused(str(error)) from None


def _usual(text: str | None) -> str:
    """Return a permission as the form has it."""
    return "PUB|SUB" if text == "SUB|PUB" else text or "DENY"


def _permission(text: str) -> str:
    if text not in _PERMISSIONS:
        raise ActionRefused(f"a permission is one of {', '.join(_PERMISSIONS)}")
    return text


def _resources(text: str) -> tuple[list[str], list[str]]:
    """Return what the lines of a form allow in topics and in groups, as requests have it. Raises ActionRefused."""
    found: dict[str, dict[str, str]] = {"topic": {}, "group": {}}
    for line in text.splitlines():
        if not line.strip():
            continue
        kind, _, rest = line.strip().partition(" ")
        name, equals, permission = rest.strip().partition("=")
        name, permission = name.strip(), permission.strip()
        if kind not in found or not name or not equals or set(name) & set(",{} ") or not name.isprintable():
            raise ActionRefused(f"{line.strip()[:80]!r} is not like topic NAME=PUB or group NAME=SUB")
        if name in found[kind]:
            raise ActionRefused(f"{kind} {name} is there twice")
        found[kind][name] = _permission(_usual(permission))
    topics, groups = ([f"{name}={permission}" for name, permission in found[kind].items()] for kind in found)
    return topics, groups


def _patterns(text: str) -> list[str]:
    """Return the patterns of a form, one a line or separated by commas. Raises ActionRefused."""
    patterns = [one for one in split_list(",".join(text.splitlines())) or [] if one]
    with _refusals():
        check_patterns(patterns)
    return list(dict.fromkeys(patterns))


def _table(config: PlainAccessConfig) -> dict[str, str]:
    """Return the permissions of an account by resource, which begins with its kind."""
    found: dict[str, str] = {}
    for kind, texts in (("topic", config.topic_perms), ("group", config.group_perms)):
        for text in texts or ():
            name, _, permission = text.partition("=")
            found[f"{kind} {name.strip()}"] = permission.strip()
    return found


def _rows(before: PlainAccessConfig | None, after: PlainAccessConfig | None) -> list[Row]:
    """Return what an account may do, before and after: first what changes."""
    was, will = _values(before), _values(after)
    rows = [Row(label, was.get(name), will.get(name)) for name, label in _LABELS.items()]
    old, new = _table(before or PlainAccessConfig()), _table(after or PlainAccessConfig())
    resources = [Row(name, old.get(name), new.get(name)) for name in sorted({**old, **new})]
    resources.sort(key=lambda row: not row.is_changed)
    return [*rows, *resources[:MOST_ROWS]]


def _values(config: PlainAccessConfig | None) -> dict[str, str | None]:
    if config is None:
        return {}
    return {
        "admin": "yes" if config.admin else "no",
        "addresses": (config.white_remote_address or "").strip() or None,
        "topics": config.default_topic_perm or "DENY",
        "groups": config.default_group_perm or "DENY",
    }
