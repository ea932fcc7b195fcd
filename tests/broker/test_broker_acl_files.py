"""ACL files on disk: which ones are reloaded, how one is written, and the exact bounds of an account."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from structlog.testing import capture_logs

from triomq.broker.acl import accounts, acl_file
from triomq.broker.acl.access_table import AccessTable
from triomq.broker.acl.accounts import MIN_KEY_LENGTH, account_of
from triomq.broker.acl.errors import AclFileError, AclUpdateRefused
from triomq.broker.acl.names import PUB
from triomq.protocol.bodies.acl import PlainAccessConfig
from triomq.protocol.bodies.topic_config import DataVersion


def account_text(access_key: str, secret_key: str = "secretsecret") -> str:
    return f"accounts:\n- accessKey: {access_key}\n  secretKey: {secret_key}\n"


def table_of(home: Path, clock: FakeClock | None = None) -> AccessTable:
    table = AccessTable(home, now_ms=clock or FakeClock())
    table.load()
    return table


@pytest.mark.parametrize("has_directory", [True, False])
def test_a_missing_default_file_is_made_empty_and_private(tmp_path: Path, has_directory: bool) -> None:
    if has_directory:
        (tmp_path / "conf").mkdir()
    table_of(tmp_path)
    path = tmp_path / "conf" / "plain_acl.yml"
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"", 0o600)


def test_a_file_that_did_not_change_keeps_its_accounts_and_its_version(tmp_path: Path) -> None:
    further = tmp_path / "conf" / "acl" / "team.yml"
    further.parent.mkdir(parents=True)
    further.write_text(account_text("team-account"))
    default = tmp_path / "conf" / "plain_acl.yml"
    default.write_text(account_text("first-account"))
    clock = FakeClock()
    table = table_of(tmp_path, clock)
    version = table.versions()[str(further)]
    clock.now_ms += 60_000  # a file without a version gets the time at which it was read
    default.write_text(account_text("second-account"))
    assert table.refresh()
    assert table.account("team-account") is not None
    assert table.versions()[str(further)] == version
    assert table.versions()[str(default)] != version


def test_a_file_is_written_as_a_block_of_lines_and_a_new_one_is_private(tmp_path: Path) -> None:
    path = tmp_path / "new.yml"
    entries = [{"accessKey": "some-account", "secretKey": "some-secret", "admin": "true", "topicPerms": ["A=PUB"]}]
    old_mask = os.umask(0)
    try:
        acl_file.write(path, {"accounts": entries}, DataVersion(counter=3, timestamp=5))
    finally:
        os.umask(old_mask)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == (
        "accounts:\n- accessKey: some-account\n  secretKey: some-secret\n  admin: true\n  topicPerms:\n  - A=PUB\n"
        "dataVersion:\n- counter: 3\n  timestamp: 5\n"
    )


def test_a_file_is_on_the_disk_before_it_takes_the_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    sync, replace = os.fdatasync, Path.replace

    def syncing(descriptor: int) -> None:
        steps.append(f"sync {os.fstat(descriptor).st_size > 0}")
        sync(descriptor)

    def replacing(self: Path, target: Any) -> Path:
        steps.append("replace")
        return replace(self, target)

    monkeypatch.setattr(os, "fdatasync", syncing)
    monkeypatch.setattr(Path, "replace", replacing)
    acl_file.write(tmp_path / "some.yml", {}, DataVersion())
    assert steps == ["sync True", "replace"]


@pytest.mark.parametrize(
    ("access_bytes", "secret_bytes", "is_taken"),
    [
        (MIN_KEY_LENGTH, MIN_KEY_LENGTH, True),
        (MIN_KEY_LENGTH - 1, MIN_KEY_LENGTH, False),
        (MIN_KEY_LENGTH, MIN_KEY_LENGTH - 1, False),
    ],
)
def test_keys_have_at_least_seven_characters(access_bytes: int, secret_bytes: int, is_taken: bool) -> None:
    config = PlainAccessConfig(access_key="a" * access_bytes, secret_key="s" * secret_bytes)
    if is_taken:
        assert account_of(config).access_key == config.access_key
    else:
        with pytest.raises(AclFileError, match="must be longer than 6 characters"):
            account_of(config)


def test_a_changed_account_has_all_of_the_new_values_and_keeps_the_others() -> None:
    old = {"accessKey": "k", "secretKey": "old-secret", "whiteRemoteAddress": "10.0.0.1", "defaultTopicPerm": "PUB"}
    config = PlainAccessConfig(
        access_key="k",
        secret_key="new-secret",
        white_remote_address="10.0.0.2",
        admin=True,
        default_topic_perm="SUB",
        default_group_perm="PUB",
        topic_perms=["A=PUB"],
        group_perms=["G=SUB"],
    )
    [changed] = acl_file.with_account({"accounts": [old]}, config)["accounts"]
    assert changed == {
        "accessKey": "k",
        "secretKey": "new-secret",
        "whiteRemoteAddress": "10.0.0.2",
        "admin": True,
        "defaultTopicPerm": "SUB",
        "defaultGroupPerm": "PUB",
        "topicPerms": ["A=PUB"],
        "groupPerms": ["G=SUB"],
    }
    [kept] = acl_file.with_account({"accounts": [old]}, PlainAccessConfig(access_key="k"))["accounts"]
    assert kept == {**old, "admin": False}


def test_an_account_has_one_permission_for_each_resource_up_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "MAX_RESOURCES", 2)

    def config(*permissions: str) -> PlainAccessConfig:
        return PlainAccessConfig(access_key="some-account", secret_key="some-secret", topic_perms=list(permissions))

    assert account_of(config("A=PUB", "B=PUB")).permissions == {"A": PUB, "B": PUB}
    with pytest.raises(AclFileError, match="more than 2 resources"):
        account_of(config("A=PUB", "B=PUB", "C=PUB"))


# -- secret keys with files of their own -------------------------------------------------------------------------------


def secret_file(home: Path, text: str, mode: int = 0o600) -> Path:
    path = home / "conf" / "shop.secret"
    path.parent.mkdir(exist_ok=True)
    path.touch()
    path.chmod(mode)
    path.write_text(text)
    return path


def table_with_key_file(home: Path, more: str = "") -> AccessTable:
    (home / "conf").mkdir(exist_ok=True)
    (home / "conf" / "plain_acl.yml").write_text(
        f"accounts:\n- accessKey: shopService\n  secretKeyFile: shop.secret\n{more}"
    )
    return table_of(home)


def secret_key(table: AccessTable) -> str | None:
    account = table.account("shopService")
    return account.secret_key if account is not None else None


def test_a_secret_key_may_be_in_a_file_which_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "firstSecret\n")
    table = table_with_key_file(tmp_path)
    assert secret_key(table) == "firstSecret"
    assert not table.refresh()
    path.write_text("anotherSecret\n")
    assert table.refresh()
    assert secret_key(table) == "anotherSecret"


@pytest.mark.parametrize(
    ("text", "mode", "reason"),
    [
        ("firstSecret", 0o644, "permissions are 0644"),
        ("", 0o600, "it is empty"),
        ("short", 0o600, "longer than 6 characters"),
    ],
)
def test_a_secret_file_that_cannot_be_used_ends_the_start(tmp_path: Path, text: str, mode: int, reason: str) -> None:
    secret_file(tmp_path, text, mode)
    with pytest.raises(AclFileError, match=f"plain_acl.yml: account 'shopService': .*{reason}") as caught:
        table_with_key_file(tmp_path)
    assert "firstSecret" not in str(caught.value)


def test_a_secret_key_is_in_one_place(tmp_path: Path) -> None:
    secret_file(tmp_path, "firstSecret")
    with pytest.raises(AclFileError, match="secretKey and secretKeyFile are both set: remove one"):
        table_with_key_file(tmp_path, "  secretKey: otherSecret\n")


def test_a_secret_file_that_vanishes_leaves_the_secret_in_force_and_counts_when_it_returns(tmp_path: Path) -> None:
    path = secret_file(tmp_path, "firstSecret")
    table = table_with_key_file(tmp_path)
    path.unlink()
    with capture_logs() as logs:
        assert table.refresh()
        assert not table.refresh()
    assert [entry["event"] for entry in logs if entry["log_level"] == "error"] == [
        "ACL file rejected; its former content stays in force"
    ]
    assert f"{path} cannot be read: No such file" in str(logs)
    assert secret_key(table) == "firstSecret"
    assert table.rejected == 1
    [why] = table.rejected_values().values()
    assert f"{path} cannot be read: No such file" in why and why.endswith(" UTC)")
    secret_file(tmp_path, "secretThatReturned")
    assert table.refresh()
    assert secret_key(table) == "secretThatReturned"
    assert (table.rejected, table.rejected_values()) == (0, {})


def test_a_file_that_first_names_a_missing_secret_counts_when_the_secret_arrives(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    default = tmp_path / "conf" / "plain_acl.yml"
    default.write_text(account_text("firstService"))
    table = table_of(tmp_path)
    default.write_text(f"{account_text('firstService')}- accessKey: shopService\n  secretKeyFile: shop.secret\n")
    assert table.refresh()
    assert secret_key(table) is None
    secret_file(tmp_path, "arrivedSecret")
    assert table.refresh()
    assert secret_key(table) == "arrivedSecret"


def test_an_administrator_changes_all_of_such_an_account_except_its_secret(tmp_path: Path) -> None:
    secret_file(tmp_path, "firstSecret\n")
    table = table_with_key_file(tmp_path)
    table.update_account(
        PlainAccessConfig(access_key="shopService", secret_key="firstSecret", topic_perms=["Orders=PUB"])
    )
    account = table.account("shopService")
    assert account is not None
    assert (account.secret_key, account.permissions) == ("firstSecret", {"Orders": PUB})
    written = (tmp_path / "conf" / "plain_acl.yml").read_text()
    assert "secretKeyFile: shop.secret" in written
    assert "firstSecret" not in written
    with pytest.raises(AclUpdateRefused, match=r"shopService is in .*shop\.secret: change it there") as caught:
        table.update_account(PlainAccessConfig(access_key="shopService", secret_key="secondSecret"))
    assert "Secret" not in str(caught.value).replace("shop.secret", "")
    assert secret_key(table) == "firstSecret"
