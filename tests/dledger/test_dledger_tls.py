"""TLS of the port of dLegerPeers over loopback sockets: who is let in, and what is said when somebody is not."""

from __future__ import annotations

import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
from free_ports import free_port
from tls_authority import Authority, needs_openssl

from triomq.broker.configuration import Configuration
from triomq.broker.start_warnings import start_warnings
from triomq.daemon.errors import ExitCode
from triomq.dledger.__main__ import main
from triomq.dledger.member.alone import Options, serve
from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.dledger.rules.core import Setup
from triomq.dledger.rules.timing import FAST
from triomq.protocol.settings import SettingError, bind
from triomq.remoting.client import open_client
from triomq.remoting.link_tls import LinkTls
from triomq.remoting.member_tls import MemberTlsSettings
from triomq.remoting.tls import TlsSettings

GROUP = "secured"
Values = dict[str, str]


class Certificates:
    """An authority, a certificate for each of three members, and one for somebody who is none."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority = Authority(directory)
        self.pairs = {name: self.authority.issue(name, names=f"DNS:{name},IP:127.0.0.1") for name in ("n0", "n1", "n2")}
        self.other = self.authority.issue("other")
        elsewhere = directory / "elsewhere"
        elsewhere.mkdir()
        self.forged = Authority(elsewhere).issue("n0", names="DNS:n0,IP:127.0.0.1")

    def values(self, pair: tuple[str, str] | None, **more: str) -> Values:
        trust = str(self.authority.certificate)
        found = {
            "tls.test.mode.enable": "false",
            "tls.dleger.mode": "enforcing",
            "tls.dleger.memberNames": "n0, n1,n2",
            "tls.server.trustCertPath": trust,
            "tls.client.trustCertPath": trust,
        }
        if pair is not None:
            for side in ("server", "client"):
                found |= {f"tls.{side}.certPath": pair[0], f"tls.{side}.keyPath": pair[1]}
        return found | {key.replace("_", "."): text for key, text in more.items()}


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def tls_of(values: Values, *, accepts: bool = True) -> LinkTls:
    settings = bind(MemberTlsSettings, values, source="test")[0]
    return settings.made(TlsSettings.from_values(values), accepts=accepts)


@asynccontextmanager
async def running(directory: Path, each: dict[str, Values]) -> AsyncIterator[dict[str, str]]:
    """Run a group whose members have these values. Yield their addresses."""
    addresses = {name: f"127.0.0.1:{free_port()}" for name in each}
    async with trio.open_nursery() as nursery:
        for name, values in each.items():
            setup = Setup(GROUP, name, addresses, timing=FAST)
            options = Options(setup, str(directory / name), 1 << 20, tls=tls_of(values))
            await nursery.start(serve, options)
        yield addresses
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def calling(addresses: dict[str, str], values: Values | None) -> AsyncIterator[GroupClient]:
    """Yield a client with the values of a member; None: one without TLS."""
    tls = tls_of(values, accepts=False) if values is not None else None
    context = tls.dialing.current if tls is not None and tls.dialing is not None else None
    async with open_client(tls_context=context) as client:
        yield GroupClient(client, GROUP, addresses)


def told(logs: list[Any]) -> str:
    return " | ".join(f"{entry['event']}: {entry.get('error', '')}" for entry in logs)


@needs_openssl
async def test_a_group_elects_and_commits_over_tls_and_lets_nobody_else_in(
    tmp_path: Path, certificates: Certificates
) -> None:
    each = {name: certificates.values(pair) for name, pair in certificates.pairs.items()}
    async with running(tmp_path, each) as addresses:
        async with calling(addresses, each["n1"]) as group:
            await group.find_leader(20)
            assert (await group.get(await group.append(b"one"))).body == b"one"
        for values, reason in (
            (None, "tls.dleger.mode is enforcing here"),
            (certificates.values(None, tls_dleger_memberNames=""), "presented no certificate"),
            (certificates.values(certificates.other), "none of tls.dleger.memberNames"),
            (certificates.values(certificates.forged), "not signed by an authority that this side trusts"),
        ):
            with structlog.testing.capture_logs() as logs:
                async with calling(addresses, values) as group:
                    with pytest.raises(GroupFailed):
                        await group.metadata("n0")
                with trio.fail_after(10):
                    while reason not in told(logs):  # noqa: ASYNC110 (of another side, over sockets)
                        await trio.sleep(0.01)  # until the other side has said it
        async with calling(addresses, each["n2"]) as group:
            await group.find_leader(20)
            await group.append(b"two")


@needs_openssl
async def test_a_group_turns_tls_on_member_by_member(tmp_path: Path, certificates: Certificates) -> None:
    """Permissive ports serve members that dial with TLS and others alike."""
    each = {
        name: certificates.values(pair, tls_dleger_mode="permissive", tls_dleger_memberNames="", tls_dleger_enable=text)
        for (name, pair), text in zip(certificates.pairs.items(), ("true", "false", ""), strict=True)
    }
    async with running(tmp_path, each) as addresses:
        for values in (each["n0"], None):
            async with calling(addresses, values) as group:
                await group.find_leader(20)
                await group.append(b"one")


@needs_openssl
async def test_a_member_dials_nobody_who_is_not_the_host_that_it_means(
    tmp_path: Path, certificates: Certificates
) -> None:
    elsewhere = certificates.authority.issue("elsewhere", names="DNS:n0")
    async with (
        running(tmp_path, {"n0": certificates.values(elsewhere)}) as addresses,
        calling(addresses, certificates.values(certificates.pairs["n1"])) as group,
    ):
        with pytest.raises(GroupFailed, match="is for another name"):
            await group.metadata("n0")


@needs_openssl
async def test_a_port_shows_the_new_certificate_when_its_files_change(
    tmp_path: Path, certificates: Certificates
) -> None:
    own = [str(shutil.copy(path, tmp_path)) for path in certificates.pairs["n0"]]
    values = certificates.values((own[0], own[1]), tls_dleger_memberNames="")

    async def shown(port: int) -> Any:
        context = ssl.create_default_context(cafile=str(certificates.authority.certificate))
        stream = await trio.open_ssl_over_tcp_stream("127.0.0.1", port, ssl_context=context)
        await stream.do_handshake()
        names = stream.getpeercert()["subject"]
        await trio.aclose_forcefully(stream)
        return names[0][0][1]

    async with running(tmp_path / "store", {"n0": values}) as addresses:
        port = int(addresses["n0"].rpartition(":")[2])
        assert await shown(port) == "n0"
        for old, new in zip(own, certificates.pairs["n1"], strict=True):
            shutil.copy(new, old)
        with trio.fail_after(20):
            while await shown(port) != "n1":  # noqa: ASYNC110 (of files)
                await trio.sleep(0.05)


@needs_openssl
async def test_commands_dial_with_the_configuration_of_a_member(
    tmp_path: Path, certificates: Certificates, capfd: pytest.CaptureFixture[str]
) -> None:
    values = certificates.values(certificates.pairs["n0"])
    file = tmp_path / "broker.conf"
    file.write_text("".join(f"{key}={text}\n" for key, text in values.items()))
    async with running(tmp_path / "store", {"n0": values}) as addresses:
        at = ["--group", GROUP, "--peers", f"n0-{addresses['n0']}"]
        async with calling(addresses, values) as group:
            await group.find_leader(20)
        assert await trio.to_thread.run_sync(main, ["members", *at, "-c", str(file)]) == ExitCode.STOPPED
        assert "leader" in capfd.readouterr().out
        assert await trio.to_thread.run_sync(main, ["append", *at, "-c", str(file), "one"]) == ExitCode.STOPPED
        assert await trio.to_thread.run_sync(main, ["members", *at]) == ExitCode.FAILED
        file.write_text("tls.dleger.enable=true\ntls.test.mode.enable=false\ntls.client.certPath=/none\n")
        assert await trio.to_thread.run_sync(main, ["members", *at, "-c", str(file)]) == ExitCode.REFUSED
        assert "tls.client.certPath" in capfd.readouterr().err


# -- the keys ----------------------------------------------------------------------------------------------------------


def test_names_of_members_require_a_certificate_and_no_test_mode() -> None:
    settings = bind(MemberTlsSettings, {"tls.dleger.memberNames": "N0, n1 "}, source="test")[0]
    assert settings.accepted_names == {"n0", "n1"}
    assert settings.needs_certificate.name == "require"
    with pytest.raises(SettingError, match=r"tls\.dleger\.memberNames: has no effect in test mode"):
        settings.check(TlsSettings.from_values({}))
    settings.check(TlsSettings.from_values({"tls.test.mode.enable": "false"}))
    auth = bind(MemberTlsSettings, {"tls.dleger.need.client.auth": "optional"}, source="test")[0]
    with pytest.raises(SettingError, match=r"tls\.dleger\.need\.client\.auth: has no effect in test mode"):
        auth.check(TlsSettings.from_values({}))


@pytest.mark.parametrize(
    ("values", "is_dialing"),
    [
        ({}, False),
        ({"tls.dleger.mode": "permissive"}, False),
        ({"tls.dleger.mode": "enforcing"}, True),
        ({"tls.dleger.mode": "enforcing", "tls.dleger.enable": "false"}, False),
        ({"tls.dleger.enable": "true"}, True),
    ],
)
def test_a_member_dials_with_tls_where_all_accept_it_or_it_is_told_to(values: Values, is_dialing: bool) -> None:
    assert (tls_of(values).dialing is not None) is is_dialing


def test_a_member_says_that_its_port_is_in_the_clear_or_checks_nobody() -> None:
    group = {
        "namesrvAddr": "a:1",
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "G",
        "dLegerSelfId": "n0",
        "dLegerPeers": "n0-10.0.0.1:40911",
    }
    configuration = Configuration.from_values(group)
    configuration.properties = {"tls.server.mode": "enforcing", "tls.test.mode.enable": "false"}
    assert [text for text in start_warnings(configuration) if "the port of dLegerPeers is in the clear" in text]
    assert not [text for text in start_warnings(configuration) if "HA port" in text], "a member has none"
    configuration.member_tls = bind(MemberTlsSettings, {"tls.dleger.mode": "enforcing"}, source="test")[0]
    assert not list(start_warnings(configuration))
    configuration.properties = {}
    [text] = start_warnings(configuration)
    assert "tls.dleger.mode" in text and "no side checks the other" in text
