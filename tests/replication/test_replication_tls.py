"""TLS of the HA port over loopback sockets: who gets the log, and what each side says when one does not."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
import trio.testing
from replication_fakes import assert_prefix, configuration, fill, log_bytes, open_slave
from store_support import open_store
from tls_authority import Authority, needs_openssl
from trio.testing import MockClock

from triomq.broker.configuration import Configuration
from triomq.broker.replication.frames import REPORT
from triomq.broker.replication.ha_tls import HaTls
from triomq.broker.replication.log_follower import MASTER_REFUSED, LogFollower
from triomq.broker.replication.log_server import LogServer
from triomq.broker.settings.ha_tls import HaTlsSettings
from triomq.broker.start_warnings import start_warnings
from triomq.protocol.settings import SettingError, bind
from triomq.remoting import network
from triomq.remoting.handshake import HANDSHAKE_SECONDS
from triomq.remoting.link_tls import LinkTlsMode
from triomq.remoting.tls import TlsSettings
from triomq.store.config import BrokerRole
from triomq.store.message_store import DefaultMessageStore

Logs = list[Any]


def both(**values: str) -> tuple[HaTlsSettings, TlsSettings]:
    """Return the records of keys with underscores for dots: tls_ha_mode="enforcing"."""
    texts = {key.replace("_", "."): text for key, text in values.items()}
    return bind(HaTlsSettings, texts, source="test")[0], TlsSettings.from_values(texts)


class Certificates:
    """An authority with a certificate for a master and one for a slave, and keys that name them."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.stranger = Authority(directory, "stranger")
        self.slave_pair = self.authority.issue("slave-1", names="DNS:slave-1.example")
        self.master_pair = self.authority.issue("master")

    def master(self, pair: tuple[str, str] | None = None, **more: str) -> dict[str, str]:
        certificate, key = pair or self.master_pair
        return {
            "tls_test_mode_enable": "false",
            "tls_ha_mode": "enforcing",
            "tls_server_certPath": certificate,
            "tls_server_keyPath": key,
            "tls_server_trustCertPath": str(self.authority.certificate),
            **more,
        }

    def slave(self, pair: tuple[str, str] | None = None, **more: str) -> dict[str, str]:
        own = {"tls_client_certPath": pair[0], "tls_client_keyPath": pair[1]} if pair else {}
        return {
            "tls_test_mode_enable": "false",
            "tls_ha_enable": "true",
            "tls_client_trustCertPath": str(self.authority.certificate),
            **own,
            **more,
        }


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Master:
    """A master with its HA port on loopback."""

    def __init__(self, store: DefaultMessageStore, tls: HaTls, port: int) -> None:
        self.store = store
        self.tls = tls
        self.address = f"127.0.0.1:{port}"


@asynccontextmanager
async def serving(directory: Path, values: dict[str, str]) -> AsyncIterator[Master]:
    store = await open_store(directory / "master", broker_role=BrokerRole.ASYNC_MASTER)
    tls = HaTls(*both(**values), is_slave=False)
    server = LogServer(configuration(store), store, None, tls.accept if tls.accepts_tls else None)
    listening = network.listen("127.0.0.1", 0, 10)
    fill(store, 20)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run, listening)
        yield Master(store, tls, network.port_of(listening))
        nursery.cancel_scope.cancel()
    await store.close()


async def until(condition: Callable[[], bool], what: Callable[[], str] = str, seconds: float = 30) -> None:
    with trio.move_on_after(seconds):
        while not condition():  # noqa: ASYNC110 (a condition of two sides over sockets)
            await trio.sleep(0.01)
        return
    raise AssertionError(f"not within {seconds:g} s: {what()}")


@asynccontextmanager
async def following(directory: Path, address: str, values: dict[str, str]) -> AsyncIterator[DefaultMessageStore]:
    store = await open_slave(directory)
    follower = LogFollower(configuration(store), store, HaTls(*both(**values), is_slave=True).connect)
    follower.master_known(address)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(follower.run)
        yield store
        nursery.cancel_scope.cancel()
    await store.close()


async def assert_follows(master: Master, slave: DefaultMessageStore) -> None:
    """Check that the slave gets what the master has, and what it stores later: a commit sends that directly."""

    def is_equal() -> bool:
        return slave.reading.max_physical_offset == master.store.reading.max_physical_offset

    await until(is_equal)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            fill(master.store, 5)
            await until(is_equal)
    assert "connection lost" not in told(logs), "what a commit sends directly goes through TLS, too"
    assert_prefix(slave, master.store)


