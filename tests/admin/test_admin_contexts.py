"""Contexts: which cluster a command goes to, who may read the file, and that no output has a secret."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_cluster import FakeCluster, fake_cluster
from verb_calls import check

from triomq.admin import contexts
from triomq.admin.__main__ import main

SECRET = "very-secret-1"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("NAMESRV_ADDR", "MQADMIN_CONTEXT", "MQADMIN_ACCESS_KEY", "MQADMIN_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "triomq" / "contexts"


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with fake_cluster() as found:
        yield found


def add(name: str, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(SECRET + "\n"))
    assert main(["context", "add", name, "-n", address, "--accessKey", "operator"]) == 0


def test_the_file_is_for_its_owner_alone_and_no_output_has_the_secret(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add("prod", "ns:9876", monkeypatch)
    assert home.stat().st_mode & 0o777 == 0o600
    assert json.loads(home.read_text())["contexts"]["prod"]["secretKey"] == SECRET
    assert main(["context", "list"]) == 0
    capsys.readouterr()
    assert main(["context", "list", "--output", "json"]) == 0
    printed = capsys.readouterr().out
    assert check("context list", printed) == [
        {
            "name": "prod",
            "current": True,
            "nameServers": "ns:9876",
            "accessKey": "operator",
            "tls": False,
            "caFile": None,
        }
    ]
    assert SECRET not in printed


@pytest.mark.parametrize("verb", ["add x -n h:1 --accessKey a", "use prod", "remove prod"])
def test_every_verb_prints_json_that_fits_without_secrets(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add("prod", "ns:9876", monkeypatch)
    monkeypatch.setenv("MQADMIN_SECRET_KEY", SECRET)
    for form in ("json", "table"):
        capsys.readouterr()
        assert main(["context", *verb.split(), "--output", form, *(["--dry-run"] if form == "table" else [])]) == (
            0 if form == "json" or verb != "remove prod" else 3
        )
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err
        if form == "json":
            check(f"context {verb.split()[0]}", printed.out)


def test_a_dry_run_leaves_the_file_alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add("prod", "ns:9876", monkeypatch)
    before = home.read_text()
    assert main(["context", "remove", "prod", "--dry-run"]) == 0
    assert home.read_text() == before


def test_a_file_that_others_may_read_is_refused_with_the_command_that_mends_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    add("prod", "ns:9876", monkeypatch)
    home.chmod(0o644)
    assert main(["topicList"]) == 1
    assert f"chmod 600 {home}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"contexts": [1]}', '{"contexts": {"a": 1}}', "x" * 1_100_000])
def test_a_damaged_file_is_an_error_and_not_a_traceback(
    text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home.parent.mkdir()
    home.touch(0o600)
    home.write_text(text)
    assert main(["context", "list"]) == 1
    assert "is damaged" in capsys.readouterr().err


def test_commands_go_to_the_current_context_with_its_account(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    add("here", cluster.address, monkeypatch)
    assert main(["topicList"]) == 0
    [(code, fields, _)] = cluster.requests
    assert code == 206
    assert fields["AccessKey"] == "operator"
    assert SECRET not in str(fields)


def test_the_order_of_what_names_a_cluster(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    add("nowhere", "127.0.0.1:1", monkeypatch)
    add("here", cluster.address, monkeypatch)
    assert main(["topicList"]) == 4  # the first one is current
    assert main(["topicList", "--context", "here"]) == 0
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    assert main(["topicList"]) == 4
    monkeypatch.setenv("MQADMIN_CONTEXT", "here")
    assert main(["topicList"]) == 0
    assert main(["topicList", "--context", "nowhere"]) == 4
    assert main(["topicList", "-n", cluster.address]) == 0
    assert "AccessKey" not in cluster.requests[-1][1]  # the account of a context goes to its cluster alone
    assert main(["topicList", "--context", "gone"]) == 3


def test_use_and_remove_name_what_exists(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    add("a", "h:1", monkeypatch)
    add("b", "h:2", monkeypatch)
    assert main(["context", "use", "b"]) == 0
    assert contexts.load()["current"] == "b"
    assert main(["context", "remove", "b"]) == 0
    assert contexts.load() == {"current": "", "contexts": {"a": contexts.load()["contexts"]["a"]}}
    assert main(["context", "use", "b"]) == 3
    assert "`mqadmin context list`" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["add", "add x", "add x/y -n h:1", "add x -n h:1 --nosuch", "use", "list extra", "add x -n h:1 --tls=1"]
)
def test_wrong_words_are_usage_errors(words: str) -> None:
    assert main(["context", *words.split()]) == 2


def test_contexts_can_be_mended_whatever_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MQADMIN_CONTEXT", "gone")
    monkeypatch.setenv("MQADMIN_ACCESS_KEY", "half-an-account")
    for words in ("context add a -n h:1", "context list", "context use a", "context remove a", "explain 17"):
        assert main(words.split()) == 0
    assert main(["topicList"]) == 2
    assert "MQADMIN_SECRET_KEY" in capsys.readouterr().err


def test_an_empty_secret_is_refused(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    assert main(["context", "add", "x", "-n", "h:1", "-a", "key"]) == 2
    assert not home.exists()


def test_a_save_that_fails_leaves_the_old_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add("a", "h:1", monkeypatch)
    before = home.read_text()

    def refused(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refused)
    assert main(["context", "use", "a"]) == 1
    assert home.read_text() == before
    assert os.listdir(home.parent) == ["contexts"]


def test_a_missing_file_of_certificates_is_named_with_where_it_was_given(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "no-ca.pem")
    words = ["clusterList", "-n", cluster.address]
    monkeypatch.setenv("MQADMIN_TLS_CA", missing)
    assert main(words) == 0  # without TLS nobody reads it
    monkeypatch.setenv("MQADMIN_TLS", "1")
    capsys.readouterr()
    assert main(words) == 2
    error = f"mqadmin clusterList: MQADMIN_TLS_CA: there is no file {missing!r} with certificates to trust\n"
    assert capsys.readouterr().err == error