def told(logs: Logs) -> str:
    return " | ".join(f"{entry['event']}: {entry.get('reason', entry.get('error', ''))}" for entry in logs)


# -- who gets the log --------------------------------------------------------------------------------------------------


@needs_openssl
@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_a_slave_follows_over_tls(tmp_path: Path, certificates: Certificates, mode: str) -> None:
    async with (
        serving(tmp_path, certificates.master(tls_ha_mode=mode)) as master,
        following(tmp_path / "slave", master.address, certificates.slave()) as slave,
    ):
        await assert_follows(master, slave)


@needs_openssl
async def test_test_mode_needs_no_files(tmp_path: Path) -> None:
    async with (
        serving(tmp_path, {"tls_ha_mode": "enforcing"}) as master,
        following(tmp_path / "slave", master.address, {"tls_ha_mode": "enforcing"}) as slave,
    ):
        await assert_follows(master, slave)


@needs_openssl
@pytest.mark.parametrize("mode", ["disabled", "permissive"])
async def test_a_plain_slave_follows_unless_tls_is_enforced(
    tmp_path: Path, certificates: Certificates, mode: str
) -> None:
    async with (
        serving(tmp_path, certificates.master(tls_ha_mode=mode)) as master,
        following(tmp_path / "slave", master.address, {}) as slave,
    ):
        await assert_follows(master, slave)


@needs_openssl
async def test_what_travels_is_not_readable(tmp_path: Path, certificates: Certificates) -> None:
    seen = bytearray()

    async def pump(source: trio.abc.Stream, target: trio.abc.Stream) -> None:
        async for data in source:
            seen.extend(data)
            await target.send_all(data)

    async with serving(tmp_path, certificates.master()) as master, trio.open_nursery() as nursery:
        host, _, port = master.address.partition(":")

        async def relay(stream: trio.abc.Stream) -> None:
            async with await trio.open_tcp_stream(host, int(port)) as other, trio.open_nursery() as pumps:
                pumps.start_soon(pump, stream, other)
                pumps.start_soon(pump, other, stream)

        listening = network.listen("127.0.0.1", 0, 10)
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(listening))  # type: ignore[arg-type]
        nursery.start_soon(trio.serve_listeners, relay, [listener])
        between = f"127.0.0.1:{network.port_of(listening)}"
        async with following(tmp_path / "slave", between, certificates.slave()) as slave:
            await assert_follows(master, slave)
        nursery.cancel_scope.cancel()
    assert len(seen) > 5_000
    assert b"x" * 20 not in seen
    assert b"x" * 20 in log_bytes(slave)


@needs_openssl
@pytest.mark.parametrize("names", ["", "other, SLAVE-1.example", "slave-1"])
async def test_a_slave_with_an_accepted_certificate_follows(
    tmp_path: Path, certificates: Certificates, names: str
) -> None:
    wanted = certificates.master(tls_ha_slaveNames=names, tls_ha_need_client_auth="require")
    async with (
        serving(tmp_path, wanted) as master,
        following(tmp_path / "slave", master.address, certificates.slave(certificates.slave_pair)) as slave,
    ):
        await assert_follows(master, slave)


@needs_openssl
async def test_the_master_may_be_known_by_another_name(tmp_path: Path, certificates: Certificates) -> None:
    named = certificates.authority.issue("named", names="DNS:broker-a.example")
    async with (
        serving(tmp_path, certificates.master(named)) as master,
        following(
            tmp_path / "slave", master.address, certificates.slave(tls_ha_masterName="broker-a.example")
        ) as slave,
    ):
        await assert_follows(master, slave)


# -- who does not ------------------------------------------------------------------------------------------------------


async def refused(directory: Path, master_values: dict[str, str], slave_values: dict[str, str], *words: str) -> str:
    """Check that such a slave gets nothing while another one follows, and that the log of both has these words. Return
    the log."""
    with structlog.testing.capture_logs() as logs:
        async with (
            serving(directory, master_values) as master,
            following(directory / "slave", master.address, slave_values) as slave,
        ):
            await until(lambda: all(word in told(logs) for word in words), lambda: told(logs))
            assert slave.reading.max_physical_offset == 0
    return told(logs)


@needs_openssl
async def test_a_master_of_another_authority_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    pair = certificates.stranger.issue("impostor")
    await refused(
        tmp_path,
        certificates.master(pair),
        certificates.slave(),
        "master not followed at present",
        "not signed by an authority",
        "tls.client.trustCertPath",
    )


@needs_openssl
async def test_an_expired_certificate_of_the_master_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    pair = certificates.authority.issue("old", days=-1)
    await refused(tmp_path, certificates.master(pair), certificates.slave(), "has expired: renew it")


@needs_openssl
async def test_a_master_with_another_name_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    pair = certificates.authority.issue("elsewhere", names="DNS:elsewhere.example")
    await refused(tmp_path, certificates.master(pair), certificates.slave(), "for another name", "tls.ha.masterName")


@needs_openssl
async def test_a_plain_slave_of_an_enforcing_master_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    text = await refused(
        tmp_path, certificates.master(), {}, "does not use TLS", "tls.ha.mode=permissive", MASTER_REFUSED
    )
    assert "never reported" not in text, "one line for each attempt"


@needs_openssl
async def test_tls_to_a_disabled_port_is_refused_on_both_sides(tmp_path: Path, certificates: Certificates) -> None:
    await refused(
        tmp_path,
        certificates.master(tls_ha_mode="disabled"),
        certificates.slave(),
        "tls.ha.mode is disabled here",
        "closed the connection during the TLS handshake",
    )


@needs_openssl
async def test_a_slave_without_a_certificate_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    values = certificates.master(tls_ha_need_client_auth="require")
    await refused(tmp_path, values, certificates.slave(), "presented no certificate", "tls.client.certPath")


@needs_openssl
@pytest.mark.parametrize("auth", ["optional", "require"])
async def test_a_slave_of_another_authority_is_refused(tmp_path: Path, certificates: Certificates, auth: str) -> None:
    pair = certificates.stranger.issue("strange-slave")
    values = certificates.master(tls_ha_need_client_auth=auth)
    await refused(tmp_path, values, certificates.slave(pair), "not signed by an authority", "tls.server.trustCertPath")


@needs_openssl
async def test_a_slave_with_an_expired_certificate_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    pair = certificates.authority.issue("old-slave", days=-1)
    values = certificates.master(tls_ha_need_client_auth="require")
    await refused(tmp_path, values, certificates.slave(pair), "link to the HA port refused", "has expired")


@needs_openssl
async def test_a_slave_with_another_name_is_refused(tmp_path: Path, certificates: Certificates) -> None:
    values = certificates.master(tls_ha_slaveNames="slave-2, slave-3")
    await refused(
        tmp_path,
        values,
        certificates.slave(certificates.slave_pair),
        "slave-1, slave-1.example",
        "none of tls.ha.slaveNames",
    )


@needs_openssl
async def test_a_refused_peer_costs_no_slave_anything(tmp_path: Path, certificates: Certificates) -> None:
    async with (
        serving(tmp_path, certificates.master()) as master,
        following(tmp_path / "one", master.address, {}) as plain,
        following(tmp_path / "two", master.address, certificates.slave()) as slave,
    ):
        await assert_follows(master, slave)
        assert plain.reading.max_physical_offset == 0


# -- half a handshake --------------------------------------------------------------------------------------------------


class Bench:
    """A LogServer with TLS on memory streams, where a clock jumps."""

    def __init__(self, nursery: trio.Nursery, settings: Configuration, store: DefaultMessageStore, tls: HaTls) -> None:
        self.nursery = nursery
        self.server = LogServer(settings, store, None, tls.accept)

    async def connect(self, data: bytes) -> trio.StapledStream:
        stream, theirs = trio.testing.memory_stream_pair()
        self.nursery.start_soon(self.server.serve, theirs, "10.6.6.6:1", None, "10.6.6.6", "10.0.0.1")
        if data:
            await stream.send_all(data)
        await trio.sleep(0.001)
        return stream


@asynccontextmanager
async def bench(directory: Path, certificates: Certificates, **changes: Any) -> AsyncIterator[Bench]:
    store = await open_store(directory / "master", broker_role=BrokerRole.ASYNC_MASTER, **changes)
    tls = HaTls(*both(**certificates.master()), is_slave=False)
    assert tls.accepting is not None
    await tls.accepting.context()
    async with trio.open_nursery() as nursery:
        yield Bench(nursery, configuration(store), store, tls)
        nursery.cancel_scope.cancel()
    await store.close()


@needs_openssl
async def test_half_a_handshake_ends(tmp_path: Path, certificates: Certificates, autojump_clock: MockClock) -> None:
    async with bench(tmp_path, certificates, ha_housekeeping_interval_ms=20_000) as master:
        began = trio.current_time()
        for data, seconds in ((b"\x16\x03\x01", HANDSHAKE_SECONDS), (b"", 20)):
            stream = await master.connect(data)
            assert len(master.server.links) == 1
            assert await stream.receive_some() == b""
            assert trio.current_time() - began == pytest.approx(seconds, abs=0.1)
            began = trio.current_time()
        await trio.sleep(0.01)
        assert not master.server.links


@needs_openssl
async def test_half_handshakes_have_places_and_make_room(
    tmp_path: Path, certificates: Certificates, autojump_clock: MockClock
) -> None:
    async with bench(tmp_path, certificates, ha_max_connections_per_address=2) as master:
        first = await master.connect(b"\x16\x03\x01")
        await master.connect(b"\x16\x03\x01")
        # The peers count, so a newcomer takes the place of the oldest that never reported.
        await master.connect(b"\x16\x03\x01")
        assert len(master.server.links) == 2
        with trio.fail_after(1):
            assert await first.receive_some() == b""


@needs_openssl
async def test_refusals_do_not_fill_the_log(
    tmp_path: Path, certificates: Certificates, autojump_clock: MockClock
) -> None:
    with structlog.testing.capture_logs() as logs:
        async with bench(tmp_path, certificates) as master:
            for _ in range(100):
                await master.connect(REPORT.pack(0))
    assert 20 <= len([entry for entry in logs if entry["event"] == "link to the HA port refused"]) <= 21


# -- settings ----------------------------------------------------------------------------------------------------------


def test_the_defaults_are_rocketmqs() -> None:
    settings, _ = both()
    assert (settings.mode, settings.is_dialing_secure) == (LinkTlsMode.disabled, False)
    assert both(tls_ha_mode="enforcing")[0].is_dialing_secure
    assert not both(tls_ha_mode="permissive")[0].is_dialing_secure
    assert not both(tls_ha_mode="enforcing", tls_ha_enable="false")[0].is_dialing_secure
    assert both(tls_ha_enable="true")[0].is_dialing_secure


@pytest.mark.parametrize(
    ("key", "text"), [("tls_ha_mode", "enforce"), ("tls_ha_enable", "yes"), ("tls_ha_need_client_auth", "required")]
)
def test_a_misspelt_word_is_an_error(key: str, text: str) -> None:
    with pytest.raises(SettingError, match=key.replace("_", r"\.")):
        both(**{key: text})


@pytest.mark.parametrize(
    "values", [{"tls_ha_need_client_auth": "require"}, {"tls_ha_slaveNames": "a"}], ids=["auth", "names"]
)
def test_names_in_test_mode_are_an_error(values: dict[str, str]) -> None:
    texts = {key.replace("_", "."): text for key, text in values.items()}
    settings, _ = both(**values)
    with pytest.raises(SettingError, match=next(iter(texts)) + ".*test mode"):
        Configuration(ha_tls=settings, properties=texts).check()


def test_test_mode_of_replication_is_a_warning() -> None:
    def warns(**values: str) -> bool:
        texts = {key.replace("_", "."): text for key, text in values.items()}
        found = start_warnings(Configuration(ha_tls=both(**values)[0], properties=texts))
        return any("neither side checks the other" in text for text in found)

    assert warns(tls_ha_mode="permissive")
    assert warns(tls_ha_enable="true")
    assert not warns()
    assert not warns(tls_ha_mode="enforcing", tls_test_mode_enable="false")


# -- new certificates --------------------------------------------------------------------------------------------------


@needs_openssl
async def test_new_certificates_count_for_new_links_and_old_links_stay(
    tmp_path: Path, certificates: Certificates
) -> None:
    certificate, key = tmp_path / "m.pem", tmp_path / "m.key"

    def put(pair: tuple[str, str]) -> None:
        shutil.copyfile(pair[0], certificate)
        shutil.copyfile(pair[1], key)

    put(certificates.master_pair)
    async with serving(tmp_path, certificates.master((str(certificate), str(key)))) as master:
        accepting = master.tls.accepting
        assert accepting is not None
        async with following(tmp_path / "one", master.address, certificates.slave()) as first:
            await assert_follows(master, first)
            put(certificates.stranger.issue("moved"))
            assert await accepting.refresh()
            trust = {"tls_client_trustCertPath": str(certificates.stranger.certificate)}
            async with following(tmp_path / "two", master.address, certificates.slave(**trust)) as second:
                await assert_follows(master, second)
            with structlog.testing.capture_logs() as logs:
                await assert_follows(master, first)
            assert "not following" not in told(logs), "the first link was not interrupted"
